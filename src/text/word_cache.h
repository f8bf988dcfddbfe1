// The tokens of words that came before in a text: most words of a long one recur. Of a fixed size;
// a word takes the place of another whose slot it shares. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/string_hash.h"

namespace lagoon::text {

class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  // Appends the tokens of the word; where it is not here, encode(word, ids) does, which depends on
  // nothing but the word.
  template <typename Encode>
  void append(std::string_view word, std::vector<int32_t>& ids, const Encode& encode) {
    if (word.empty() || word.size() > kLongestWord) return encode(word, ids);
    // With the length, these are all bytes of the word.
    const char* const bytes = word.data();
    const bool is_short = word.size() <= 8;
    const uint64_t front = is_short ? load_short(bytes, word.size()) : load_word<uint64_t>(bytes);
    const uint64_t back =
        is_short ? 0 : load_word<uint64_t>(bytes + word.size() - sizeof(uint64_t));
    Slot& slot = slots_[mix_hash(mix_hash(word.size(), front), back) % kSlots];
    if (slot.front == front && slot.back == back && slot.length == word.size()) {
      for (uint32_t i = 0; i < slot.count; ++i) ids.push_back(slot.ids[i]);
      return;
    }
    const size_t begin = ids.size();
    encode(word, ids);
    const size_t count = ids.size() - begin;
    if (count > kMostTokens) return;
    slot.front = front;
    slot.back = back;
    slot.length = static_cast<uint32_t>(word.size());
    slot.count = static_cast<uint32_t>(count);
    std::copy_n(ids.data() + begin, count, slot.ids.begin());
  }

 private:
  static constexpr size_t kSlots = 2048;
  static constexpr size_t kLongestWord = 16;
  static constexpr size_t kMostTokens = 6;
  struct Slot {
    uint64_t front = 0;
    uint64_t back = 0;
    uint32_t length = 0;  // 0: empty
    uint32_t count = 0;
    std::array<int32_t, kMostTokens> ids{};
  };

  std::vector<Slot> slots_;
};

}  // namespace lagoon::text
