#include "text/string_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "text/string_hash.h"

namespace lagoon::text {
size_t StringTable::slot_of(std::string_view key, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const Slot& s = slots_[slot];
    if (s.length == kEmpty) return slot;
    if (s.hash == hash && s.length == key.size() &&
        std::memcmp(bytes_.data() + s.begin, key.data(), key.size()) == 0) {
      return slot;
    }
  }
}

void StringTable::resize(size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const Slot& s : old) {
    if (s.length == kEmpty) continue;
    size_t slot = s.hash & mask;
    while (slots_[slot].length != kEmpty) slot = (slot + 1) & mask;
    slots_[slot] = s;
  }
}

void StringTable::reserve(size_t strings) {
  if (2 * strings > slots_.size()) resize(std::bit_ceil(std::max<size_t>(64, 2 * strings)));
}

bool StringTable::insert(std::string_view key, int32_t value) {
  reserve(count_ + 1);
  const uint32_t hash = hash_of(key);
  Slot& slot = slots_[slot_of(key, hash)];
  if (slot.length != kEmpty) return false;
  slot = {.hash = hash,
          .length = static_cast<uint32_t>(key.size()),
          .begin = bytes_.size(),
          .value = value};
  bytes_ += key;
  ++count_;
  return true;
}

std::optional<int32_t> StringTable::find(std::string_view key) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(key, hash_of(key))];
  if (slot.length == kEmpty) return std::nullopt;
  return slot.value;
}

}  // namespace lagoon::text
