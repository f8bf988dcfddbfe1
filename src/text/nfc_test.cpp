#include "text/nfc.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/unicode.h"

namespace lagoon::text {
namespace {

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(to_nfc(""), "");
  EXPECT_EQ(to_nfc("plain é 中 😀"), "plain é 中 😀");
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("xe\u0301y"), "xéy");
  EXPECT_EQ(to_nfc("\u0301e"), "\u0301e");
  EXPECT_EQ(to_nfc("q\u0301\u0323"), "q\u0323\u0301");  // by class
  EXPECT_EQ(to_nfc("q\u0301\u0300"), "q\u0301\u0300");  // one class: as they stand
  EXPECT_EQ(to_nfc("a\u0301\u0323"), "\u1EA1\u0301");   // below first, then composed
  EXPECT_EQ(to_nfc("\u00E9\u0323"), "\u1EB9\u0301");    // decomposed for it
  EXPECT_EQ(to_nfc("a\u0327\u0301"), "\u00E1\u0327");   // over a mark of another class
  EXPECT_EQ(to_nfc("a\u0300\u0301"), "\u00E0\u0301");   // blocked by one of the same class
  EXPECT_EQ(to_nfc("\u01D5"), "\u01D5");
  EXPECT_EQ(to_nfc("u\u0308\u0304"), "\u01D6");  // twice
}

TEST(Nfc, SingletonsAndExclusions) {
  EXPECT_EQ(to_nfc("\u212B\u2126\u212A"), "\u00C5\u03A9K");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");  // never composed
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(to_nfc("\U0002F800"), "\u4E3D");
  EXPECT_EQ(to_nfc("\uFB1D"), "\u05D9\u05B4");
}

TEST(Nfc, HangulIsComputed) {
  EXPECT_EQ(to_nfc("\u1100\u1161"), "\uAC00");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(to_nfc("\uAC01\u11A8"), "\uAC01\u11A8");
  EXPECT_EQ(to_nfc("\u1112\u1175\u11C2"), "\uD7A3");
  EXPECT_EQ(to_nfc("\u1100\u11A7"), "\u1100\u11A7");
  EXPECT_EQ(to_nfc("\u1161\u1100"), "\u1161\u1100");
}

// The library's data are those of Unicode 9: what composes since is left alone.
TEST(Nfc, NewerCharactersStay) {
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // Unicode 13
  EXPECT_EQ(to_nfc("\U000105D2\u0307"), "\U000105D2\u0307");          // Unicode 16
  EXPECT_EQ(to_nfc("q\u0345\u07FD"), "q\u0345\u07FD");                // Unicode 11, class 220
}

// Normalizing twice changes nothing, and characters called inert stay beside any mark.
TEST(Nfc, IsStableOnAllCodePoints) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, c);
    const std::string alone = to_nfc(text.substr(1));
    if (is_inert_in_nfc(c)) {
      ASSERT_EQ(alone, text.substr(1)) << static_cast<uint32_t>(c);
    }
    const std::string once = to_nfc(text + "\u0323\u0301");
    ASSERT_EQ(to_nfc(once), once) << static_cast<uint32_t>(c);
  }
}

TEST(Nfc, ALongRunOfMarksIsNotQuadratic) {
  std::string text = "a";
  while (text.size() < 2'000'000) text += "\u0301\u0323";
  EXPECT_EQ(to_nfc(text).size(), text.size());
}

}  // namespace
}  // namespace lagoon::text
