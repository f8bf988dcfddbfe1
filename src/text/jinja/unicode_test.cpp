#include "text/jinja/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::text::jinja {
namespace {

using testing::ElementsAre;

TEST(Unicode, CountsCharacters) {
  EXPECT_EQ(count_characters(""), 0U);
  EXPECT_EQ(count_characters("aé日😀"), 4U);
  // Bad bytes count one each: lone continuation, overlong, surrogate, beyond U+10FFFF, cut off.
  EXPECT_EQ(count_characters("\x80"), 1U);
  EXPECT_EQ(count_characters("\xc0\xaf"), 2U);
  EXPECT_EQ(count_characters("\xed\xa0\x80"), 3U);
  EXPECT_EQ(count_characters("\xf4\x90\x80\x80"), 4U);
  EXPECT_EQ(count_characters("\xf0\x9f\x98"), 3U);
  EXPECT_FALSE(is_valid_utf8("a\xff"));
  EXPECT_TRUE(is_valid_utf8("aé日😀"));
}

TEST(Unicode, RoundTripsEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_character(text, c);
    ASSERT_EQ(character_bytes(text), text.size()) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(first_character(text), c);
  }
}

TEST(Unicode, FindsOffsets) {
  EXPECT_EQ(byte_offset("aé日", 2), 3U);
  EXPECT_EQ(byte_offset("aé日", 9), 6U);
  EXPECT_EQ(find_text("abcabc", "bc", 2), 4U);
  EXPECT_EQ(find_text("abc", "", 3), 3U);
  EXPECT_EQ(find_text("abc", "", 4), std::string_view::npos);
  EXPECT_EQ(find_text("", "a"), std::string_view::npos);
}

TEST(Unicode, ChangesCase) {
  EXPECT_EQ(to_upper("straße ŉ ÿ Ā"), "STRASSE ʼN Ÿ Ā");
  EXPECT_EQ(to_lower("ÀĀΑΣ ΑΣΑ İ"), "àāας ασα i̇");
  EXPECT_EQ(to_title("hello wORLD's ǆ"), "Hello World'S ǅ");
  EXPECT_EQ(to_capitalized("éCOLE x"), "École x");
  EXPECT_EQ(to_swapped_case("aBß"), "AbSS");
}

TEST(Unicode, Strips) {
  EXPECT_EQ(strip_right(strip_left("\t\u00a0 a b\u3000\n")), "a b");
  EXPECT_EQ(strip_left("éèa", "èé"), "a");
  EXPECT_EQ(strip_right("aéè", "èé"), "a");
  EXPECT_EQ(strip_left(" \n"), "");
  // A zero-width space is no whitespace.
  EXPECT_EQ(strip_left("\u200ba"), "\u200ba");
}

TEST(Unicode, SplitsLines) {
  EXPECT_THAT(split_lines("a\nb\r\nc\rd\u2028e\n", false), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_THAT(split_lines("a\r\n\nb", true), ElementsAre("a\r\n", "\n", "b"));
  EXPECT_THAT(split_lines("", false), ElementsAre());
}

TEST(Unicode, KnowsProperties) {
  EXPECT_TRUE(is_alphabetic(U'é') && is_alphabetic(U'日') && !is_alphabetic(U'1'));
  EXPECT_TRUE(is_decimal(U'٣') && is_digit(U'²') && !is_decimal(U'²') && is_numeric(U'½'));
  EXPECT_TRUE(is_printable(U' ') && !is_printable(0xA0) && !is_printable(0x200B));
  EXPECT_TRUE(is_cased(U'ǅ') && !is_uppercase(U'ǅ') && !is_lowercase(U'ǅ'));
}

}  // namespace
}  // namespace lagoon::text::jinja
