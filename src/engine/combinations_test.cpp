// The bundled pair on the CPU backend behind the engine: text depends on the request and on the
// type of the caches alone, not on k, on the other requests, on the chunks of the prompt, nor on
// the room that there is. The same holds of all that a request may ask of sampling.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/model_dir.h"
#include "engine/engine_harness.h"
#include "kernels/cpu/backend.h"
#include "model/laguna.h"

namespace lagoon::engine {
namespace {

using kernels::CacheType;
using Clock = std::chrono::steady_clock;

constexpr int kSlots = 8;
// Threads wait for each other some hundred times a step, which takes long where other programs keep
// the processors: one is quicker there. model/exactness_test.cpp varies their number.
constexpr int kThreads = 1;
constexpr int kMaxTokens = 20;
constexpr int kProposals[] = {0, 1, 3, 6, 15, -1};  // -1: as the engine chooses
constexpr int kBatches[] = {1, 2, 4, 8};
constexpr int kChunks[] = {256, 7, 64};
constexpr CacheType kCacheTypes[] = {CacheType::kActivations, CacheType::kFP8};

struct Setting {
  int k = 0;
  int batch = 1;
  int chunk = 256;
  CacheType cache_type = CacheType::kActivations;
  int pool_tokens = 0;  // 0: room for all
  uint64_t clock = 0;   // seed of times that mean nothing; 0: the steady clock
};

// Each call is later by something between nothing and a millisecond, and in some stretches most
// of the time passes in every fifth call: what the others time then looks cheap.
std::function<Clock::time_point()> false_clock(uint64_t seed) {
  struct State {
    std::mutex mutex;
    std::mt19937_64 random;
    Clock::time_point now{};
    int calls = 0;
  };
  const auto state = std::make_shared<State>();
  state->random.seed(seed);
  return [state] {
    const std::lock_guard lock(state->mutex);
    const int call = state->calls++;
    const bool stretch = (call / 700) % 2 == 0;
    const uint64_t most = stretch && call % 5 != 0 ? 50'000 : 1'000'000;
    state->now += std::chrono::nanoseconds(state->random() % most);
    return state->now;
  };
}

std::string name_of(const Setting& s) {
  return fmt::format("k {}, {} at a time, chunks of {}, {} caches, room for {}", s.k, s.batch,
                     s.chunk, s.cache_type == CacheType::kFP8 ? "fp8" : "bfloat16", s.pool_tokens);
}

// Ten prompts, every other one answered by drawing.
std::vector<Request> requests() {
  std::ifstream file(LAGOON_SOURCE_DIR "/tests/golden/cases.json");
  std::vector<Request> all;
  for (const auto& entry : nlohmann::json::parse(file)) {
    if (entry.at("ids").size() > 400 || all.size() == 10) continue;
    Request request = test_request(entry.at("ids").get<std::vector<int32_t>>(), kMaxTokens);
    request.ignore_eos = true;
    if (all.size() % 2 == 1) request.sampling = {0.9F, 40, 0.95F, all.size()};
    all.push_back(std::move(request));
  }
  return all;
}

// Prompts of which each asks for something else; the first for nothing.
std::vector<Request> requests_of_all_fields() {
  std::vector<Request> all = requests();
  const Request base = all[2];
  all.assign(10, base);
  for (Request& request : all) request.logprobs = 3;
  for (const size_t i : {1, 5, 8}) all[i].sampling = {1.5F, 0, 1, i, 0.02F};
  for (const size_t i : {3, 4, 9}) all[i].sampling = {2, 0, 1, 1};
  all[2].penalties.repetition = 1.4F;
  all[3].penalties.presence = 2;
  all[4].penalties.frequency = 2;
  all[5].penalties = {0.8F, -0.7F, 0.6F};
  all[5].prompt_logprobs = 2;
  all[6].logit_bias = {{220, -30.0F}, {301, 6.5F}};
  all[7].prompt = requests()[0].prompt;  // which is answered with one word
  all[7].ignore_eos = false;
  all[7].min_tokens = 15;
  all[8].logit_bias = {{400, 4.0F}};
  all[8].penalties = {1.2F, 0.4F, 0.3F};
  all[8].prompt_logprobs = 0;
  return all;
}

// All that a caller sees of an answer but for the times.
std::string describe(const Outcome& outcome) {
  std::string text = fmt::format("{} {}", outcome.text, static_cast<int>(outcome.last.reason));
  const auto add = [&text](const TokenLogprob& e) {
    text += fmt::format(" {}:{}:{}", e.token, e.logprob, e.rank);
  };
  for (const Piece& piece : outcome.pieces) {
    text += fmt::format("\n{}", piece.token);
    if (piece.logprob) add(*piece.logprob);
    for (const TokenLogprob& entry : piece.top) add(entry);
  }
  for (const auto& entries : outcome.prompt_logprobs) {
    text += "\nprompt";
    for (const TokenLogprob& entry : entries) add(entry);
  }
  return text;
}

// A model on a backend of its own behind an engine.
struct Loaded {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<MetricsRegistry> metrics = std::make_unique<MetricsRegistry>();
  std::unique_ptr<Engine> engine;
};

class Combinations : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { rigs.clear(); }

  static Engine& engine(const Setting& setting) {
    Loaded& rig = rigs[{setting.chunk, setting.cache_type, setting.pool_tokens, setting.clock}];
    if (rig.engine) return *rig.engine;
    rig.backend = kernels::cpu::make_backend(kernels::Activations::kBFloat16, kThreads);
    const std::string models = LAGOON_SOURCE_DIR "/models/";
    const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
    const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
    model::LoadOptions options;
    options.slots = kSlots;
    options.max_rows = 256;
    options.max_length = 1024;
    options.cache_type = setting.cache_type;
    options.pool_tokens = setting.pool_tokens;
    if (setting.pool_tokens > 0) options.max_length = setting.pool_tokens;
    auto model = model::load(target, &draft, *rig.backend, options).value();
    rig.engine = Engine::start(std::move(model), test_tokenizer(), *rig.metrics, "pair",
                               {.proposals = 7,
                                .adaptive_proposals = true,
                                .prefill_rows = setting.chunk,
                                .max_prefill_stall = 1e9,
                                .clock = setting.clock > 0 ? false_clock(setting.clock) : nullptr});
    return *rig.engine;
  }

  static std::vector<std::vector<int32_t>> answers(const Setting& setting) {
    const std::vector<Outcome> ended = outcomes(setting, requests());
    std::vector<std::vector<int32_t>> tokens(ended.size());
    std::ranges::transform(ended, tokens.begin(), &Outcome::tokens);
    return tokens;
  }

  static std::vector<Outcome> outcomes(const Setting& setting, const std::vector<Request>& all) {
    Engine& on = engine(setting);
    std::vector<Outcome> ended;
    ended.reserve(all.size());
    for (size_t first = 0; first < all.size(); first += static_cast<size_t>(setting.batch)) {
      std::vector<Collector> collectors(
          std::min(static_cast<size_t>(setting.batch), all.size() - first));
      for (size_t i = 0; i < collectors.size(); ++i) {
        Request request = all[first + i];
        request.proposals = setting.k;
        EXPECT_TRUE(on.submit(std::move(request), collectors[i].sink()).ok());
      }
      for (Collector& collector : collectors) ended.push_back(collector.wait());
    }
    return ended;
  }

  // Compares with one request at a time, no draft, whole prompts.
  static void check(const Setting& setting) {
    auto& expected = plain[setting.cache_type];
    if (expected.empty()) {
      expected = answers({.cache_type = setting.cache_type});
      ASSERT_EQ(expected.size(), 10u);
    }
    EXPECT_EQ(answers(setting), expected) << name_of(setting);
  }

  static inline std::map<std::tuple<int, CacheType, int, uint64_t>, Loaded> rigs;
  static inline std::map<CacheType, std::vector<std::vector<int32_t>>> plain;
};

TEST_F(Combinations, OneAxisAtATime) {
  for (const CacheType type : kCacheTypes) {
    for (const int k : kProposals) check({.k = k, .cache_type = type});
    for (const int batch : kBatches) check({.batch = batch, .cache_type = type});
    for (const int chunk : kChunks) check({.chunk = chunk, .cache_type = type});
  }
  // The axis of types does change text: FP8 caches are really used.
  EXPECT_NE(plain[CacheType::kActivations], plain[CacheType::kFP8]);
}

// By a clock that says anything, proposals are chosen and left out without a reason: the draft is
// off for one step or for hundreds, and its context is caught up for some requests or for all.
TEST_F(Combinations, TimesThatMeanNothing) {
  std::vector<Request> all = requests_of_all_fields();
  all.resize(8);
  for (Request& request : all) {
    request.max_tokens = 250;  // rings go around
    request.min_tokens = 200;
  }
  const std::vector<Outcome> expected = outcomes({}, all);
  int drafts = 0;
  int steps = 0;  // of all answers
  for (const uint64_t seed : {2, 3}) {
    for (const int pool_tokens : {0, 700}) {
      const Setting setting = {.k = -1, .batch = 8, .pool_tokens = pool_tokens, .clock = seed};
      const std::vector<Outcome> got = outcomes(setting, all);
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(describe(got[i]), describe(expected[i])) << name_of(setting) << ", request " << i;
        const Usage& usage = got[i].last.usage;
        EXPECT_LE(usage.accepted_tokens, usage.drafted_tokens);
        drafts += usage.drafts;
        steps += usage.completion_tokens - usage.accepted_tokens;
      }
    }
  }
  EXPECT_GT(drafts, 100);
  EXPECT_LT(drafts, steps * 9 / 10);
}

TEST_F(Combinations, EveryFieldOfSampling) {
  const std::vector<Request> all = requests_of_all_fields();
  const std::vector<Outcome> expected = outcomes({}, all);
  for (const auto& [k, batch] :
       {std::pair(6, 1), std::pair(0, 8), std::pair(6, 8), std::pair(15, 8)}) {
    const Setting setting = {.k = k, .batch = batch};
    const std::vector<Outcome> got = outcomes(setting, all);
    int accepted = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(describe(got[i]), describe(expected[i])) << name_of(setting) << ", request " << i;
      accepted += got[i].last.usage.accepted_tokens;
    }
    EXPECT_EQ(accepted > 20, k > 0);
  }
  // None of the fields does nothing.
  const Outcome& unchanged = expected[0];
  for (size_t i = 1; i < all.size(); ++i) EXPECT_NE(expected[i].tokens, unchanged.tokens) << i;
  for (const size_t i : {3, 4}) EXPECT_NE(expected[i].tokens, expected[9].tokens) << i;
  EXPECT_GE(expected[7].tokens.size(), 15u);
  EXPECT_EQ(unchanged.pieces[0].top.size(), 3u);
  EXPECT_EQ(unchanged.pieces[0].logprob->token, unchanged.tokens[0]);
  EXPECT_EQ(unchanged.pieces[0].logprob->rank, 1);  // greedy
  EXPECT_EQ(unchanged.pieces[0].top[0].token, unchanged.tokens[0]);
  ASSERT_EQ(expected[5].prompt_logprobs.size(), all[5].prompt.size());
  EXPECT_TRUE(expected[5].prompt_logprobs[0].empty());
  EXPECT_EQ(expected[5].prompt_logprobs[1].size(), 3u);
  EXPECT_EQ(expected[5].prompt_logprobs[1][0].token, all[5].prompt[1]);
}

// Four that start with a page of 64 positions each and end with three, and room for two or three.
TEST_F(Combinations, TooFewPages) {
  std::vector<Request> all;
  for (const Request& given : requests()) {
    if (given.prompt.size() < 60) continue;
    Request request = test_request(
        {given.prompt.begin(), given.prompt.begin() + 46 + static_cast<int64_t>(all.size()) * 2},
        84);
    request.ignore_eos = true;
    request.logprobs = 1;
    if (all.size() % 2 == 1) request.penalties = {1.1F, 0.2F, 0.1F};
    if (all.size() > 2) request.sampling = {0.9F, 40, 0.95F, all.size()};
    all.push_back(request);
  }
  const std::vector<Outcome> expected = outcomes({}, all);
  for (const int k : {0, 6}) {
    const Setting setting = {.k = k, .batch = 4, .pool_tokens = 448};
    const std::vector<Outcome> got = outcomes(setting, all);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(describe(got[i]), describe(expected[i])) << name_of(setting) << ", request " << i;
    }
  }
  Counter& preemptions = rigs[{256, CacheType::kActivations, 448, 0}].metrics->counter(
      "vllm:num_preemptions_total", "", {{"engine", "0"}, {"model_name", "pair"}});
  EXPECT_GT(preemptions.value(), 1u);
}

TEST_F(Combinations, TwentyAtRandom) {
  std::mt19937 random(20);
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int i = 0; i < 20; ++i) {
    check({one_of(kProposals), one_of(kBatches), one_of(kChunks), one_of(kCacheTypes), 0});
  }
}

#ifdef LAGOON_SLOW

TEST_F(Combinations, All) {
  for (const CacheType type : kCacheTypes) {
    for (const int chunk : kChunks) {
      for (const int batch : kBatches) {
        for (const int k : kProposals) check({k, batch, chunk, type, 0});
      }
    }
  }
}

#endif

}  // namespace
}  // namespace lagoon::engine
