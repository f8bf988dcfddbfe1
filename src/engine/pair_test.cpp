// The bundled pair behind the engine: text does not depend on k or on who proposes, greedy or
// sampled, and the draft is worth having.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "checkpoint/model_dir.h"
#include "engine/engine_harness.h"
#include "engine/speculate.h"
#include "kernels/cpu/backend.h"
#include "kernels/ref/backend.h"
#include "model/laguna.h"

namespace lagoon::engine {
namespace {

constexpr int kMaxTokens = 40;  // as in the golden cases

struct Case {
  int id = 0;
  bool chat = false;
  std::vector<int32_t> prompt;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kAll = [] {
    std::ifstream file(LAGOON_SOURCE_DIR "/tests/golden/cases.json");
    std::vector<Case> read;
    for (const auto& entry : nlohmann::json::parse(file)) {
      read.push_back({entry.at("id"), entry.at("kind") == "chat",
                      entry.at("ids").get<std::vector<int32_t>>()});
    }
    return read;
  }();
  return kAll;
}

// A known answer to propose, right or wrong, to the engine whose proposer asks for it.
struct Replay {
  size_t prompt = 0;
  std::vector<int32_t> answer;
  bool wrong = false;

  std::vector<int32_t> propose(const std::vector<int32_t>& tokens, int k, int vocab) const {
    std::vector<int32_t> proposed;
    for (size_t at = tokens.size() - prompt;
         at < answer.size() && static_cast<int>(proposed.size()) < k; ++at) {
      proposed.push_back(wrong ? (answer[at] + 1) % vocab : answer[at]);
    }
    return proposed;
  }
};

// Engines of one backend.
struct Engines {
  std::unique_ptr<kernels::Backend> drafting_backend, replaying_backend;
  std::unique_ptr<Engine> drafting, replaying;
};

constexpr const char* kBackends[] = {"cpu", "ref"};

class Pair : public ::testing::TestWithParam<const char*> {
 protected:
  // Loading takes a moment, so the engines are shared by all tests.
  static void SetUpTestSuite() {
    for (const char* name : kBackends) {
      Engines& made = engines[name];
      made.drafting_backend = make_backend(name);
      made.replaying_backend = make_backend(name);
      made.drafting = start(*made.drafting_backend, nullptr);
      const int vocab = made.drafting->model_info().vocab;
      made.replaying =
          start(*made.replaying_backend, [vocab](const std::vector<int32_t>& tokens, int k) {
            return replay.propose(tokens, k, vocab);
          });
    }
  }
  static void TearDownTestSuite() { engines.clear(); }

  static std::unique_ptr<kernels::Backend> make_backend(const std::string& name) {
    const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
    return name == "ref" ? kernels::ref::make_backend(kernels::Activations::kBFloat16, threads)
                         : kernels::cpu::make_backend(kernels::Activations::kBFloat16, threads);
  }

  static std::unique_ptr<Engine> start(kernels::Backend& backend, Proposer proposer) {
    const std::string models = LAGOON_SOURCE_DIR "/models/";
    const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
    const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
    model::LoadOptions options;
    options.max_rows = 256;  // the longest prompt takes three chunks
    options.max_length = 1024;
    auto model = model::load(target, &draft, backend, options);
    return Engine::start(std::move(model).value(), test_tokenizer(), metrics, "pair", {},
                         std::move(proposer));
  }

  static Outcome run(Engine& engine, Request request, int k) {
    request.proposals = k;
    Collector collector;
    const auto submitted = engine.submit(std::move(request), collector.sink());
    EXPECT_TRUE(submitted.ok());
    return submitted.ok() ? collector.wait() : Outcome{};
  }

  Engine& drafting() { return *engines.at(GetParam()).drafting; }
  Engine& replaying() { return *engines.at(GetParam()).replaying; }
  // The slow reference runs fewer of the same.
  bool quick() const { return GetParam() != std::string("ref"); }

  static inline MetricsRegistry metrics;
  static inline std::map<std::string, Engines> engines;
  static inline Replay replay;  // written only while no request runs
};

INSTANTIATE_TEST_SUITE_P(Backends, Pair, ::testing::ValuesIn(kBackends),
                         [](const auto& test) { return test.param; });

TEST_P(Pair, GreedyTextDoesNotDependOnK) {
  ASSERT_EQ(cases().size(), 20u);
  int drafts = 0;
  int accepted = 0;
  for (const Case& given : cases()) {
    if (!quick() && !given.chat) continue;
    const Request request = test_request(given.prompt, kMaxTokens);
    const Outcome plain = run(drafting(), request, 0);
    EXPECT_EQ(plain.last.usage.drafts, 0);
    for (const int k : {1, 3, 6, 15}) {
      if (!quick() && k != 6) continue;
      const Outcome outcome = run(drafting(), request, k);
      EXPECT_EQ(outcome.tokens, plain.tokens) << "case " << given.id << ", k = " << k;
      EXPECT_EQ(outcome.text, plain.text);
      EXPECT_EQ(outcome.last.reason, plain.last.reason);
      if (k != 6 || !given.chat) continue;
      drafts += outcome.last.usage.drafts;
      accepted += outcome.last.usage.accepted_tokens;
    }
  }
  // A draft that is broken changes no text; it only stops being accepted.
  const double tokens_per_draft = 1 + static_cast<double>(accepted) / drafts;
  fmt::print("chat, k = 6: {:.2f} tokens per draft\n", tokens_per_draft);
  EXPECT_GE(tokens_per_draft, 4.0);  // 4.13 in the vectors, which are in float32
}

TEST_P(Pair, SampledTextDoesNotDependOnK) {
  int accepted = 0;
  size_t tokens = 0;
  int varied = 0;
  for (const Case& given : cases()) {
    if (given.prompt.size() > 100) continue;
    Request request = test_request(given.prompt, 24);
    request.ignore_eos = true;
    std::set<std::vector<int32_t>> answers;
    for (const uint64_t seed : {1U, 2U, 12345U}) {
      if (!quick() && seed > 2) continue;
      request.sampling = {0.8F, 20, 0.95F, seed};
      const Outcome plain = run(drafting(), request, 0);
      tokens += plain.tokens.size();
      answers.insert(plain.tokens);
      for (const int k : {6, 15}) {
        if (k == 15 && seed != 1) continue;
        const Outcome outcome = run(drafting(), request, k);
        EXPECT_EQ(outcome.tokens, plain.tokens)
            << "case " << given.id << ", seed " << seed << ", k = " << k;
        EXPECT_EQ(outcome.text, plain.text);
        accepted += outcome.last.usage.accepted_tokens;
      }
    }
    if (answers.size() > 1) ++varied;
  }
  EXPECT_GT(varied, 5);  // it was sampled, and proposals were accepted nevertheless
  EXPECT_GT(accepted, static_cast<int>(tokens / 4));
}

TEST_P(Pair, OracleIsAcceptedWholeAndAdversaryRefusedWhole) {
  for (const Case& given : cases()) {
    if (given.prompt.size() > 100) continue;
    const Request request = test_request(given.prompt, kMaxTokens);
    replay = {given.prompt.size(), {}, false};
    const Outcome plain = run(replaying(), request, 0);
    const int count = static_cast<int>(plain.tokens.size());
    for (const int k : {6, 15}) {
      replay = {given.prompt.size(), plain.tokens, false};
      const Outcome right = run(replaying(), request, k);
      EXPECT_EQ(right.tokens, plain.tokens);
      EXPECT_EQ(right.last.usage.accepted_tokens, right.last.usage.drafted_tokens);
      EXPECT_EQ(right.last.usage.steps, 1 + (count - 1 + k) / (k + 1));
    }
    replay.wrong = true;
    const Outcome wrong = run(replaying(), request, 6);
    EXPECT_EQ(wrong.tokens, plain.tokens);
    EXPECT_EQ(wrong.text, plain.text);
    EXPECT_EQ(wrong.last.usage.accepted_tokens, 0);
    EXPECT_GT(wrong.last.usage.drafted_tokens, 0);
    EXPECT_EQ(wrong.last.usage.steps, count);
  }
}

TEST_P(Pair, Answers) {
  const Outcome outcome = run(drafting(), test_request(cases().at(0).prompt, kMaxTokens), 6);
  EXPECT_EQ(outcome.text, "Paris");  // "What is the capital of France? ..."
  EXPECT_EQ(outcome.last.reason, FinishReason::kStop);
}

// What `lagoon bench` times with: proposals without a draft, and prompts that count as computed.
class WithoutADraft : public ::testing::TestWithParam<kernels::CacheType> {
 protected:
  static constexpr int kProposals = 15;

  WithoutADraft() {
    const auto target =
        checkpoint::ModelDir::open(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4").value();
    model::LoadOptions options;
    options.max_length = 2048;
    options.cache_type = GetParam();
    options.random_caches = true;
    options.foreign_proposals = kProposals;
    auto model = model::load(target, nullptr, *backend_, options).value();
    const int vocab = model->info().vocab;
    engine_ = Engine::start(std::move(model), test_tokenizer(), metrics_, "alone",
                            {.proposals = kProposals}, random_proposer(vocab));
  }

  Outcome run(Request request) {
    Collector collector;
    EXPECT_TRUE(engine_->submit(std::move(request), collector.sink()).ok());
    return collector.wait();
  }

  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::cpu::make_backend(kernels::Activations::kBFloat16, 2);
  MetricsRegistry metrics_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(WithoutADraft, RandomProposalsDoNotChangeTheText) {
  Request request;
  request.prompt = cases().front().prompt;
  request.max_tokens = 600;  // rings go around
  request.ignore_eos = true;
  request.proposals = 0;
  const Outcome plain = run(request);
  request.proposals = kProposals;
  EXPECT_EQ(run(request).tokens, plain.tokens);
}

TEST_P(WithoutADraft, AComputedPromptIsNotComputed) {
  Request request;
  request.max_tokens = 20;
  request.ignore_eos = true;
  for (int i = 0; i < 1500; ++i) request.prompt.push_back(300 + i % 700);
  request.computed = 1500;
  Collector refused;
  EXPECT_FALSE(engine_->submit(request, refused.sink()).ok());
  request.computed = 1499;
  const Outcome first = run(request);
  EXPECT_EQ(first.tokens.size(), 20u);
  EXPECT_EQ(run(request).tokens, first.tokens);
  // The last token of each of the two prompts.
  EXPECT_NE(metrics_.render().find("prompt_tokens_total{engine=\"0\",model_name=\"alone\"} 2\n"),
            std::string::npos);
  request.computed = 0;
  EXPECT_NE(run(request).tokens, first.tokens);
}

INSTANTIATE_TEST_SUITE_P(Caches, WithoutADraft,
                         ::testing::Values(kernels::CacheType::kActivations,
                                           kernels::CacheType::kFP8));

}  // namespace
}  // namespace lagoon::engine
