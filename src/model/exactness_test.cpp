// The bits of a row's logits depend on its prefix alone: not on the chunks a prompt is computed in,
// the other rows of a step, the threads, or what was rejected before. On the CPU backend, and on a
// GPU where there is one, with the bundled pair, around the edges of windows, rings and pages.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

using kernels::Activations;
using kernels::CacheType;

// Window 128, ring 144 with the smallest rows, pages of 64.
constexpr int kEdges[] = {127, 128, 129, 143, 144, 1023, 1024, 1025, 4097};
constexpr int kLength = 4120;
// The last positions that the model was made for: where computing as far does not take long.
constexpr int kLastEdge = 16376;
constexpr int kWholeLength = 16384;
constexpr int kMostRows = 16;

#ifdef LAGOON_SLOW
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

std::vector<std::vector<int32_t>> golden_prompts() {
  std::ifstream file(std::string(LAGOON_SOURCE_DIR) + "/tests/golden/cases.json");
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& item : nlohmann::json::parse(file)) prompts.push_back(item["ids"]);
  return prompts;
}

// Text of the golden prompts, one after the other.
std::vector<int32_t> long_text(int length) {
  const auto prompts = golden_prompts();
  std::vector<int32_t> text;
  for (size_t i = 0; static_cast<int>(text.size()) < length; ++i) {
    const std::vector<int32_t>& ids = prompts[i % prompts.size()];
    text.insert(text.end(), ids.begin(), ids.end());
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

struct Mode {
  Activations activations;
  CacheType cache_type;
  bool gpu = false;
};

bool goes_to_the_end(const Mode& mode) {
  return kSlow || mode.gpu;
}
int length_of(const Mode& mode) {
  return goes_to_the_end(mode) ? kWholeLength : kLength;
}
std::vector<int> edges_of(const Mode& mode) {
  std::vector<int> edges(std::begin(kEdges), std::end(kEdges));
  if (goes_to_the_end(mode)) edges.push_back(kLastEdge);
  return edges;
}

std::string name_of(const Mode& mode) {
  return std::string(mode.gpu ? "cuda_" : "") +
         std::string(mode.activations == Activations::kBFloat16 ? "bfloat16" : "float32") +
         (mode.cache_type == CacheType::kFP8 ? "_fp8" : "");
}

Loaded load_mode(const Mode& mode, int threads, int max_rows, int length) {
  LoadOptions options;
  options.max_rows = max_rows;
  options.max_length = length;
  options.cache_type = mode.cache_type;
  auto backend = mode.gpu ? kernels::cuda::make_backend(mode.activations).value()
                          : kernels::cpu::make_backend(mode.activations, threads);
  Loaded loaded = load_on(std::move(backend), bundled_target(), bundled_draft(), options);
  loaded.model->keep_logits(true);
  return loaded;
}

using Logits = std::map<int, std::vector<float>>;  // by position

// Steps through `text` in chunks; the logits of positions within eight of an edge.
Logits logits_near_edges(Model& model, const std::vector<int32_t>& text,
                         const std::vector<int>& edges, int chunk) {
  Logits logits;
  Sequence sequence(model);
  const auto vocab = static_cast<size_t>(model.info().vocab);
  for (int first = 0; first < static_cast<int>(text.size()); first += chunk) {
    const int rows = std::min(chunk, static_cast<int>(text.size()) - first);
    const auto is_near = [&](int edge) { return first < edge + 8 && first + rows > edge - 8; };
    const bool near = std::ranges::any_of(edges, is_near);
    const std::vector<int32_t> tokens(text.begin() + first, text.begin() + first + rows);
    const auto result =
        model.step({{sequence.segment(tokens, 0, near ? Sample::kAll : Sample::kNone)}});
    sequence.commit(rows);
    if (!near) continue;
    for (int r = 0; r < rows; ++r) {
      const int position = first + r;
      if (std::ranges::none_of(edges,
                               [&](int e) { return position < e + 8 && position >= e - 8; })) {
        continue;
      }
      const float* row = result[0].logits.data() + static_cast<size_t>(r) * vocab;
      logits[position].assign(row, row + vocab);
    }
  }
  return logits;
}

bool same_bits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

void expect_same(const Logits& a, const Logits& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [position, row] : b) {
    ASSERT_TRUE(same_bits(a.at(position).data(), row)) << what << ", position " << position;
  }
}

class Exactness : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (!GetParam().gpu) return;
    const auto backend = kernels::cuda::make_backend(GetParam().activations);
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Exactness,
                         ::testing::Values(Mode{Activations::kBFloat16, CacheType::kActivations},
                                           Mode{Activations::kBFloat16, CacheType::kFP8},
                                           Mode{Activations::kFloat32, CacheType::kActivations},
                                           Mode{Activations::kBFloat16, CacheType::kActivations,
                                                true},
                                           Mode{Activations::kBFloat16, CacheType::kFP8, true}),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Exactness, AnyChunksOnAnyNumberOfThreads) {
  const std::vector<int> edges = edges_of(GetParam());
  const int length = length_of(GetParam());
  const std::vector<int32_t> text = long_text(length);
  const Loaded all = load_mode(GetParam(), 2, length, length);
  const Logits expected = logits_near_edges(*all.model, text, edges, length);
  ASSERT_GE(expected.size(), 60u);
  for (const int chunk : {512, 64, 7, 1}) {
    for (const int threads : {1, 2, 3}) {
      // Small chunks take many steps; rows are computed the same way on any number of threads.
      if (!kSlow && threads != 1 + chunk % 2) continue;
      // A ring as small as the chunk allows.
      const Loaded loaded = load_mode(GetParam(), threads, chunk, length);
      expect_same(logits_near_edges(*loaded.model, text, edges, chunk), expected,
                  fmt::format("chunks of {}, {} threads", chunk, threads));
    }
  }
}

// Steps of 1 to 16 rows, all but the first rejected and computed again.
TEST_P(Exactness, AnyNumberOfRows) {
  const std::vector<int> edges = edges_of(GetParam());
  const int length = length_of(GetParam());
  const std::vector<int32_t> text = long_text(length);
  const Loaded all = load_mode(GetParam(), 1, length, length);
  const Logits expected = logits_near_edges(*all.model, text, edges, length);
  const Loaded loaded = load_mode(GetParam(), 2, 128, length);
  Model& model = *loaded.model;
  const auto vocab = static_cast<size_t>(model.info().vocab);
  Sequence sequence(model);
  for (int position = 0; position < length;) {
    const auto next = std::ranges::find_if(edges, [&](int edge) { return edge + 8 > position; });
    if (next == edges.end()) break;
    const int start = std::max(position, *next - 8);
    while (position < start) {
      const int rows = std::min(128, start - position);
      const std::vector<int32_t> tokens(text.begin() + position, text.begin() + position + rows);
      model.step({{sequence.segment(tokens, 0, Sample::kNone)}});
      sequence.commit(rows);
      position += rows;
    }
    for (int rows = 1; rows <= std::min(kMostRows, length - position); ++rows) {
      std::vector<int32_t> tokens(text.begin() + position, text.begin() + position + rows);
      // Wrong tokens first, which the second step overwrites.
      for (int32_t& token : tokens) token = (token + 1) % model.info().vocab;
      model.step({{sequence.segment(tokens, 0, Sample::kNone)}});
      for (int32_t& token : tokens) token = (token + model.info().vocab - 1) % model.info().vocab;
      const auto result = model.step({{sequence.segment(tokens, 0, Sample::kAll)}});
      for (int r = 0; r < rows; ++r) {
        const auto found = expected.find(position + r);
        if (found == expected.end()) continue;
        ASSERT_TRUE(
            same_bits(result[0].logits.data() + static_cast<size_t>(r) * vocab, found->second))
            << rows << " rows at " << position << ", row " << r;
      }
    }
    const int rows = std::min(5, length - position);
    const std::vector<int32_t> tokens(text.begin() + position, text.begin() + position + rows);
    model.step({{sequence.segment(tokens, 0, Sample::kNone)}});
    sequence.commit(rows);
    position += rows;
  }
}

// ---- Whoever proposes

constexpr int kAnswer = 40;

struct Text {
  std::vector<int32_t> tokens;
  int steps = 0;  // after the prompt
  int proposed = 0;
  int accepted = 0;
};

// kAnswer tokens after the prompt with up to k proposals a step: those of the draft, or if a text
// is known, its tokens plus `error`.
Text generate(Model& model, const std::vector<int32_t>& prompt, const kernels::Sampling& sampling,
              int k, const std::vector<int32_t>* known = nullptr, int32_t error = 0) {
  Sequence sequence(model);
  const auto step = [&](const std::vector<int32_t>& tokens, int proposals, Sample sample) {
    Segment segment = sequence.segment(tokens, proposals, sample);
    segment.sampling = sampling;
    return model.step({{segment}})[0];
  };
  Text text;
  text.tokens = step(prompt, 0, Sample::kLast).sampled;
  sequence.commit(static_cast<int>(prompt.size()));
  while (static_cast<int>(text.tokens.size()) < kAnswer) {
    std::vector<int32_t> tokens = {text.tokens.back()};
    if (known == nullptr && k > 0) sequence.draft(tokens[0], k);
    for (size_t at = text.tokens.size();
         known != nullptr && at < known->size() && static_cast<int>(tokens.size()) <= k; ++at) {
      tokens.push_back(((*known)[at] + error) % model.info().vocab);
    }
    const SegmentResult result = step(tokens, known == nullptr ? k : 0, Sample::kAll);
    int accepted = 0;
    while (accepted + 1 < static_cast<int>(result.tokens.size()) &&
           result.tokens[accepted + 1] == result.sampled[accepted]) {
      ++accepted;
    }
    sequence.commit(1 + accepted);
    text.tokens.insert(text.tokens.end(), result.sampled.begin(),
                       result.sampled.begin() + accepted + 1);
    ++text.steps;
    text.proposed += static_cast<int>(result.tokens.size()) - 1;
    text.accepted += accepted;
  }
  text.tokens.resize(kAnswer);
  return text;
}

class Proposals : public Exactness {};

// A little on the CPU shows that the test is right; engine/pair_test.cpp has more of it.
INSTANTIATE_TEST_SUITE_P(Modes, Proposals,
                         ::testing::Values(Mode{Activations::kBFloat16, CacheType::kActivations},
                                           Mode{Activations::kBFloat16, CacheType::kActivations,
                                                true},
                                           Mode{Activations::kBFloat16, CacheType::kFP8, true}),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(Proposals, ChangeNoText) {
  const bool gpu = GetParam().gpu;
  const int most_prompts = gpu ? 4 : 1;
  const Loaded loaded = load_mode(GetParam(), 1, 128, 256);
  Model& model = *loaded.model;
  model.keep_logits(false);
  int by_draft = 0;
  int varied = 0;
  int prompts = 0;
  for (const std::vector<int32_t>& prompt : golden_prompts()) {
    if (prompt.size() > 100 || prompts == most_prompts) continue;
    ++prompts;
    std::vector<int32_t> greedy_text;
    for (const kernels::Sampling& sampling :
         {kernels::Sampling(),
          {.temperature = 0.8F, .top_k = 20, .top_p = 0.95F, .seed = 1},
          {.temperature = 1, .top_k = 0, .top_p = 0.9F, .seed = 12345},
          {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 3}}) {
      SCOPED_TRACE(fmt::format("prompt {}, seed {}", prompts, sampling.seed));
      const std::vector<int32_t> text = generate(model, prompt, sampling, 0).tokens;
      if (sampling.temperature == 0) greedy_text = text;
      varied += text != greedy_text ? 1 : 0;
      for (const int k : {1, 6, 15}) {
        if (!gpu && k != 6) continue;
        const Text drafted = generate(model, prompt, sampling, k);
        EXPECT_EQ(drafted.tokens, text) << "k = " << k;
        by_draft += drafted.accepted;
      }
      const Text right = generate(model, prompt, sampling, 6, &text);
      EXPECT_EQ(right.tokens, text);
      EXPECT_EQ(right.accepted, right.proposed);
      EXPECT_EQ(right.steps, (kAnswer - 1 + 6) / 7);
      const Text wrong = generate(model, prompt, sampling, 6, &text, 1);
      EXPECT_EQ(wrong.tokens, text);
      EXPECT_EQ(wrong.accepted, 0);
      EXPECT_EQ(wrong.steps, kAnswer - 1);
    }
  }
  EXPECT_EQ(prompts, most_prompts);
  EXPECT_GT(by_draft, prompts * kAnswer / 2);  // at k = 6 alone: the draft is worth having
  EXPECT_GE(varied, prompts);                  // and text was drawn, not the likeliest
}

// A prompt of 32 tokens and eight rounds, with a draft and without: small enough for checkers of
// memory and races (scripts/test_gpu.sh).
TEST(ExactnessOnAGpu, AShortPromptAndEightRounds) {
  const auto backend = kernels::cuda::make_backend(Activations::kBFloat16);
  if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  const Mode mode = {Activations::kBFloat16, CacheType::kFP8, true};
  const std::vector<int32_t> prompt = long_text(32);
  std::vector<std::vector<int32_t>> texts;
  for (const int k : {0, 6}) {
    const Loaded loaded = load_mode(mode, 1, 32, 64);
    texts.push_back(greedy(*loaded.model, prompt, 8, k));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace lagoon::model::testing
