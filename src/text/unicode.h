// What Unicode 16 says of characters, as far as the patterns of tokenizers ask, and reading of text
// that is known to be valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lagoon::text {

// General categories; the order is that of tools/unicode_tables.mjs.
enum class Category : uint8_t {
  kUnassigned,  // Cn
  kUppercaseLetter,
  kLowercaseLetter,
  kTitlecaseLetter,
  kModifierLetter,
  kOtherLetter,
  kNonspacingMark,
  kSpacingMark,
  kEnclosingMark,
  kDecimalNumber,
  kLetterNumber,
  kOtherNumber,
  kConnectorPunctuation,
  kDashPunctuation,
  kOpenPunctuation,
  kClosePunctuation,
  kInitialPunctuation,
  kFinalPunctuation,
  kOtherPunctuation,
  kMathSymbol,
  kCurrencySymbol,
  kModifierSymbol,
  kOtherSymbol,
  kSpaceSeparator,
  kLineSeparator,
  kParagraphSeparator,
  kControl,
  kFormat,
  kSurrogate,
  kPrivateUse,
};
inline constexpr int kCategoryCount = 30;

// The code point is at most U+10FFFF in all of these.
Category category(char32_t code_point);
// \s: White_Space.
bool is_space(char32_t code_point);
// \w as Rust's regular expressions have it: letters, marks, decimal and letter numbers, connectors,
// circled letters and the two joiners.
bool is_word_character(char32_t code_point);
// Whether normalization to NFC keeps the character whatever stands beside it.
bool is_inert_in_nfc(char32_t code_point);

// The character at text[at]; there is one, and it is valid.
struct ValidChar {
  char32_t code_point;
  uint8_t length;  // bytes
};
inline ValidChar valid_char(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(text[at + i] & 0xFF); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// Where the character before text[at] begins; at > 0, and a character ends there.
inline size_t previous_char(std::string_view text, size_t at) {
  --at;
  while ((text[at] & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace lagoon::text
