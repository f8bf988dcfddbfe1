#include "text/byte_level.h"

#include <cstdint>
#include <utility>

#include "base/utf8.h"

namespace lagoon::text {
namespace {

bool is_its_own_character(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr char32_t kFirstShifted = 0x100;
constexpr size_t kShiftedCount = 68;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<unsigned char, kShiftedCount> shifted;  // the byte of U+0100 + i

  Alphabet() {
    size_t count = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      char32_t character = byte;
      if (!is_its_own_character(byte)) {
        character = kFirstShifted + static_cast<char32_t>(count);
        shifted[count++] = static_cast<unsigned char>(byte);
      }
      append_utf8(characters[byte], character);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  return alphabet().characters;
}

std::optional<std::string> byte_level_word(std::string_view content) {
  std::string bytes;
  for (size_t at = 0; at < content.size();) {
    const DecodedChar c = decode_char(content, at);
    at += c.length;
    if (c.code_point < 0x100 && is_its_own_character(c.code_point)) {
      bytes.push_back(static_cast<char>(c.code_point));
    } else if (c.code_point >= kFirstShifted && c.code_point < kFirstShifted + kShiftedCount) {
      bytes.push_back(static_cast<char>(alphabet().shifted[c.code_point - kFirstShifted]));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string byte_level_bytes(std::string_view content) {
  auto word = byte_level_word(content);
  return word ? std::move(*word) : std::string(content);
}

}  // namespace lagoon::text
