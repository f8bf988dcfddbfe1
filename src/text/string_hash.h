// Hashing of short strings of bytes, a word at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lagoon::text {

inline constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio

template <typename T>
uint64_t load_word(const char* bytes) {
  T word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// At most 8 bytes in one word, differently for different bytes of one length.
inline uint64_t load_short(const char* bytes, size_t count) {
  if (count >= 4) {
    return load_word<uint32_t>(bytes) | load_word<uint32_t>(bytes + count - 4) << 32;
  }
  if (count >= 2) {
    return load_word<uint16_t>(bytes) | load_word<uint16_t>(bytes + count - 2) << 16;
  }
  return count == 0 ? 0 : load_word<uint8_t>(bytes);
}

inline uint64_t mix_hash(uint64_t hash, uint64_t word) {
  const auto product = static_cast<unsigned __int128>(hash ^ word) * kHashMultiplier;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint32_t hash_of(std::string_view key) {
  uint64_t hash = kHashMultiplier ^ key.size();
  if (key.size() <= 8) {
    hash = mix_hash(hash, load_short(key.data(), key.size()));
  } else {
    for (size_t at = 0; at + 8 < key.size(); at += 8) {
      hash = mix_hash(hash, load_word<uint64_t>(key.data() + at));
    }
    hash = mix_hash(hash, load_word<uint64_t>(key.data() + key.size() - 8));
  }
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace lagoon::text
