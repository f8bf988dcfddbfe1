// The bundled pair against vectors of an independent implementation (tests/golden). In FP32 mode
// everything matches; in BF16 mode, the mode that serves, text up to the first near-tie and nearly
// all proposals do.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"
#include "model/test_backend.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

constexpr int kReferenceThreads = 2;
// Threads of the CPU backend wait for each other some hundred times a step, which takes long where
// other programs keep the processors; exactness_test.cpp varies their number.
constexpr int kThreads = 1;
constexpr int kProposals = 6;
constexpr float kTolerance = 1e-3f;
constexpr float kNearTie =
    0.05f;  // a margin between the two best logits below which text may differ

struct Case {
  int id = 0;
  bool chat = false;
  std::vector<int32_t> ids;     // prompt
  std::vector<int32_t> greedy;  // answer
  std::vector<float> margins;   // top-1 minus top-2 logit, per answer token
  std::vector<int32_t> draft_first;
  std::vector<int> accepted;  // per step at k = 6

  // Answer tokens before the first near-tie.
  size_t certain() const {
    const auto tie = std::ranges::find_if(margins, [](float m) { return m < kNearTie; });
    // The vectors count margins on to the end of the block that ended the answer.
    return std::min(static_cast<size_t>(tie - margins.begin()), greedy.size());
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = [] {
    std::ifstream file(std::string(LAGOON_SOURCE_DIR) + "/tests/golden/cases.json");
    std::vector<Case> read;
    for (const auto& item : nlohmann::json::parse(file)) {
      read.push_back({.id = item["id"],
                      .chat = item["kind"] == "chat",
                      .ids = item["ids"],
                      .greedy = item["greedy"],
                      .margins = item["top1_margin"],
                      .draft_first = item["draft_first"],
                      .accepted = item["accepted_k6"]});
    }
    return read;
  }();
  return kCases;
}

// A tensor of tests/golden/tensors.safetensors; empty if there is none of that name.
template <typename T>
std::vector<T> golden(const Case& c, const char* name) {
  static const checkpoint::SafetensorsFile kFile = [] {
    auto opened = checkpoint::SafetensorsFile::open(std::string(LAGOON_SOURCE_DIR) +
                                                    "/tests/golden/tensors.safetensors");
    CHECK(opened.ok());
    return std::move(opened).value();
  }();
  const checkpoint::TensorInfo* info = kFile.find(fmt::format("{}.{}", c.id, name));
  if (info == nullptr) return {};
  const std::span<const std::byte> bytes = kFile.bytes(*info);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

// What a case gave.
struct Outcome {
  SegmentResult prompt;  // all rows sampled, logits kept
  std::vector<float> taps_last;
  std::vector<int32_t> greedy;
  std::vector<int32_t> draft_first;
  std::vector<float> draft_logits0;
  std::vector<int> accepted;  // as the vectors count: an accepted end of sequence, nothing after it
};

bool ends(int32_t token, const ModelInfo& info) {
  return std::ranges::find(info.eos, token) != info.eos.end();
}

// The loop that made the vectors: draft, verify, accept the longest right prefix.
Outcome run_case(Model& model, const WatchedBackend& backend, const Case& c) {
  Outcome run;
  model.keep_logits(true);
  Sequence sequence(model);
  run.prompt = sequence.prefill(c.ids, model.info().max_rows, Sample::kAll);
  run.taps_last = backend.taps(static_cast<int>(c.ids.size()) - 1);
  model.keep_logits(false);
  const size_t count = c.ids.size() < 1000 ? 40 : 12;
  std::vector<int32_t>& text = run.greedy;
  text.push_back(run.prompt.sampled.back());
  while (text.size() < count && !ends(text.back(), model.info())) {
    if (run.draft_first.empty()) {
      sequence.draft(text.back(), model.info().max_proposals);
      run.draft_logits0 = backend.draft_logits();
      const std::vector<int32_t> anchor = {text.back()};
      run.draft_first =
          model.step({{sequence.segment(anchor, model.info().max_proposals, Sample::kNone)}})[0]
              .tokens;
      run.draft_first.erase(run.draft_first.begin());
    }
    const std::vector<int32_t> next = sequence.decode(text.back(), kProposals);
    int accepted = static_cast<int>(next.size()) - 1;
    for (size_t i = 0; i < next.size(); ++i) {
      text.push_back(next[i]);
      if (!ends(next[i], model.info())) continue;
      accepted = std::min(accepted, static_cast<int>(i) + 1);
      break;
    }
    run.accepted.push_back(accepted);
  }
  text.resize(std::min(text.size(), count));
  return run;
}

std::unique_ptr<kernels::Backend> make_backend(const std::string& name,
                                               kernels::Activations activations) {
  if (name == "cuda") return kernels::cuda::make_backend(activations).value();
  return name == "ref" ? kernels::ref::make_backend(activations, kReferenceThreads)
                       : kernels::cpu::make_backend(activations, kThreads);
}

class GoldenTest : public ::testing::Test {
 protected:
  void load(kernels::Activations activations, const std::string& backend = "cpu") {
    LoadOptions options;
    options.max_rows = 1024;
    options.max_length = 2048;
    auto watched = std::make_unique<WatchedBackend>(make_backend(backend, activations));
    backend_ = watched.get();
    loaded_ = load_on(std::move(watched), bundled_target(), bundled_draft(), options);
    start_ = std::chrono::steady_clock::now();
  }
  Model& model() { return *loaded_.model; }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  WatchedBackend* backend_ = nullptr;
  Loaded loaded_;
  std::chrono::steady_clock::time_point start_;
};

// On each backend.
class GoldenVectors : public GoldenTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("cuda")) return;
    const auto backend = kernels::cuda::make_backend(kernels::Activations::kBFloat16);
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, GoldenVectors, ::testing::Values("cpu", "ref", "cuda"),
                         [](const auto& test) { return test.param; });

// On the backends that serve.
class GoldenServing : public GoldenVectors {};

INSTANTIATE_TEST_SUITE_P(Backends, GoldenServing, ::testing::Values("cpu", "cuda"),
                         [](const auto& test) { return test.param; });

// Ids of the four largest logits of each prompt row; logits closer than the tolerance may swap.
void expect_top4(const Case& c, const Outcome& run) {
  const std::vector<int32_t> ids = golden<int32_t>(c, "top4_ids");
  const std::vector<float> values = golden<float>(c, "top4_logits");
  ASSERT_EQ(ids.empty(), c.ids.size() > 300);
  const size_t vocab = run.prompt.logits.size() / c.ids.size();
  for (size_t at = 0; at < ids.size(); ++at) {
    const std::span<const float> row = std::span(run.prompt.logits).subspan(at / 4 * vocab, vocab);
    std::vector<int32_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::partial_sort(order, order.begin() + 4, [&](int32_t a, int32_t b) {
      return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
    });
    const auto mine = static_cast<size_t>(order[at % 4]);
    EXPECT_NEAR(row[static_cast<size_t>(ids[at])], values[at], kTolerance) << "row " << at / 4;
    if (order[at % 4] != ids[at]) {
      EXPECT_NEAR(row[mine], values[at], kTolerance) << "row " << at / 4;
    }
  }
}

TEST_P(GoldenVectors, Float32MatchesEveryVector) {
  if (GetParam() == std::string("cuda")) GTEST_SKIP() << "activations in FP32 are not for a GPU";
  load(kernels::Activations::kFloat32, GetParam());
  float logits = 0;
  float taps = 0;
  float draft_logits = 0;
  ASSERT_EQ(cases().size(), 20u);
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("case {}", c.id));
    const Outcome run = run_case(model(), *backend_, c);
    const auto vocab = static_cast<size_t>(model().info().vocab);
    const std::span<const float> last = std::span(run.prompt.logits).last(vocab);
    logits = std::max(logits, largest_difference(last, golden<float>(c, "logits_last")));
    taps = std::max(taps, largest_difference(run.taps_last, golden<float>(c, "aux_last")));
    draft_logits = std::max(
        draft_logits, largest_difference(run.draft_logits0, golden<float>(c, "draft_logits0")));
    expect_top4(c, run);
    ASSERT_GE(run.greedy.size(), c.certain());
    EXPECT_TRUE(std::equal(c.greedy.begin(), c.greedy.begin() + static_cast<int64_t>(c.certain()),
                           run.greedy.begin()));
    EXPECT_EQ(run.draft_first, c.draft_first);
    EXPECT_EQ(run.accepted, c.accepted);
  }
  EXPECT_LE(logits, kTolerance);
  EXPECT_LE(taps, kTolerance);
  EXPECT_LE(draft_logits, kTolerance);
  fmt::print(
      "float32: largest difference of logits {:.2e}, taps {:.2e}, draft logits {:.2e}; "
      "{:.1f} s\n",
      logits, taps, draft_logits, seconds());
}

TEST_P(GoldenVectors, BFloat16StaysClose) {
  load(kernels::Activations::kBFloat16, GetParam());
  int proposals = 0;
  int equal_proposals = 0;
  int chat_drafts = 0;
  int chat_accepted = 0;
  size_t certain = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("case {}", c.id));
    const Outcome run = run_case(model(), *backend_, c);
    certain += c.certain();
    ASSERT_GE(run.greedy.size(), c.certain());
    EXPECT_TRUE(std::equal(c.greedy.begin(), c.greedy.begin() + static_cast<int64_t>(c.certain()),
                           run.greedy.begin()));
    ASSERT_EQ(run.draft_first.size(), c.draft_first.size());
    for (size_t i = 0; i < run.draft_first.size(); ++i) {
      ++proposals;
      equal_proposals += run.draft_first[i] == c.draft_first[i] ? 1 : 0;
    }
    if (!c.chat) continue;
    chat_drafts += static_cast<int>(run.accepted.size());
    for (const int accepted : run.accepted) chat_accepted += accepted;
  }
  const double tokens_per_step = 1 + static_cast<double>(chat_accepted) / chat_drafts;
  EXPECT_GE(equal_proposals, 0.97 * proposals);
  EXPECT_GE(tokens_per_step, 4.0);
  fmt::print(
      "bfloat16: {} answer tokens equal up to near-ties; {} of {} first proposals equal "
      "({:.1f} %); chat at k = {}: 1 + {} / {} = {:.2f} tokens a step; {:.1f} s\n",
      certain, equal_proposals, proposals, 100.0 * equal_proposals / proposals, kProposals,
      chat_accepted, chat_drafts, tokens_per_step, seconds());
}

// The longest prompt in chunks: the same bits of the last row's logits and of the first proposal's.
TEST_P(GoldenServing, ChunkedPrefillIsExact) {
  load(kernels::Activations::kBFloat16, GetParam());
  const auto longest =
      std::ranges::max_element(cases(), {}, [](const Case& c) { return c.ids.size(); });
  std::vector<std::vector<float>> outputs;
  for (const int chunk : {1024, 512, 64, 7, 1}) {
    Sequence sequence(model());
    model().keep_logits(true);
    std::vector<float> output = sequence.prefill(longest->ids, chunk, Sample::kLast).logits;
    sequence.draft(longest->greedy[0], kProposals);
    const std::vector<float>& draft_logits = backend_->draft_logits();
    output.insert(output.end(), draft_logits.begin(), draft_logits.end());
    outputs.push_back(std::move(output));
    EXPECT_EQ(std::memcmp(outputs.back().data(), outputs.front().data(),
                          outputs.front().size() * sizeof(float)),
              0)
        << "chunks of " << chunk;
  }
}

TEST_P(GoldenServing, FirstProposalsDoNotDependOnTheirNumber) {
  load(kernels::Activations::kBFloat16, GetParam());
  for (const Case& c : {cases()[0], cases()[6], cases()[14], cases()[17]}) {
    Sequence sequence(model());
    sequence.prefill(c.ids, 1024, Sample::kNone);
    const std::vector<int32_t> anchor = {c.greedy[0]};
    std::vector<int32_t> all;
    for (int k = model().info().max_proposals; k >= 1; --k) {
      sequence.draft(anchor[0], k);
      const std::vector<int32_t> tokens =
          model().step({{sequence.segment(anchor, k, Sample::kNone)}})[0].tokens;
      if (all.empty()) all = tokens;
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin())) << "k = " << k;
    }
  }
}

// A draft whose q, k and v are three matrices proposes what the fused one does.
TEST_F(GoldenTest, SplitDraftProposesTheSame) {
  TensorMap split;
  for (auto& [name, tensor] : read_tensors(bundled_draft())) {
    const size_t at = name.find("qkv_proj");
    if (at == std::string::npos) {
      split[name] = tensor;
      continue;
    }
    auto first = tensor.bytes.begin();
    const auto take = [&](const char* part, int64_t rows) {
      const int64_t bytes = rows * 256 * 2;
      std::string part_name = name;
      part_name.replace(at, 8, part);
      split[part_name] = {tensor.dtype, {rows, 256}, {first, first + bytes}};
      first += bytes;
    };
    take("q_proj", 768);
    take("k_proj", 256);
    take("v_proj", 256);
    ASSERT_EQ(first, tensor.bytes.end());
  }
  TempDir dir;
  std::ifstream config(bundled_draft() + "/config.json");
  write_model(dir.path(), {std::istreambuf_iterator<char>(config), {}}, split);
  load(kernels::Activations::kBFloat16);
  const Loaded with_split = load_on(make_backend("cpu", kernels::Activations::kBFloat16),
                                    bundled_target(), dir.path(), {.max_length = 2048});
  for (const Case& c : {cases()[0], cases()[3], cases()[16]}) {
    EXPECT_EQ(greedy(*with_split.model, c.ids, 24, kProposals),
              greedy(model(), c.ids, 24, kProposals));
    std::vector<std::vector<int32_t>> proposals;
    for (Model* pair : {&model(), with_split.model.get()}) {
      Sequence sequence(*pair);
      sequence.prefill(c.ids, 512, Sample::kNone);
      sequence.draft(c.greedy[0], 15);
      const std::vector<int32_t> anchor = {c.greedy[0]};
      proposals.push_back(pair->step({{sequence.segment(anchor, 15, Sample::kNone)}})[0].tokens);
    }
    EXPECT_EQ(proposals[0], proposals[1]);
  }
}

// Greedy text is the same without the draft; the figures are for people.
TEST_P(GoldenServing, TextDoesNotDependOnTheDraft) {
  load(kernels::Activations::kBFloat16, GetParam());
  const auto timed = [&](const Case& c, int k) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int32_t> text = greedy(model(), c.ids, 64, k);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    fmt::print("case {}, prompt {}: 64 tokens at k = {}: {:.0f} tok/s\n", c.id, c.ids.size(), k,
               64 / elapsed.count());
    return text;
  };
  for (const Case& c : {cases()[3], cases()[14]}) {
    const std::vector<int32_t> plain = timed(c, 0);
    for (const int k : {1, 3, 6, 15}) EXPECT_EQ(timed(c, k), plain) << "k = " << k;
  }
}

}  // namespace
}  // namespace lagoon::model::testing
