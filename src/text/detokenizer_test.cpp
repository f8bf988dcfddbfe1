#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace lagoon::text {
namespace {

const Tokenizer& bundled() {
  static const auto kTokenizer =
      Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json").value();
  return *kTokenizer;
}

// The tokens of single bytes.
std::vector<int32_t> byte_tokens(std::string_view bytes) {
  std::vector<int32_t> ids(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (bundled().token_bytes(ids[i]) != bytes.substr(i, 1)) ++ids[i];
  }
  return ids;
}

std::vector<std::string> pieces(Detokenizer& detokenizer, const std::vector<int32_t>& ids) {
  std::vector<std::string> all;
  all.reserve(ids.size() + 1);
  for (const int32_t id : ids) all.push_back(detokenizer.push(id));
  all.push_back(detokenizer.finish());
  return all;
}

TEST(Detokenizer, HoldsBackAnUnfinishedCharacter) {
  const std::string r(kReplacement);
  Detokenizer detokenizer(bundled());
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(detokenizer, byte_tokens("a😀")), (Pieces{"a", "", "", "", "😀", ""}));
  EXPECT_EQ(pieces(detokenizer, byte_tokens("\xE2\x82")), (Pieces{"", "", r}));
  EXPECT_EQ(pieces(detokenizer, byte_tokens("\xE2\x82"
                                            "a")),
            (Pieces{"", "", r + "a", ""}));
  EXPECT_EQ(pieces(detokenizer, byte_tokens("\x80\xE2\xC3\xA9")), (Pieces{r, "", r, "é", ""}));
}

TEST(Detokenizer, SkipsSpecialTokensEvenInsideACharacter) {
  const int32_t eos = bundled().id_of("〈|EOS|〉").value();
  const int32_t think = bundled().id_of("<think>").value();  // added, not special
  std::vector<int32_t> ids = byte_tokens("é");
  ids.insert(ids.begin() + 1, eos);
  ids.push_back(think);
  ids.push_back(eos);
  Detokenizer skipping(bundled());
  std::string text;
  for (const std::string& piece : pieces(skipping, ids)) text += piece;
  EXPECT_EQ(text, "é<think>");

  Detokenizer whole(bundled(), false);
  text.clear();
  for (const std::string& piece : pieces(whole, ids)) text += piece;
  EXPECT_EQ(text, std::string(kReplacement) + "〈|EOS|〉" + std::string(kReplacement) +
                      "<think>〈|EOS|〉");
}

TEST(Detokenizer, IdsOutsideTheVocabularyYieldNothing) {
  Detokenizer detokenizer(bundled());
  EXPECT_EQ(detokenizer.push(-1), "");
  EXPECT_EQ(detokenizer.push(bundled().vocab_size()), "");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, PiecesJoinedAreTheLossyDecodeOfTheWhole) {
  std::mt19937 random(1);
  const std::vector<int32_t> few =
      byte_tokens("a\x80\x82\x98\x9F\xA0\xBF\xC3\xE0\xE2\xED\xF0\xF4\xFF");
  for (int round = 0; round < 20000; ++round) {
    const bool skip_special = random() % 2 == 0;
    Detokenizer detokenizer(bundled(), skip_special);
    std::string bytes;
    std::string text;
    for (size_t i = random() % 24; i > 0; --i) {
      const auto any =
          static_cast<int32_t>(random() % static_cast<uint32_t>(bundled().vocab_size()));
      const int32_t id = random() % 4 == 0 ? any : few[random() % few.size()];
      if (!skip_special || !bundled().is_special(id)) bytes += bundled().token_bytes(id);
      const std::string piece = detokenizer.push(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, to_valid_utf8(bytes));
  }
}

}  // namespace
}  // namespace lagoon::text
