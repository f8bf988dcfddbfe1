#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace lagoon::text {
namespace {

std::array<int32_t, 256> bytes_as_ids() {
  std::array<int32_t, 256> ids{};
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

using Merge = BpeModel::Merge;

// A byte-level model whose tokens from 256 on are what the merges make.
Bpe make(const std::vector<Merge>& merges, bool ignore_merges = false) {
  BpeModel model{.byte_ids = bytes_as_ids(), .merges = merges, .ignore_merges = ignore_merges};
  std::vector<std::string> words(1024);
  for (int i = 0; i < 256; ++i) words[static_cast<size_t>(i)] = static_cast<char>(i);
  // A merge's parts may come later in the list.
  for (size_t round = 0; round <= merges.size(); ++round) {
    for (const Merge& m : merges) {
      const std::string& left = words[static_cast<size_t>(m.left)];
      const std::string& right = words[static_cast<size_t>(m.right)];
      if (left.empty() || right.empty()) continue;
      words[static_cast<size_t>(m.result)] = left + right;
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].empty()) model.words.emplace_back(words[i], static_cast<int32_t>(i));
  }
  return Bpe(model);
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.encode(word, ids);
  return ids;
}

TEST(Bpe, LowestRankFirstAndLeftmostOfEquals) {
  const Bpe bpe = make({{'b', 'c', 256}, {'a', 'b', 257}, {'a', 'a', 258}, {258, 258, 259}});
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int32_t>{'a', 256}));
  EXPECT_EQ(encode(bpe, "ab"), (std::vector<int32_t>{257}));
  EXPECT_EQ(encode(bpe, "aaa"), (std::vector<int32_t>{258, 'a'}));
  EXPECT_EQ(encode(bpe, "aaaaaa"), (std::vector<int32_t>{259, 258}));
  EXPECT_EQ(encode(bpe, "x"), (std::vector<int32_t>{'x'}));
  EXPECT_TRUE(encode(bpe, "").empty());
}

TEST(Bpe, OfEqualPairsTheLastCounts) {
  const Bpe bpe = make({{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 256}});
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int32_t>{'a', 257}));
}

// The definition, word by word.
std::vector<int32_t> encode_plainly(const std::vector<Merge>& merges, std::string_view word) {
  std::vector<int32_t> ids(word.begin(), word.end());
  for (;;) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Words of up to 32 bytes and longer ones take different ways.
TEST(Bpe, EqualsTheDefinitionOnRandomMergesAndWordsOfAllLengths) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    // Random merges of tokens there are; a token is one string, so a pair of strings counts once.
    std::vector<std::string> contents = {"a", "b", "c"};
    std::vector<int32_t> ids = {'a', 'b', 'c'};
    std::vector<Merge> merges;
    while (merges.size() < 40) {
      const size_t left = random() % contents.size();
      const size_t right = random() % contents.size();
      const std::string joined = contents[left] + contents[right];
      auto known = std::find(contents.begin(), contents.end(), joined);
      if (known == contents.end()) {
        ids.push_back(256 + static_cast<int32_t>(contents.size()));
        contents.push_back(joined);
        known = contents.end() - 1;
      }
      const Merge merge{ids[left], ids[right], ids[static_cast<size_t>(known - contents.begin())]};
      const bool listed = std::any_of(merges.begin(), merges.end(), [&](const Merge& m) {
        return m.left == merge.left && m.right == merge.right;
      });
      if (!listed) merges.push_back(merge);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Bpe bpe = make(merges);
    for (size_t length = 0; length < 80; ++length) {
      std::string word(length, 'a');
      for (char& c : word) c = static_cast<char>('a' + random() % 3);
      ASSERT_EQ(encode(bpe, word), encode_plainly(merges, word)) << word;
    }
  }
}

TEST(Bpe, ALongWordIsNotQuadratic) {
  const Bpe bpe = make({{'a', 'b', 256}, {256, 256, 257}, {257, 'a', 258}});
  std::string word;
  while (word.size() < 2'000'000) word += "ab";
  EXPECT_EQ(encode(bpe, word).size(), word.size() / 4);  // hours if it were
}

TEST(Bpe, AWordThatIsATokenMayIgnoreTheMerges) {
  // "abc" is a token, but merging "bc" first keeps it from being made.
  const std::vector<Merge> merges = {{'b', 'c', 256}, {'a', 'b', 257}, {257, 'c', 258}};
  EXPECT_EQ(encode(make(merges), "abc"), (std::vector<int32_t>{'a', 256}));
  EXPECT_EQ(encode(make(merges, true), "abc"), (std::vector<int32_t>{258}));
  EXPECT_EQ(encode(make(merges, true), "abcabc"), (std::vector<int32_t>{'a', 256, 'a', 256}));
  const std::string long_word = std::string(70, 'x') + "abc" + std::string(70, 'x');
  EXPECT_EQ(encode(make(merges, true), long_word), encode(make(merges), long_word));
}

BpeModel characters() {
  BpeModel model{.byte_level = false,
                 .words = {{"<unk>", 0},
                           {"a", 1},
                           {"b", 2},
                           {"é", 3},
                           {"ab", 4},
                           {"<0xE4>", 5},
                           {"<0xB8>", 6},
                           {"<0xAD>", 7},
                           {"<unk>a", 8}},
                 .merges = {{1, 2, 4}, {0, 1, 8}},
                 .unknown = 0};
  model.byte_ids.fill(BpeModel::kNone);
  model.byte_ids[0xE4] = 5;
  model.byte_ids[0xB8] = 6;
  model.byte_ids[0xAD] = 7;
  return model;
}

TEST(Bpe, CharactersThatAreUnknown) {
  BpeModel model = characters();
  EXPECT_EQ(encode(Bpe(model), "abéb"), (std::vector<int32_t>{4, 3, 2}));
  EXPECT_EQ(encode(Bpe(model), "xxa中"), (std::vector<int32_t>{0, 8, 0}));
  model.fuse_unknown = true;
  EXPECT_EQ(encode(Bpe(model), "xxa中z"), (std::vector<int32_t>{8, 0}));
  model.byte_fallback = true;
  EXPECT_EQ(encode(Bpe(model), "中"), (std::vector<int32_t>{5, 6, 7}));
  // The library writes an unknown token only when the next known character comes.
  EXPECT_EQ(encode(Bpe(model), "x中b"), (std::vector<int32_t>{5, 6, 7, 0, 2}));
  model.unknown = BpeModel::kNone;
  EXPECT_EQ(encode(Bpe(model), "xb"), (std::vector<int32_t>{2}));
}

}  // namespace
}  // namespace lagoon::text
