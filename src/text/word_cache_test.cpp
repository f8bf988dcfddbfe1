#include "text/word_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace lagoon::text {
namespace {

using Ids = std::vector<int32_t>;

// A token of each byte.
void encode_bytes(std::string_view word, Ids& ids) {
  ids.insert(ids.end(), word.begin(), word.end());
}

TEST(WordCache, AppendsWhatEncodingAppends) {
  WordCache cache;
  Ids ids;
  Ids expected;
  // More words than slots, each again soon and again later; of all lengths around the limits.
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 6000; ++i) {
      const std::string number = std::to_string(i);
      const std::string word = std::string(static_cast<size_t>(i % 19), 'a') + number.substr(1);
      for (int again = 0; again < 2; ++again) {
        cache.append(word, ids, encode_bytes);
        encode_bytes(word, expected);
      }
    }
  }
  EXPECT_EQ(ids, expected);
}

TEST(WordCache, TellsWordsApartByEachByteAndTheLength) {
  WordCache cache;
  const auto sum = [](std::string_view word, Ids& ids) {
    ids.push_back(std::accumulate(word.begin(), word.end(), 0));
  };
  for (size_t length = 1; length <= 20; ++length) {
    for (size_t at = 0; at < length; ++at) {
      std::string word(length, '\0');
      word[at] = static_cast<char>(at + 1);
      Ids ids;
      for (int again = 0; again < 2; ++again) cache.append(word, ids, sum);
      cache.append(std::string(length, '\0'), ids, sum);
      const auto value = static_cast<int32_t>(at + 1);
      EXPECT_EQ(ids, (Ids{value, value, 0})) << length << " bytes, " << at;
    }
  }
}

TEST(WordCache, EncodesAWordOnce) {
  WordCache cache;
  int calls = 0;
  Ids ids;
  for (int i = 0; i < 3; ++i) {
    cache.append(" word", ids, [&](std::string_view, Ids& out) {
      ++calls;
      out.push_back(7);
    });
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(ids, (Ids{7, 7, 7}));
}

}  // namespace
}  // namespace lagoon::text
