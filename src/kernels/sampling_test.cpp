#include "kernels/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace lagoon::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// How often each token is drawn at positions 0 .. draws - 1.
std::vector<int> count(const std::vector<float>& logits, const Sampling& sampling, int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int position = 0; position < draws; ++position) {
    ++counts.at(sample(logits, sampling, position));
  }
  return counts;
}

// Pearson's statistic of counts against the weights of the tokens (0: must not be drawn).
double chi_square(const std::vector<int>& counts, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (weights[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    const double expected = draws * weights[i] / sum;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

std::vector<double> exponentials(const std::vector<float>& logits, double temperature) {
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) weights.push_back(std::exp(logit / temperature));
  return weights;
}

// Known answers of the paper's authors for 10 rounds of Philox4x32: counter and key all zero, all
// ones, and the digits of pi.
TEST(Philox, GivesTheKnownAnswers) {
  using testing::ElementsAre;
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  const uint32_t ones = 0xffffffff;
  EXPECT_THAT(philox4x32({ones, ones, ones, ones}, {ones, ones}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Uniform, IsInRangeAndDependsOnBothHalvesOfTheSeedAndOnThePosition) {
  double sum = 0;
  for (int32_t position = 0; position < 10000; ++position) {
    const double u = uniform(42, position);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);  // 7 standard deviations
  EXPECT_EQ(uniform(42, 7), uniform(42, 7));
  EXPECT_NE(uniform(42, 7), uniform(42, 8));
  EXPECT_NE(uniform(42, 7), uniform(43, 7));
  EXPECT_NE(uniform(42, 7), uniform(42 + (uint64_t{1} << 32), 7));
}

TEST(Sample, TemperatureZeroTakesTheFirstLargest) {
  EXPECT_EQ(sample(std::vector<float>{1, 3, 2, 3}, {}, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-5}, {}, 0), 0);
  EXPECT_EQ(sample(std::vector<float>{-2, -1, -3}, {}, 0), 1);
}

TEST(Sample, NaNCountsAsMinusInfinity) {
  EXPECT_EQ(sample(std::vector<float>{kNaN, -10, kNaN, 5, kNaN}, {}, 0), 3);
  EXPECT_EQ(sample(std::vector<float>{kNaN, kNaN}, {}, 0), 0);
  const std::vector<int> counts =
      count({kNaN, 1, kNaN, 1}, {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 1}, 2000);
  EXPECT_LT(chi_square(counts, {0, 1, 0, 1}), 20);
}

TEST(Sample, FollowsTheSoftmaxAtATemperature) {
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.5f, -3, 1, 0.25f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    for (const uint64_t seed : {0ull, 7ull, 0xfedcba9876543210ull}) {
      const std::vector<int> counts =
          count(logits, {.temperature = temperature, .top_k = 0, .top_p = 1, .seed = seed}, 40000);
      // 7 degrees of freedom: 1 in 10^5 exceeds 36.
      EXPECT_LT(chi_square(counts, exponentials(logits, temperature)), 36) << temperature;
    }
  }
}

TEST(Sample, TopKKeepsTheLargestAndTheLowerIdOfEquals) {
  const std::vector<float> logits = {1, 2, 3, 1, 0, 1};
  std::vector<double> weights = exponentials(logits, 1);
  weights[3] = weights[4] = weights[5] = 0;  // the third place is shared by 0, 3 and 5
  EXPECT_LT(chi_square(count(logits, {.temperature = 1, .top_k = 3, .top_p = 1, .seed = 5}, 40000),
                       weights),
            28);
}

TEST(Sample, TopKOneIsArgmaxAndTopKBeyondTheVocabularyCutsNothing) {
  const std::vector<float> logits = {0, 0.5f, 0.25f, 0.5f};
  for (int position = 0; position < 200; ++position) {
    EXPECT_EQ(sample(logits, {.temperature = 3, .top_k = 1, .top_p = 1, .seed = 5}, position), 1);
    const int32_t all =
        sample(logits, {.temperature = 3, .top_k = 0, .top_p = 1, .seed = 5}, position);
    for (const int k : {4, 5, 1000000}) {
      EXPECT_EQ(sample(logits, {.temperature = 3, .top_k = k, .top_p = 1, .seed = 5}, position),
                all);
    }
  }
}

TEST(Sample, TopPKeepsTheShortestPrefixThatReachesIt) {
  // Weights 8, 4, 2, 1, 1 of 16.
  const auto log2 = std::log(2.0f);
  const std::vector<float> logits = {0, 3 * log2, log2, 2 * log2, 0};
  const std::vector<double> all = {1, 8, 2, 4, 1};
  const auto kept = [&](float top_p) {
    std::vector<int> counts =
        count(logits, {.temperature = 1, .top_k = 0, .top_p = top_p, .seed = 3}, 4000);
    std::vector<int> ids;
    std::vector<double> weights(5, 0);
    for (int i = 0; i < 5; ++i) {
      if (counts[i] > 0) ids.push_back(i), weights[i] = all[i];
    }
    EXPECT_LT(chi_square(counts, weights), 33);
    return ids;
  };
  using testing::ElementsAre;
  EXPECT_THAT(kept(0.0f), ElementsAre(1));
  EXPECT_THAT(kept(1e-30f), ElementsAre(1));
  EXPECT_THAT(kept(0.49f), ElementsAre(1));
  EXPECT_THAT(kept(0.51f), ElementsAre(1, 3));
  EXPECT_THAT(kept(0.76f), ElementsAre(1, 2, 3));
  EXPECT_THAT(kept(0.88f), ElementsAre(0, 1, 2, 3));  // of equals the lower id
  EXPECT_THAT(kept(0.95f), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(kept(1.0f), ElementsAre(0, 1, 2, 3, 4));
}

TEST(Sample, TopPRefersToWhatTopKKept) {
  // Weights 4, 3, 3 of 10; among the first two 4 is more than half.
  const std::vector<float> logits = {std::log(4.0f), std::log(3.0f), std::log(3.0f)};
  const std::vector<int> counts =
      count(logits, {.temperature = 1, .top_k = 2, .top_p = 0.55f, .seed = 3}, 1000);
  EXPECT_EQ(counts[0], 1000);
}

TEST(Sample, ExtremeTemperaturesAreDefined) {
  const std::vector<float> logits = {-1000, 3, 2.999f, 1000, -kInfinity, 999.999f};
  for (int position = 0; position < 500; ++position) {
    for (const float tiny : {1e-38f, 1e-45f, 1e-6f}) {
      for (const float top_p : {1.0f, 0.9f}) {
        EXPECT_EQ(
            sample(logits, {.temperature = tiny, .top_k = 0, .top_p = top_p, .seed = 1}, position),
            3);
      }
    }
  }
  for (const float huge : {1e30f, std::numeric_limits<float>::max(), kInfinity}) {
    const std::vector<int> counts =
        count(logits, {.temperature = huge, .top_k = 0, .top_p = 1, .seed = 1}, 6000);
    // -infinity / infinity is a NaN that must not be drawn or poison the sum.
    EXPECT_LT(chi_square(counts, {1, 1, 1, 1, 0, 1}), 40) << huge;
  }
}

TEST(Sample, InfiniteLogitsAreDefined) {
  const Sampling sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 9};
  EXPECT_LT(chi_square(count({0, kInfinity, 5, kInfinity}, sampling, 2000), {0, 1, 0, 1}), 20);
  EXPECT_LT(chi_square(count({-kInfinity, 2, -kInfinity}, sampling, 100), {0, 1, 0}), 20);
  EXPECT_LT(chi_square(count({-kInfinity, -kInfinity}, sampling, 2000), {1, 1}), 20);
}

TEST(Sample, TheSameKeyDrawsTheSameToken) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(uniform(99, static_cast<int32_t>(i))) * 4;
  }
  for (const Sampling& sampling : {Sampling{1, 0, 1, 11}, Sampling{1, 50, 1, 11},
                                   Sampling{1, 0, 0.9f, 11}, Sampling{0.7f, 20, 0.8f, 11}}) {
    int different = 0;
    for (int position = 0; position < 100; ++position) {
      const int32_t token = sample(logits, sampling, position);
      EXPECT_EQ(sample(logits, sampling, position), token);
      Sampling other = sampling;
      other.seed = 12;
      different += sample(logits, other, position) != token;
    }
    EXPECT_GT(different, 50);
  }
}

TEST(Sample, MinPCutsWhatIsBelowItsShareOfTheLargest) {
  const std::vector<float> logits = {std::log(1.0f), std::log(4.0f), std::log(10.0f),
                                     std::log(2.1f)};
  EXPECT_LT(chi_square(count(logits, {.temperature = 1, .seed = 4, .min_p = 0.2f}, 20000),
                       {0, 4, 10, 2.1}),
            20);
  EXPECT_EQ(count(logits, {.temperature = 1, .seed = 4, .min_p = 1}, 500)[2], 500);
  // With the temperature: at 2 the weights are the roots.
  EXPECT_LT(chi_square(count(logits, {.temperature = 2, .seed = 4, .min_p = 0.35f}, 20000),
                       {0, 2, std::sqrt(10.0), std::sqrt(2.1)}),
            20);
  // Before top_k, and before the sum that top_p is a share of: 0.72 of 14 needs two.
  EXPECT_LT(
      chi_square(count(logits, {.temperature = 1, .top_k = 3, .seed = 5, .min_p = 0.3f}, 20000),
                 {0, 4, 10, 0}),
      20);
  EXPECT_EQ(count(logits, {.temperature = 1, .top_p = 0.71f, .seed = 5, .min_p = 0.3f}, 500)[2],
            500);
  EXPECT_LT(
      chi_square(count(logits, {.temperature = 1, .top_p = 0.72f, .seed = 5, .min_p = 0.3f}, 20000),
                 {0, 4, 10, 0}),
      20);
}

// ---- sample_row()

// Of 40 tokens, distinct.
std::vector<float> some_logits() {
  std::vector<float> logits(40);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(static_cast<double>(i * 17 % 40) / 4.0 - 5.0);
  }
  return logits;
}

LogitRules rules_with(std::span<const LogitBias> bias, std::span<const int32_t> banned = {},
                      int32_t banned_before = 0) {
  LogitRules rules;
  rules.bias = bias;
  rules.banned = banned;
  rules.banned_before = banned_before;
  return rules;
}

SampleRow asking(int32_t row, const LogitRules& rules) {
  SampleRow asked;
  asked.row = row;
  asked.rules = &rules;
  return asked;
}

// What greedy draws one after another when each is forbidden in turn: the order of the logits.
std::vector<int32_t> order_under(const LogitRules& rules, std::span<const Row> rows, int32_t row) {
  const std::vector<float> logits = some_logits();
  std::vector<uint32_t> allowed = {0xffffffff, 0xff};
  std::vector<int32_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    SampleRow asked = asking(row, rules);
    asked.allowed = allowed;
    order.push_back(sample_row(logits, asked, rows, {}));
    allowed[static_cast<size_t>(order.back()) / 32] &= ~(1U << (order.back() % 32));
  }
  return order;
}

// The order of changed logits.
std::vector<int32_t> order_of(const std::vector<float>& logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

// Rows of two sequences; of sequence 1 positions 10 to 13.
const std::vector<Row> kRows = {{5, 3, 0},  {6, 4, 0},  {7, 10, 1},
                                {9, 11, 1}, {7, 12, 1}, {8, 13, 1}};

TEST(SampleRow, NothingAskedIsSample) {
  const std::vector<float> logits = some_logits();
  for (const Sampling& sampling : {Sampling{}, Sampling{0.8F, 10, 0.9F, 3}}) {
    EXPECT_EQ(sample_row(logits, {.row = 3, .sampling = sampling}, kRows, {}),
              sample(logits, sampling, 12));
  }
}

TEST(SampleRow, BiasIsAdded) {
  const std::vector<LogitBias> bias = {{2, 100}, {20, -100}, {31, 0.3F}};
  std::vector<float> expected = some_logits();
  for (const LogitBias& b : bias) expected[static_cast<size_t>(b.token)] += b.bias;
  EXPECT_EQ(order_under(rules_with(bias), kRows, 0), order_of(expected));
}

TEST(SampleRow, BannedUpToAPosition) {
  const std::vector<int32_t> order = order_of(some_logits());
  const std::vector<int32_t> banned = {order[0], order[2]};
  const std::vector<float> logits = some_logits();
  for (int32_t row = 2; row < 6; ++row) {  // the drawn tokens are at 11 to 14
    const LogitRules rules = rules_with({}, banned, 13);
    EXPECT_EQ(sample_row(logits, asking(row, rules), kRows, {}), row < 4 ? order[1] : order[0]);
  }
  // A bias does not bring it back.
  const std::vector<LogitBias> bias = {{order[0], 100}};
  const LogitRules rules = rules_with(bias, banned, 13);
  EXPECT_EQ(sample_row(logits, asking(2, rules), kRows, {}), order[1]);
}

TEST(SampleRow, PenaltiesCountPromptAnswerAndTheRowsBefore) {
  // In the prompt: 1, 2, 3, 9; in the answer below position 10: 2 twice, 4, 7 three times.
  const std::vector<SeenToken> seen = {{1, 0}, {2, 2}, {3, 0}, {4, 1}, {7, 3}, {9, 0}};
  LogitRules rules;
  rules.seen = seen;
  rules.seen_end = 10;
  for (const float repetition : {1.0F, 1.7F, 0.6F}) {
    for (const float presence : {0.0F, 0.9F, -1.3F}) {
      for (const float frequency : {0.0F, 0.45F}) {
        rules.repetition = repetition;
        rules.presence = presence;
        rules.frequency = frequency;
        for (int32_t row = 2; row < 6; ++row) {
          std::map<int32_t, int> outputs = {{2, 2}, {4, 1}, {7, 3}};
          for (int32_t r = 2; r <= row; ++r) ++outputs[kRows[static_cast<size_t>(r)].token];
          std::vector<float> expected = some_logits();
          for (int32_t token = 0; token < 40; ++token) {
            float& logit = expected[static_cast<size_t>(token)];
            const bool held = outputs.contains(token) || token == 1 || token == 3 || token == 9;
            if (held) logit = logit > 0 ? logit / repetition : logit * repetition;
            if (!outputs.contains(token)) continue;
            logit = static_cast<float>(double{logit} - double{frequency} * outputs[token] -
                                       double{presence});
          }
          EXPECT_EQ(order_under(rules, kRows, row), order_of(expected))
              << repetition << " " << presence << " " << frequency << " row " << row;
        }
      }
    }
  }
}

TEST(SampleRow, OnlyAllowedTokensAreDrawn) {
  const std::vector<float> logits(40, 0.5F);
  const std::vector<uint32_t> allowed = {0x80000001, 0x80};  // 0, 31, 39
  std::map<int32_t, int> counts;
  for (int32_t position = 0; position < 3000; ++position) {
    const std::vector<Row> rows = {{0, position, 0}};
    ++counts[sample_row(logits, {.sampling = {.temperature = 1, .seed = 1}, .allowed = allowed},
                        rows, {})];
  }
  EXPECT_EQ(counts.size(), 3u);
  for (const int32_t token : {0, 31, 39}) EXPECT_NEAR(counts[token], 1000, 130) << token;
}

TEST(SampleRow, LogprobsAreOfTheRawLogits) {
  std::vector<float> logits = some_logits();
  logits[5] = kNaN;
  logits[6] = -kInfinity;
  logits[12] = logits[30];  // equal: in order of id
  double sum = 0;
  for (const float logit : logits) sum += std::isnan(logit) ? 0 : std::exp(double{logit});
  std::vector<float> clean = logits;
  clean[5] = -kInfinity;
  const std::vector<int32_t> order = order_of(clean);
  const std::vector<LogitBias> bias = {{7, 100}};
  const LogitRules rules = rules_with(bias);
  for (const int n : {0, 1, 5, 40}) {
    std::vector<TokenLogprob> out(static_cast<size_t>(n) + 1);
    const SampleRow asked = {
        .row = 3, .sampling = {.temperature = 0.3F}, .rules = &rules, .logprobs = n};
    EXPECT_EQ(sample_row(logits, asked, kRows, out), 7);
    EXPECT_EQ(out[0].token, 7);
    for (int i = -1; i < n; ++i) {
      const TokenLogprob& entry = out[static_cast<size_t>(i) + 1];
      EXPECT_TRUE(i < 0 || entry.token == order[static_cast<size_t>(i)]);
      const float logit = clean[static_cast<size_t>(entry.token)];
      EXPECT_EQ(entry.token, order[static_cast<size_t>(entry.rank - 1)]);
      if (std::isinf(logit)) {
        EXPECT_EQ(entry.logprob, -kInfinity);
      } else {
        EXPECT_NEAR(entry.logprob, double{logit} - std::log(sum), 1e-5);
      }
    }
  }
  // Of a token that is given, whatever would be drawn.
  std::vector<TokenLogprob> out(2);
  SampleRow asked = asking(3, rules);
  asked.given = order[8];
  asked.logprobs = 1;
  EXPECT_EQ(sample_row(logits, asked, kRows, out), order[8]);
  EXPECT_EQ(out[0].token, order[8]);
  EXPECT_EQ(out[0].rank, 9);
  EXPECT_EQ(out[1].token, order[0]);
  EXPECT_EQ(out[1].rank, 1);
}

}  // namespace
}  // namespace lagoon::kernels
