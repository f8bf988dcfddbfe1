// What a server does on a GPU once it has started: it takes no memory, and waits for the device
// once a step. With the bundled pair; skipped where there is no GPU.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/backend.h"
#include "model/test_support.h"
#include "model/warm_up.h"

namespace lagoon::model::testing {
namespace {

using kernels::cuda::Counters;
using kernels::cuda::counters;

constexpr int kSlots = 4;
constexpr int kLength = 1500;
constexpr int kRows = 600;

class StepsOnAGpu : public ::testing::TestWithParam<kernels::CacheType> {
 protected:
  void SetUp() override {
    auto backend = kernels::cuda::make_backend(kernels::Activations::kBFloat16);
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
    LoadOptions options;
    options.slots = kSlots;
    options.max_rows = kRows;
    options.max_length = kLength;
    options.cache_type = GetParam();
    loaded_ = load_on(std::move(backend).value(), bundled_target(), bundled_draft(), options);
  }
  Counters now() const { return counters(*loaded_.backend); }
  Model& model() { return *loaded_.model; }
  std::vector<int32_t> tokens(int count) {
    std::vector<int32_t> out(static_cast<size_t>(count));
    for (int32_t& token : out) {
      token = static_cast<int32_t>(random_() % static_cast<uint32_t>(model().info().vocab));
    }
    return out;
  }

  Loaded loaded_;
  std::mt19937 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Caches, StepsOnAGpu,
                         ::testing::Values(kernels::CacheType::kActivations,
                                           kernels::CacheType::kFP8),
                         [](const auto& test) {
                           return test.param == kernels::CacheType::kFP8 ? "fp8" : "bfloat16";
                         });

// Prompts in every size, with prompt log-probabilities, alone and together; answers with and
// without drafts, rules, masks of penalties, log-probabilities of the whole vocabulary.
TEST_P(StepsOnAGpu, TakeNoMemoryAfterStart) {
  const int64_t before = now().memory_calls;
  std::vector<Sequence> sequences;
  sequences.reserve(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) sequences.emplace_back(model(), slot, slot, kSlots);
  std::vector<kernels::LogitBias> bias;
  std::vector<kernels::SeenToken> seen;
  for (int32_t token = 0; token < model().info().vocab; ++token) {
    bias.push_back({token, 0.25F});
    seen.push_back({token, token % 2});
  }
  kernels::LogitRules rules;
  rules.bias = bias;
  rules.seen = seen;
  rules.frequency = 0.5F;
  for (const int rows : {kRows, 1, 64, 333}) {  // one sequence in a step
    const std::vector<int32_t> text = tokens(rows);
    Segment segment = sequences[0].segment(text, 0, Sample::kAll);
    segment.given = std::span(text).subspan(1);
    segment.given_logprobs = 20;
    segment.logprobs = model().info().vocab;
    model().step({{segment}});
    sequences[0].commit(rows);
  }
  for (int round = 0; round < 30; ++round) {  // all of them
    std::vector<std::vector<int32_t>> texts;
    std::vector<Segment> segments;
    const int k = round % (model().info().max_proposals + 1);
    std::vector<Anchor> anchors;
    for (int slot = 0; slot < kSlots; ++slot) {
      const bool prompt = sequences[static_cast<size_t>(slot)].length() == 0;
      texts.push_back(tokens(prompt ? 40 * slot + 1 : 1));
      if (!prompt && k > 0) {
        anchors.push_back({slot, texts.back()[0], sequences[static_cast<size_t>(slot)].length()});
      }
    }
    if (!anchors.empty()) model().draft(anchors, k);
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto at = static_cast<size_t>(slot);
      const bool prompt = sequences[at].length() == 0;
      segments.push_back(
          sequences[at].segment(texts[at], prompt ? 0 : k, prompt ? Sample::kLast : Sample::kAll));
      segments.back().sampling = {.temperature = 1, .top_k = 0, .top_p = 0.9F, .seed = 5};
      segments.back().logprobs = slot == 2 ? model().info().vocab : 5;
      if (slot % 2 == 1) segments.back().rules = &rules;
    }
    model().step(segments);
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto at = static_cast<size_t>(slot);
      sequences[at].commit(static_cast<int>(texts[at].size()));
    }
  }
  EXPECT_EQ(now().memory_calls, before);
  EXPECT_EQ(model().failure(), nullptr);
}

TEST_P(StepsOnAGpu, WaitOnceForAStepWithItsDraft) {
  std::vector<Sequence> sequences;
  sequences.reserve(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) sequences.emplace_back(model(), slot, slot, kSlots);
  std::vector<int32_t> newest;
  newest.reserve(kSlots);
  for (Sequence& sequence : sequences) {
    newest.push_back(sequence.prefill(tokens(100), 512, Sample::kLast).sampled[0]);
  }
  for (const int k : {0, 1, 6, 15, 6, 0, 6}) {
    const int64_t before = now().waits;
    std::vector<Anchor> anchors;
    for (int slot = 0; slot < kSlots && k > 0; ++slot) {
      const auto at = static_cast<size_t>(slot);
      anchors.push_back({slot, newest[at], sequences[at].length()});
    }
    if (k > 0) model().draft(anchors, k);
    EXPECT_EQ(now().waits, before) << "k = " << k;
    std::vector<std::vector<int32_t>> texts;
    texts.reserve(kSlots);
    for (const int32_t token : newest) texts.push_back({token});
    std::vector<Segment> segments;
    segments.reserve(kSlots);
    for (size_t at = 0; at < sequences.size(); ++at) {
      segments.push_back(sequences[at].segment(texts[at], k, Sample::kAll));
    }
    const std::vector<SegmentResult> results = model().step(segments);
    const auto use = model().expert_use();
    EXPECT_GT(use.distinct, 0);
    for (size_t at = 0; at < sequences.size(); ++at) {
      size_t accepted = 0;
      while (accepted + 1 < results[at].tokens.size() &&
             results[at].tokens[accepted + 1] == results[at].sampled[accepted]) {
        ++accepted;
      }
      EXPECT_EQ(results[at].tokens[0], newest[at]);
      newest[at] = results[at].sampled[accepted];
      sequences[at].commit(static_cast<int>(accepted) + 1);
    }
    EXPECT_EQ(now().waits, before + 1) << "k = " << k;
  }
}

// Steps of as many rows are one graph, whichever sequences the rows are of. What they compute is
// what launches without a graph compute.
TEST_P(StepsOnAGpu, OneGraphServesRowsOfAnySequences) {
  auto backend = kernels::cuda::make_backend(kernels::Activations::kBFloat16, /*graphs=*/false);
  ASSERT_TRUE(backend.ok());
  LoadOptions options;
  options.slots = kSlots;
  options.max_rows = kRows;
  options.max_length = kLength;
  options.cache_type = GetParam();
  const Loaded plain =
      load_on(std::move(backend).value(), bundled_target(), bundled_draft(), options);
  const auto warmed = warm_up(
      model(), {.sequences = kSlots, .proposals = 6, .drafts = true, .max_length = kLength});
  ASSERT_TRUE(warmed.ok());
  EXPECT_EQ(warmed->max_length, kLength - 1);
  Model* const models[] = {&model(), plain.model.get()};
  std::vector<std::vector<Sequence>> sequences(2);
  for (size_t m = 0; m < 2; ++m) {
    models[m]->keep_logits(true);
    for (int slot = 0; slot < kSlots; ++slot) {
      sequences[m].emplace_back(*models[m], slot, slot, kSlots);
    }
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const std::vector<int32_t> prompt = tokens(30 + 70 * static_cast<int>(slot));
    for (auto& of_model : sequences) of_model[slot].prefill(prompt, 64, Sample::kNone);
  }
  // Rows of each sequence; each sum more than once, and longer than a window.
  const std::vector<std::vector<int>> steps = {
      {12, 0, 0, 0}, {3, 3, 3, 3},  {0, 1, 10, 1}, {0, 0, 6, 6},     {28, 0, 0, 0},
      {7, 7, 7, 7},  {1, 17, 9, 1}, {0, 0, 64, 0}, {16, 16, 16, 16}, {33, 31, 0, 0},
      {1, 1, 1, 1},  {0, 4, 0, 0},  {0, 0, 0, 12}, {2, 0, 2, 0},     {5, 5, 1, 1}};
  for (const std::vector<int>& rows : steps) {
    std::vector<std::vector<int32_t>> texts;
    texts.reserve(rows.size());
    for (const int count : rows) texts.push_back(tokens(count));
    std::vector<std::vector<float>> logits(2);
    for (size_t m = 0; m < 2; ++m) {
      std::vector<Segment> segments;
      for (size_t slot = 0; slot < kSlots; ++slot) {
        if (rows[slot] == 0) continue;
        segments.push_back(sequences[m][slot].segment(texts[slot], 0, Sample::kAll));
      }
      for (const SegmentResult& result : models[m]->step(segments)) {
        logits[m].insert(logits[m].end(), result.logits.begin(), result.logits.end());
      }
      for (size_t slot = 0; slot < kSlots; ++slot) {
        if (rows[slot] > 0) sequences[m][slot].commit(rows[slot]);
      }
    }
    EXPECT_EQ(logits[0], logits[1])
        << rows[0] << " " << rows[1] << " " << rows[2] << " " << rows[3];
  }
  EXPECT_EQ(model().failure(), nullptr);
}

}  // namespace
}  // namespace lagoon::model::testing
