// Every backend against the specification: the same small model on each, compared with double
// precision and with itself. The draft's operations: backend_draft_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/backend_rig.h"
#include "kernels/sampling.h"

namespace lagoon::kernels {
namespace {

using Forward = BackendTest;
using SameBits = BackendTest;
using HeadSample = BackendTest;

TEST_P(Forward, AgreesWithDoublePrecisionInFP32) {
  LAGOON_NOT_WITH_CUDA();
  Machinery machinery(Activations::kFloat32, 2, 7);
  PlainModel plain(machinery.toy, Activations::kFloat32);
  const std::vector<int32_t> tokens = random_tokens(1, 45);
  for (int first = 0; first < 45; first += 7) {
    const int count = std::min(7, 45 - first);
    const std::vector<float> logits = machinery.step(rows_of(tokens, first, count));
    for (int r = 0; r < count; ++r) {
      const Vector expected = plain.step(tokens[first + r]);
      EXPECT_LT(relative_error(row_of(logits, r), expected), 2e-5) << first + r;
      for (int t = 0; t < ToyModel::kTaps; ++t) {
        EXPECT_LT(relative_error(machinery.tap(t, r), plain.tap(t, first + r)), 2e-5) << first + r;
      }
    }
  }
}

// Of the rows of one step, by how far the middle one is from each of two plain models.
std::pair<double, double> median_errors(Machinery& machinery, PlainModel& a, PlainModel& b) {
  constexpr int kRows = 45;
  const std::vector<int32_t> tokens = random_tokens(1, kRows);
  const std::vector<float> logits = machinery.step(rows_of(tokens, 0, kRows));
  std::vector<double> to_a(kRows), to_b(kRows);
  for (int r = 0; r < kRows; ++r) {
    to_a[r] = relative_error(row_of(logits, r), a.step(tokens[r]));
    to_b[r] = relative_error(row_of(logits, r), b.step(tokens[r]));
  }
  std::sort(to_a.begin(), to_a.end());
  std::sort(to_b.begin(), to_b.end());
  return {to_a[kRows / 2], to_b[kRows / 2]};
}

// A value near the middle of two BF16 numbers may round either way, so single values differ by a
// BF16 step; a rounding point that is missing or misplaced moves all of them.
TEST_P(Forward, RoundsWhereTheSpecificationSays) {
  Machinery machinery(Activations::kBFloat16, 2, 45);
  PlainModel rounded(machinery.toy, Activations::kBFloat16);
  PlainModel exact(machinery.toy, Activations::kFloat32);
  const auto [to_rounded, to_exact] = median_errors(machinery, rounded, exact);
  EXPECT_LT(to_rounded, 5e-4);
  EXPECT_GT(to_exact, 2e-3);
}

// What a state holds and how it is rounded.
struct Mode {
  Activations activations;
  CacheType cache_type;
};
std::vector<Mode> modes() {
  std::vector<Mode> all = {{Activations::kBFloat16, CacheType::kActivations},
                           {Activations::kBFloat16, CacheType::kFP8}};
  if (is_cuda()) return all;
  all.push_back({Activations::kFloat32, CacheType::kActivations});
  all.push_back({Activations::kFloat32, CacheType::kFP8});
  return all;
}

TEST_P(SameBits, InAnyChunkingOnAnyNumberOfThreads) {
  for (const Mode mode : modes()) {
    const std::vector<int32_t> tokens = random_tokens(2, 48);
    Machinery one(mode.activations, 1, 1, 1, 0, mode.cache_type);
    const std::vector<float> expected = run(one, tokens, 1);
    for (int chunk = 1; chunk <= 16; ++chunk) {
      for (const int threads : {1 + chunk % 2, 3 - chunk % 3}) {
        Machinery machinery(mode.activations, threads, chunk, 1, 0, mode.cache_type);
        EXPECT_TRUE(same_bits(run(machinery, tokens, chunk), expected)) << threads << " " << chunk;
      }
    }
  }
}

TEST_P(SameBits, WithOtherSequencesInTheStep) {
  for (const Mode mode : modes()) {
    const std::vector<int32_t> tokens[2] = {random_tokens(3, 40), random_tokens(4, 40)};
    std::vector<float> expected[2];
    for (int s = 0; s < 2; ++s) {
      Machinery alone(mode.activations, 1, 5, 1, 0, mode.cache_type);
      expected[s] = run(alone, tokens[s], 5);
    }
    Machinery both(mode.activations, 2, 12, 2, 0, mode.cache_type);
    TestRandom random(5);
    for (std::vector<int32_t>& table : both.tables) {
      std::reverse(table.begin(), table.end());
      std::swap(table[1], table[6]);
    }
    int done[2] = {0, 0};
    while (done[0] < 40 || done[1] < 40) {
      std::vector<Row> rows;
      const int first_sequence = random.below(2);
      for (const int s : {first_sequence, 1 - first_sequence}) {
        const std::vector<Row> part =
            rows_of(tokens[s], done[s], std::min(random.below(7), 40 - done[s]), s);
        rows.insert(rows.end(), part.begin(), part.end());
      }
      const std::vector<float> logits = both.step(rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        const int32_t s = rows[r].sequence;
        ASSERT_TRUE(
            same_bits(row_of(logits, static_cast<int>(r)), row_of(expected[s], rows[r].position)));
        ++done[s];
      }
    }
  }
}

TEST_P(SameBits, AfterRejectedRowsWereOverwritten) {
  for (const Mode mode : modes()) {
    const std::vector<int32_t> tokens = random_tokens(6, 100);
    Machinery straight(mode.activations, 1, 1, 1, 0, mode.cache_type);
    const std::vector<float> expected = run(straight, tokens, 1);
    Machinery machinery(mode.activations, 2, 5, 1, 5, mode.cache_type);
    TestRandom random(7);
    int done = 0;
    while (done < 95) {
      // Some right tokens, then wrong ones up to five rows.
      const int right = 1 + random.below(5);
      std::vector<Row> rows = rows_of(tokens, done, 5);
      for (int i = right; i < 5; ++i) rows[i].token = random.below(kVocab);
      const std::vector<float> logits = machinery.step(rows);
      for (int i = 0; i < right; ++i) {
        ASSERT_TRUE(same_bits(row_of(logits, i), row_of(expected, done + i))) << done + i;
      }
      done += right;
    }
  }
}

// FP8 caches: rounding points as those of BF16 above.
TEST_P(Forward, RoundsKeysAndValuesToFp8) {
  LAGOON_NOT_WITH_CUDA();
  Machinery machinery(Activations::kFloat32, 2, 45, 1, 0, CacheType::kFP8);
  PlainModel rounded(machinery.toy, Activations::kFloat32, CacheType::kFP8);
  PlainModel exact(machinery.toy, Activations::kFloat32);
  const auto [to_rounded, to_exact] = median_errors(machinery, rounded, exact);
  EXPECT_LT(to_rounded, 1e-3);
  EXPECT_GT(to_exact, 5e-3);
}

// One slot after another request: what that left in ring and pages is not seen.
TEST_P(Forward, ASlotCanBeUsedAgain) {
  const std::vector<int32_t> first = random_tokens(8, 60);
  const std::vector<int32_t> second = random_tokens(9, 30);
  Machinery fresh(Activations::kBFloat16, 1, 6);
  Machinery used(Activations::kBFloat16, 1, 6);
  run(used, first, 6);
  EXPECT_TRUE(same_bits(run(used, second, 6), run(fresh, second, 6)));
}

TEST_P(HeadSample, SamplesTheAskedRowsAtTheNextPosition) {
  Machinery machinery(Activations::kBFloat16, 2, 40);
  const std::vector<int32_t> tokens = random_tokens(10, 40);
  const std::vector<float> logits = machinery.step(rows_of(tokens, 0, 40));
  std::vector<SampleRow> asked;
  for (const int32_t row : {39, 0, 17, 17}) {
    asked.push_back({row, {.temperature = 1.5f, .top_k = 20, .top_p = 0.9f, .seed = 3}});
  }
  asked[3].sampling = {};
  for (int i = 0; i < 30; ++i) {
    const float top_p = i % 2 == 0 ? 1 : 0.8f;
    asked.push_back({i, {.temperature = 2, .top_k = 0, .top_p = top_p, .seed = 4}});
  }
  std::vector<int32_t> drawn(asked.size());
  machinery.backend->head_sample(*machinery.target, machinery.toy.head(), asked, {.tokens = drawn});
  std::vector<float> some(asked.size() * kVocab);
  std::vector<int32_t> again(asked.size());
  machinery.backend->head_sample(*machinery.target, machinery.toy.head(), asked,
                                 {.tokens = again, .logits = some});
  EXPECT_EQ(drawn, again);
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::span<const float> row = row_of(logits, asked[i].row);
    EXPECT_TRUE(same_bits(row_of(some, static_cast<int>(i)), row));
    EXPECT_EQ(drawn[i], sample(row, asked[i].sampling, asked[i].row + 1));
  }
}

// Rules, masks, given tokens and log-probabilities, of rows in any order: as sample_row() says.
TEST_P(HeadSample, DoesAllThatARowAsksFor) {
  Machinery machinery(Activations::kBFloat16, 2, 40);
  const std::vector<int32_t> tokens = random_tokens(12, 40);
  const std::vector<Row> rows = rows_of(tokens, 0, 40);
  const std::vector<float> logits = machinery.step(rows);
  const std::vector<LogitBias> bias = {{3, 2.5F}, {11, -4}};
  const std::vector<int32_t> banned = {machinery.tokens[20], machinery.tokens[30]};
  const std::vector<SeenToken> seen = {{tokens[0], 0}, {tokens[1] == tokens[0] ? 0 : tokens[1], 2}};
  const LogitRules rules = {.bias = bias,
                            .banned = banned,
                            .banned_before = 31,
                            .repetition = 1.3F,
                            .presence = 0.4F,
                            .frequency = 0.2F,
                            .seen = seen,
                            .seen_end = 15};
  std::vector<uint32_t> allowed((kVocab + 31) / 32, 0xa5a5a5a5);
  std::vector<SampleRow> asked;
  for (int i = 39; i >= 0; --i) {
    SampleRow row;
    row.row = i;
    row.logprobs = i % 4 - 1;
    if (i % 3 == 0) row.sampling = {.temperature = 1.2F, .seed = 9, .min_p = 0.05F};
    if (i % 5 != 0) row.rules = &rules;
    if (i % 6 == 0) row.allowed = allowed;
    if (i % 7 == 0) row.given = i;
    asked.push_back(row);
  }
  std::vector<int32_t> drawn(asked.size());
  size_t entries = 0;
  for (const SampleRow& row : asked) entries += static_cast<size_t>(row.logprobs + 1);
  std::vector<TokenLogprob> logprobs(entries);
  machinery.backend->head_sample(*machinery.target, machinery.toy.head(), asked,
                                 {.tokens = drawn, .logprobs = logprobs});
  size_t next = 0;
  int changed = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    std::vector<TokenLogprob> expected(static_cast<size_t>(asked[i].logprobs + 1));
    const int32_t token = sample_row(row_of(logits, asked[i].row), asked[i], rows, expected);
    EXPECT_EQ(drawn[i], token) << "row " << asked[i].row;
    changed += token != sample(row_of(logits, asked[i].row), asked[i].sampling, asked[i].row + 1);
    for (const TokenLogprob& entry : expected) {
      EXPECT_EQ(logprobs[next].token, entry.token);
      EXPECT_EQ(logprobs[next].rank, entry.rank);
      EXPECT_NEAR(logprobs[next].logprob, entry.logprob, 1e-6);
      ++next;
    }
  }
  EXPECT_GT(changed, 10);  // the rules are not such that nothing comes of them
}

INSTANTIATE_TEST_SUITE_P(Backends, Forward, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, SameBits, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, HeadSample, testing::ValuesIn(kinds()), name_of);

}  // namespace
}  // namespace lagoon::kernels
