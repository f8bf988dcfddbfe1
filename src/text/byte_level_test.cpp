#include "text/byte_level.h"

#include <gtest/gtest.h>

#include <set>

namespace lagoon::text {
namespace {

TEST(ByteLevel, AlphabetIsThatOfGpt2) {
  const auto& alphabet = byte_level_alphabet();
  EXPECT_EQ(alphabet['A'], "A");
  EXPECT_EQ(alphabet[' '], "Ġ");
  EXPECT_EQ(alphabet['\n'], "Ċ");
  EXPECT_EQ(alphabet['\t'], "ĉ");
  EXPECT_EQ(alphabet[0x00], "Ā");
  EXPECT_EQ(alphabet[0x7F], "ġ");
  EXPECT_EQ(alphabet[0xA0], "ł");
  EXPECT_EQ(alphabet[0xAD], "Ń");
  EXPECT_EQ(alphabet[0xE9], "é");
  EXPECT_EQ(std::set<std::string>(alphabet.begin(), alphabet.end()).size(), 256U);
}

TEST(ByteLevel, BytesOfAContentInvertTheAlphabet) {
  std::string content;
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    content += byte_level_alphabet()[static_cast<size_t>(byte)];
    bytes.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(byte_level_bytes(content), bytes);
}

TEST(ByteLevel, ContentOutsideTheAlphabetStandsForItself) {
  EXPECT_EQ(byte_level_bytes("〈|EOS|〉"), "〈|EOS|〉");
  EXPECT_EQ(byte_level_bytes("Ġa b"), "Ġa b");
  EXPECT_EQ(byte_level_bytes("<think>"), "<think>");
  EXPECT_EQ(byte_level_bytes(""), "");
}

}  // namespace
}  // namespace lagoon::text
