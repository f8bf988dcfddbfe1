// Strings and a number for each, looked up by content: the strings stand one after another in one
// piece of memory, and the table is open addressing, since a vocabulary has hundreds of thousands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lagoon::text {

class StringTable {
 public:
  // False, and nothing changes, where the string is there already. It may be empty.
  bool insert(std::string_view key, int32_t value);
  std::optional<int32_t> find(std::string_view key) const;
  void reserve(size_t strings);

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t length = kEmpty;
    uint64_t begin = 0;
    int32_t value = 0;
  };
  static constexpr uint32_t kEmpty = UINT32_MAX;

  size_t slot_of(std::string_view key, uint32_t hash) const;
  void resize(size_t slots);

  std::string bytes_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace lagoon::text
