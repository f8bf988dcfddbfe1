// tests/cases/tokenizer: small tokenizers of every kind with what the Rust library makes of texts
// and of lists of ids (scripts/compare_tokenizers.sh --make-cases writes them).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace lagoon::text {
namespace {

using nlohmann::json;

constexpr const char* kFolder = LAGOON_SOURCE_DIR "/tests/cases/tokenizer";

struct Kind {
  std::string name;
  json cases;
  std::unique_ptr<Tokenizer> tokenizer;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = [] {
    std::vector<Kind> all;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
      std::ifstream file(entry.path());
      Kind kind{.name = entry.path().stem(), .cases = json::parse(file), .tokenizer = nullptr};
      auto tokenizer = Tokenizer::parse(kind.cases["tokenizer"].dump(), kind.name);
      EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
      if (!tokenizer.ok()) continue;
      kind.tokenizer = std::move(*tokenizer);
      all.push_back(std::move(kind));
    }
    return all;
  }();
  return kKinds;
}

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + detokenizer.finish();
}

TEST(TokenizerCases, EncodeAsTheRustLibrary) {
  size_t count = 0;
  for (const Kind& kind : kinds()) {
    for (const json& one : kind.cases["encoded"]) {
      const auto text = one["text"].get<std::string>();
      EXPECT_EQ(kind.tokenizer->encode(text), one["ids"].get<std::vector<int32_t>>())
          << kind.name << ": " << one["text"];
      ++count;
    }
  }
  EXPECT_GE(count, 1000U);
}

TEST(TokenizerCases, DecodeAsTheRustLibrary) {
  size_t count = 0;
  for (const Kind& kind : kinds()) {
    for (const json& one : kind.cases["decoded"]) {
      const auto ids = one["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(decode(*kind.tokenizer, ids, one["skip"].get<bool>()),
                one["text"].get<std::string>())
          << kind.name << ": " << one["ids"];
      ++count;
    }
  }
  EXPECT_GE(count, 750U);
}

// What has been given out after any token is a start of what the whole decodes to: it never has to
// be taken back, and never ends in half a character.
TEST(TokenizerCases, PiecesAreTheWholeAtEverySplit) {
  std::mt19937 random(1);
  for (const Kind& kind : kinds()) {
    for (int round = 0; round < 200; ++round) {
      const bool skip_special = random() % 2 == 0;
      std::vector<int32_t> ids(random() % 20);
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(random() %
                                  static_cast<uint32_t>(kind.tokenizer->vocab_size() + 1));
      }
      Detokenizer detokenizer(*kind.tokenizer, skip_special);
      std::string text;
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::string piece = detokenizer.push(ids[i]);
        ASSERT_TRUE(is_valid_utf8(piece)) << kind.name;
        text += piece;
        const std::vector<int32_t> start(ids.begin(),
                                         ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        Detokenizer copy = detokenizer;
        ASSERT_EQ(text + copy.finish(), decode(*kind.tokenizer, start, skip_special)) << kind.name;
      }
    }
  }
}

}  // namespace
}  // namespace lagoon::text
