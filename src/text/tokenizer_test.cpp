#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.h"

namespace lagoon::text {
namespace {

using nlohmann::json;

const Tokenizer& bundled() {
  static const auto kTokenizer =
      Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json").value();
  return *kTokenizer;
}

json golden(const std::string& name) {
  std::ifstream file(LAGOON_SOURCE_DIR "/tests/golden/" + name);
  return json::parse(file);
}

std::string decode(const std::vector<int32_t>& ids) {
  Detokenizer detokenizer(bundled(), false);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TEST(Tokenizer, GoldenTextsGiveTheGoldenIdsAndBack) {
  int count = 0;
  for (const json& vector : golden("tokenizer.json")) {
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(bundled().encode(text), vector["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(decode(vector["ids"].get<std::vector<int32_t>>()), text);
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(Tokenizer, GoldenCasesGiveTheGoldenIds) {
  int chats = 0;
  for (const json& golden_case : golden("cases.json")) {
    const auto greedy = golden_case["greedy"].get<std::vector<int32_t>>();
    if (golden_case.contains("greedy_text")) {
      EXPECT_EQ(decode(greedy), golden_case["greedy_text"].get<std::string>());
    }
    if (!golden_case.contains("text")) continue;
    const auto text = golden_case["text"].get<std::string>();
    EXPECT_EQ(bundled().encode(text), golden_case["ids"].get<std::vector<int32_t>>()) << text;
    chats += golden_case["kind"] == "chat" ? 1 : 0;
  }
  EXPECT_GE(chats, 10);
}

TEST(Tokenizer, RenderedChatsSurviveARoundTrip) {
  for (const json& chat : golden("chat_render.json")) {
    const auto text = chat["text"].get<std::string>();
    EXPECT_EQ(decode(bundled().encode(text)), text);
  }
}

TEST(Tokenizer, RandomTextsSurviveARoundTrip) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = random() % 40; i > 0; --i) {
      const char32_t c = random() % (random() % 2 == 0 ? 0x80 : 0x20000);
      append_utf8(text, c >= 0xD800 && c < 0xE000 ? U' ' : c);
    }
    ASSERT_EQ(decode(bundled().encode(text)), text);
  }
}

TEST(Tokenizer, InvalidUtf8IsReadAsReplacementCharacters) {
  EXPECT_EQ(bundled().encode("a\xFF\xE2\x82"
                             "b"),
            bundled().encode("a\uFFFD\uFFFDb"));
  EXPECT_EQ(bundled().encode("<think\xC3>"), bundled().encode("<think\uFFFD>"));
}

TEST(Tokenizer, Lookups) {
  EXPECT_EQ(bundled().vocab_size(), 4096);
  EXPECT_EQ(bundled().id_of("<think>"), 6);
  EXPECT_EQ(bundled().id_of("Ġ"), bundled().encode(" ").at(0));
  EXPECT_EQ(bundled().id_of("no such token"), std::nullopt);
  EXPECT_EQ(bundled().token_bytes(2), "〈|EOS|〉");
  EXPECT_EQ(bundled().token_bytes(bundled().id_of("Ġ").value()), " ");
  EXPECT_EQ(bundled().token_bytes(-1), "");
  EXPECT_EQ(bundled().token_bytes(4096), "");
  EXPECT_TRUE(bundled().is_special(2));
  EXPECT_FALSE(bundled().is_special(6));
  EXPECT_FALSE(bundled().is_special(-1));
  EXPECT_FALSE(bundled().is_special(4096));
  EXPECT_TRUE(bundled().prefix().empty());
}

TEST(Tokenizer, EmptyTextHasNoTokens) {
  EXPECT_TRUE(bundled().encode("").empty());
}

TEST(Tokenizer, LongRunsTakeNoTime) {
  for (const std::string_view unit : {"a", " ", "\n", "=", "<", "é", "\r\n", "ab", "<think"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    EXPECT_EQ(decode(bundled().encode(text)), text);
  }
}

// What lets a server refuse a prompt by its length alone.
TEST(Tokenizer, BoundsTheBytesOfAToken) {
  const auto tokenizer =
      Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  const size_t most = (*tokenizer)->most_bytes_of_a_token();
  ASSERT_GT(most, 0U);
  for (int32_t id = 0; id < (*tokenizer)->vocab_size(); ++id) {
    EXPECT_LE((*tokenizer)->token_bytes(id).size(), most);
  }
  for (const char* unit : {" ", "a", "\n", "〈|EOS|〉", "def f(x):\n    "}) {
    std::string text;
    while (text.size() < 5000) text += unit;
    EXPECT_GE((*tokenizer)->encode(text).size() * most, text.size()) << unit;
  }
}

}  // namespace
}  // namespace lagoon::text
