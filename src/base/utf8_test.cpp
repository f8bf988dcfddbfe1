#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace lagoon {
namespace {

using namespace std::string_literals;

TEST(DecodeChar, ReadsTheFirstAndLastCharacterOfEachLength) {
  for (const char32_t c :
       {0x0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}) {
    std::string text = "x";
    append_utf8(text, c);
    const DecodedChar decoded = decode_char(text, 1);
    EXPECT_EQ(decoded.state, Utf8::kValid);
    EXPECT_EQ(decoded.code_point, c);
    EXPECT_EQ(decoded.length, text.size() - 1);
  }
}

TEST(DecodeChar, TellsTruncatedFromInvalid) {
  const struct {
    std::string bytes;
    Utf8 state;
    int length;
  } cases[] = {
      {"\xC3", Utf8::kTruncated, 1},
      {"\xE2\x82", Utf8::kTruncated, 2},
      {"\xF0\x9F\x98", Utf8::kTruncated, 3},
      {"\xC3x", Utf8::kInvalid, 1},
      {"\xE2\x82x", Utf8::kInvalid, 2},
      {"\xF0\x9F\x98\xC3", Utf8::kInvalid, 3},
      {"\x80", Utf8::kInvalid, 1},
      {"\xC0\x80", Utf8::kInvalid, 1},  // overlong
      {"\xC1", Utf8::kInvalid, 1},
      {"\xE0\x9F\xBF", Utf8::kInvalid, 1},  // overlong
      {"\xED\xA0\x80", Utf8::kInvalid, 1},
      {"\xF0\x8F\xBF\xBF", Utf8::kInvalid, 1},
      {"\xF4\x90\x80\x80", Utf8::kInvalid, 1},
      {"\xF5", Utf8::kInvalid, 1},
      {"\xFF", Utf8::kInvalid, 1},
  };
  for (const auto& c : cases) {
    const DecodedChar decoded = decode_char(c.bytes, 0);
    EXPECT_EQ(decoded.state, c.state) << testing::PrintToString(c.bytes);
    EXPECT_EQ(decoded.length, c.length) << testing::PrintToString(c.bytes);
    EXPECT_EQ(decoded.code_point, 0xFFFDU);
  }
}

// The examples of the Unicode standard 16.0, section 3.9, tables 3-8 to 3-11.
TEST(ToValidUtf8, PutsOneReplacementForEachMaximalSubpart) {
  const std::string r(kReplacement);
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(to_valid_utf8("a\xF1\x80\x80\xE1\x80\xC2"), "a" + r + r + r);
  EXPECT_EQ(to_valid_utf8("a\0é😀"s), "a\0é😀"s);
  EXPECT_TRUE(is_valid_utf8("a\0é😀"s));
  EXPECT_FALSE(is_valid_utf8("a\xC3"));
  EXPECT_FALSE(is_valid_utf8("\xE0\x9F\xBF"));
}

TEST(Utf8Prefix, CutsBetweenCharacters) {
  EXPECT_EQ(utf8_prefix("aé😀", 99), "aé😀");
  EXPECT_EQ(utf8_prefix("aé😀", 7), "aé😀");
  EXPECT_EQ(utf8_prefix("aé😀", 6), "aé");
  EXPECT_EQ(utf8_prefix("aé😀", 3), "aé");
  EXPECT_EQ(utf8_prefix("aé😀", 2), "a");
  EXPECT_EQ(utf8_prefix("é", 1), "");
}

}  // namespace
}  // namespace lagoon
