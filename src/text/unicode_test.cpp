#include "text/unicode.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace lagoon::text {
namespace {

TEST(Category, KnowsUnicode16) {
  EXPECT_EQ(category(U'a'), Category::kLowercaseLetter);
  EXPECT_EQ(category(U'Z'), Category::kUppercaseLetter);
  EXPECT_EQ(category(U'ǅ'), Category::kTitlecaseLetter);
  EXPECT_EQ(category(U'ʰ'), Category::kModifierLetter);
  EXPECT_EQ(category(U'中'), Category::kOtherLetter);
  EXPECT_EQ(category(U'\u0301'), Category::kNonspacingMark);
  EXPECT_EQ(category(U'½'), Category::kOtherNumber);
  EXPECT_EQ(category(U'Ⅷ'), Category::kLetterNumber);
  EXPECT_EQ(category(U'_'), Category::kConnectorPunctuation);
  EXPECT_EQ(category(U'€'), Category::kCurrencySymbol);
  EXPECT_EQ(category(U'😀'), Category::kOtherSymbol);
  EXPECT_EQ(category(U'\u200B'), Category::kFormat);
  EXPECT_EQ(category(0x1E5D0), Category::kOtherLetter);    // Ol Onal, new in Unicode 16
  EXPECT_EQ(category(0x10D40), Category::kDecimalNumber);  // Garay, new in Unicode 16
  EXPECT_EQ(category(0xD800), Category::kSurrogate);
  EXPECT_EQ(category(0xE000), Category::kPrivateUse);
  EXPECT_EQ(category(0x10FFFF), Category::kUnassigned);
}

// The counts of the standard's DerivedGeneralCategory.txt 16.0, and all white space.
TEST(Category, CountsOfAllCodePoints) {
  std::map<Category, int> counts;
  std::vector<char32_t> spaces;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    ++counts[category(c)];
    if (is_space(c)) spaces.push_back(c);
  }
  EXPECT_EQ(counts[Category::kUppercaseLetter] + counts[Category::kLowercaseLetter] +
                counts[Category::kTitlecaseLetter] + counts[Category::kModifierLetter] +
                counts[Category::kOtherLetter],
            141028);
  EXPECT_EQ(counts[Category::kDecimalNumber] + counts[Category::kLetterNumber] +
                counts[Category::kOtherNumber],
            1911);
  EXPECT_EQ(counts[Category::kTitlecaseLetter], 31);
  EXPECT_EQ(counts[Category::kControl], 65);
  EXPECT_EQ(counts[Category::kSurrogate], 2048);
  EXPECT_EQ(counts[Category::kPrivateUse], 137468);
  const std::vector<char32_t> white_space = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                             0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                             0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                             0x2029, 0x202F, 0x205F, 0x3000};
  EXPECT_EQ(spaces, white_space);
}

TEST(WordCharacter, AreThoseOfRust) {
  for (const char32_t c : {U'a', U'Z', U'0', U'_', U'é', U'中', U'\u0301', U'Ⅷ', U'ⓐ', U'\u200D'}) {
    EXPECT_TRUE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U' ', U'-', U'½', U'€', U'😀', U'\u200B', U'\''}) {
    EXPECT_FALSE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
}

TEST(ValidText, ReadsForwardAndBackward) {
  const std::string text = "aé中😀";
  size_t at = 0;
  std::vector<char32_t> read;
  std::vector<size_t> begins;
  while (at < text.size()) {
    const ValidChar c = valid_char(text, at);
    read.push_back(c.code_point);
    begins.push_back(at);
    at += c.length;
  }
  EXPECT_EQ(read, (std::vector<char32_t>{U'a', U'é', U'中', U'😀'}));
  for (size_t i = begins.size(); i-- > 0;) {
    at = previous_char(text, at);
    EXPECT_EQ(at, begins[i]);
  }
}

}  // namespace
}  // namespace lagoon::text
