// UTF-8, read strictly (RFC 3629): what every folder that looks into text uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lagoon {

// U+FFFD in UTF-8: what stands for bytes that are not UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8 {
  kValid,      // a character
  kInvalid,    // bytes that no continuation makes a character
  kTruncated,  // the text ends inside what may still become a character
};

struct DecodedChar {
  char32_t code_point;  // U+FFFD unless kValid
  uint8_t length;       // bytes, at least 1
  Utf8 state;
};

// The character at text[at]; at < text.size(). Where there is none, `length` covers a maximal
// subpart (Unicode 16, section 3.9, table 3-7): the longest start of a character that is there,
// else one byte. Rust's String::from_utf8_lossy puts one U+FFFD for each.
DecodedChar decode_char(std::string_view text, size_t at);

// `text` with one U+FFFD for each maximal subpart that is not UTF-8.
std::string to_valid_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);

// Appends a code point (not a surrogate, at most U+10FFFF).
void append_utf8(std::string& text, char32_t code_point);

// The longest start of `text`, at most `limit` bytes, that does not end inside a character.
std::string_view utf8_prefix(std::string_view text, size_t limit);

}  // namespace lagoon
