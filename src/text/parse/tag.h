// The tags that models of the Laguna family write around reasoning and tool calls.
#pragma once

#include <cstdint>
#include <string_view>

namespace lagoon::text::parse {

enum class Tag : uint8_t {
  kThink,
  kEndThink,
  kToolCall,
  kEndToolCall,
  kArgKey,
  kEndArgKey,
  kArgValue,
  kEndArgValue,
};
inline constexpr int kTagCount = 8;

// "<think>" and so on. Each begins with '<' and has no other.
std::string_view tag_text(Tag tag);

class TagSet {
 public:
  constexpr TagSet() = default;
  template <typename... Tags>
  static constexpr TagSet of(Tags... tags) {
    TagSet set;
    (set.add(tags), ...);
    return set;
  }
  static constexpr TagSet all() {
    TagSet set;
    set.bits_ = (1U << kTagCount) - 1;
    return set;
  }

  constexpr void add(Tag tag) { bits_ |= bit(tag); }
  constexpr bool has(Tag tag) const { return (bits_ & bit(tag)) != 0; }
  constexpr TagSet without(TagSet other) const {
    TagSet set;
    set.bits_ = bits_ & ~other.bits_;
    return set;
  }

 private:
  static constexpr uint32_t bit(Tag tag) { return 1U << static_cast<unsigned>(tag); }
  uint32_t bits_ = 0;
};

}  // namespace lagoon::text::parse
