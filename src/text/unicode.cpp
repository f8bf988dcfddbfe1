#include "text/unicode.h"

#include "base/check.h"

namespace lagoon::text {
namespace {

#include "text/unicode_tables.inc"

constexpr uint8_t kCategoryBits = 0x1F;
constexpr uint8_t kNotInert = 0x80;

uint8_t properties(char32_t code_point) {
  CHECK(code_point <= 0x10FFFF);
  return kBlocks[kBlockOfCodePoint[code_point >> 7]][code_point & 127];
}

bool is_circled_letter(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace

Category category(char32_t code_point) {
  return static_cast<Category>(properties(code_point) & kCategoryBits);
}

bool is_space(char32_t code_point) {
  const Category kind = category(code_point);
  return (kind >= Category::kSpaceSeparator && kind <= Category::kParagraphSeparator) ||
         (code_point >= 0x9 && code_point <= 0xD) || code_point == 0x85;
}

bool is_word_character(char32_t code_point) {
  const Category kind = category(code_point);
  return (kind >= Category::kUppercaseLetter && kind <= Category::kLetterNumber) ||
         kind == Category::kConnectorPunctuation || code_point == 0x200C || code_point == 0x200D ||
         is_circled_letter(code_point);
}

bool is_inert_in_nfc(char32_t code_point) {
  return (properties(code_point) & kNotInert) == 0;
}

}  // namespace lagoon::text
