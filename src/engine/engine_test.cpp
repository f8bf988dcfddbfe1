// The text and the cache are those of plain decoding, whatever proposes and however many.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

kernels::Sampling sampled(uint64_t seed) {
  return {0.8F, 20, 0.95F, seed};
}

// Outcome and cache of a request that ran to its max_tokens, sequence number `index` of the record.
void expect_plain(const Rig& rig, const Request& request, const Outcome& outcome, size_t index) {
  const std::vector<int32_t> expected =
      rig.target.generate(request.prompt, request.sampling, request.max_tokens);
  EXPECT_EQ(outcome.tokens, expected);
  EXPECT_EQ(outcome.last.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.last.usage.prompt_tokens, static_cast<int>(request.prompt.size()));
  EXPECT_EQ(outcome.last.usage.completion_tokens, request.max_tokens);
  text::Detokenizer detokenizer(test_tokenizer());
  std::string text;
  for (const int32_t token : expected) text += detokenizer.push(token);
  EXPECT_EQ(outcome.text, text + detokenizer.finish());
  ASSERT_LT(index, rig.record->sequences.size());
  EXPECT_EQ(rig.record->sequences[index].cache, FakeTarget::cache_of(request.prompt, expected));
}

// Proposes the plain text but for what `wrong(position of the proposal)` says.
template <typename Wrong>
Proposer proposer_of(const FakeTarget& target, const Request& request, Wrong wrong) {
  const std::vector<int32_t> answer =
      target.generate(request.prompt, request.sampling, request.max_tokens + 16);
  return
      [answer, prompt = request.prompt.size(), wrong](const std::vector<int32_t>& tokens, int k) {
        std::vector<int32_t> proposed;
        for (int j = 0; j < k; ++j) {
          const size_t position = tokens.size() + static_cast<size_t>(j);
          const int32_t right = answer[position - prompt];
          proposed.push_back(wrong(position) ? right + 1 : right);
        }
        return proposed;
      };
}

TEST(Engine, PlainDecodingOfPromptsOfAllLengths) {
  Rig rig;
  rig.options.prefill_rows = 16;
  rig.start();
  for (int length = 1; length <= 50; ++length) {
    const Request request = test_request(test_prompt(length, length), 12);
    const Outcome outcome = rig.run(request);
    expect_plain(rig, request, outcome, static_cast<size_t>(length) - 1);
    EXPECT_EQ(outcome.last.usage.steps, 12);
    EXPECT_EQ(outcome.last.usage.drafts, 0);
  }
}

TEST(Engine, PrefillIsChunkedAndCommitted) {
  Rig rig;
  rig.options.prefill_rows = 16;
  rig.start();
  rig.run(test_request(test_prompt(40), 1));
  std::vector<FakeCall::Kind> kinds;
  std::vector<int> numbers;
  for (const FakeCall& call : rig.record->calls) {
    ASSERT_EQ(call.parts.size(), 1u);
    kinds.push_back(call.kind);
    const FakeCall::Part& part = call.parts[0];
    numbers.push_back(call.kind == FakeCall::Kind::kStep ? part.rows : part.position);
    if (call.kind != FakeCall::Kind::kStep) continue;
    EXPECT_EQ(part.row_class, model::RowClass::kPrompt);
    EXPECT_EQ(part.sample,
              part.position + part.rows == 40 ? model::Sample::kLast : model::Sample::kNone);
  }
  using Kind = FakeCall::Kind;
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kStep, Kind::kCommit, Kind::kStep, Kind::kCommit,
                                      Kind::kStep, Kind::kCommit}));
  EXPECT_EQ(numbers, (std::vector<int>{16, 16, 16, 32, 8, 40}));
}

TEST(Engine, FirstTokenIsSampled) {
  Rig rig;
  rig.options.proposals = 6;
  rig.start();
  std::set<int32_t> first;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Request request = test_request(test_prompt(9), 3);
    request.sampling = sampled(seed);
    const Outcome outcome = rig.run(request);
    EXPECT_EQ(outcome.tokens, rig.target.generate(request.prompt, request.sampling, 3));
    first.insert(outcome.tokens.at(0));
  }
  EXPECT_EQ(first.size(), 3u);  // all candidates of the fake
}

TEST(Engine, EveryKGivesThePlainText) {
  for (int k = 0; k <= 15; ++k) {
    Rig rig;
    rig.options.proposals = k;
    rig.start();
    int drafted = 0;
    for (int i = 0; i < 12; ++i) {
      Request request = test_request(test_prompt(1 + 7 * i, i), 40);
      if (i % 2 == 1) request.sampling = sampled(static_cast<uint64_t>(i));
      const Outcome outcome = rig.run(request);
      expect_plain(rig, request, outcome, static_cast<size_t>(i));
      drafted += outcome.last.usage.drafted_tokens;
      EXPECT_EQ(outcome.last.usage.steps + outcome.last.usage.accepted_tokens, 40);
    }
    EXPECT_EQ(drafted > 0, k > 0);
  }
}

TEST(Engine, RandomPromptsSampledTextDoesNotDependOnK) {
  std::mt19937 random(7);
  Rig rig;
  rig.fake.draft_hits = 80;
  rig.options.prefill_rows = 24;
  rig.start();
  for (int i = 0; i < 150; ++i) {
    Request request = test_request({}, 1 + static_cast<int>(random() % 60));
    const size_t length = 1 + random() % 90;
    while (request.prompt.size() < length) {
      request.prompt.push_back(static_cast<int32_t>(random() % 4096));
    }
    request.sampling = sampled(random());
    request.proposals = static_cast<int>(random() % 16);
    expect_plain(rig, request, rig.run(request), static_cast<size_t>(i));
  }
}

TEST(Engine, OracleIsAcceptedWhole) {
  for (int k = 1; k <= 15; ++k) {
    const Request request = test_request(test_prompt(20), 1 + 4 * (k + 1));
    Rig rig;
    rig.options.proposals = k;
    rig.proposer = proposer_of(rig.target, request, [](size_t) { return false; });
    rig.start();
    const Outcome outcome = rig.run(request);
    expect_plain(rig, request, outcome, 0);
    EXPECT_EQ(outcome.last.usage.steps, 5);
    EXPECT_EQ(outcome.last.usage.drafts, 4);
    EXPECT_EQ(outcome.last.usage.drafted_tokens, 4 * k);
    EXPECT_EQ(outcome.last.usage.accepted_tokens, 4 * k);
  }
}

TEST(Engine, AdversaryIsRefusedWhole) {
  for (int k = 1; k <= 15; ++k) {
    const Request request = test_request(test_prompt(20), 40);
    Rig rig;
    rig.options.proposals = k;
    rig.proposer = proposer_of(rig.target, request, [](size_t) { return true; });
    rig.start();
    const Outcome outcome = rig.run(request);
    expect_plain(rig, request, outcome, 0);
    EXPECT_EQ(outcome.last.usage.steps, 40);
    EXPECT_EQ(outcome.last.usage.drafts, 38);  // the first token has none, the last needs none
    EXPECT_EQ(outcome.last.usage.accepted_tokens, 0);
    for (const FakeCall& call : rig.record->calls) EXPECT_NE(call.kind, FakeCall::Kind::kDraft);
  }
}

TEST(Engine, RandomAcceptPatterns) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const uint32_t pattern = random();
    const auto wrong = [pattern](size_t position) {
      return ((pattern ^ (position * 2654435761u)) >> 13) % 4 == 0;
    };
    Request request = test_request(test_prompt(1 + static_cast<int>(random() % 40)), 50);
    if (round % 2 == 1) request.sampling = sampled(random());
    Rig rig;
    rig.options.proposals = 1 + round % 15;
    rig.proposer = proposer_of(rig.target, request, wrong);
    rig.start();
    const Outcome outcome = rig.run(request);
    expect_plain(rig, request, outcome, 0);
    // A block ends at the first wrong position, and begins after the token drawn there.
    int accepted = 0;
    size_t position = request.prompt.size() + 1;
    const size_t end = request.prompt.size() + 50;
    while (position < end) {
      size_t k = std::min<size_t>(static_cast<size_t>(rig.options.proposals), end - position - 1);
      for (; k > 0 && !wrong(position); --k, ++position) ++accepted;
      ++position;
    }
    EXPECT_EQ(outcome.last.usage.accepted_tokens, accepted);
  }
}

TEST(Engine, ProposerMayGiveFewerOrNone) {
  const Request request = test_request(test_prompt(5), 40);
  Rig rig;
  rig.options.proposals = 6;
  const Proposer oracle = proposer_of(rig.target, request, [](size_t) { return false; });
  rig.proposer = [oracle, call = size_t{0}](const std::vector<int32_t>& tokens, int k) mutable {
    std::vector<int32_t> proposed = oracle(tokens, k);
    proposed.resize(std::min(proposed.size(), call++ % 4));
    return proposed;
  };
  rig.start();
  const Outcome outcome = rig.run(request);
  expect_plain(rig, request, outcome, 0);
  const Usage& usage = outcome.last.usage;
  EXPECT_EQ(usage.accepted_tokens, usage.drafted_tokens);
  EXPECT_GT(usage.drafts, 0);
  EXPECT_LT(usage.drafts, usage.steps - 2);  // steps with none are not drafts
}

TEST(Engine, DraftIsAskedForWhatIsVerified) {
  Rig rig;
  rig.options.proposals = 4;
  rig.fake.draft_hits = 100;
  rig.start();
  rig.run(test_request(test_prompt(10), 9));  // 1 + (4 + 1) + (2 + 1)
  std::vector<int> asked;
  std::vector<int> verified;
  std::vector<int> lengths;
  for (const FakeCall& call : rig.record->calls) {
    const FakeCall::Part& part = call.parts.at(0);
    if (call.kind == FakeCall::Kind::kDraft) asked.push_back(part.rows);
    if (call.kind == FakeCall::Kind::kStep) verified.push_back(part.proposals);
    if (call.kind == FakeCall::Kind::kCommit) lengths.push_back(part.position);
  }
  EXPECT_EQ(asked, (std::vector<int>{4, 2}));
  EXPECT_EQ(verified, (std::vector<int>{0, 4, 2}));
  EXPECT_EQ(lengths, (std::vector<int>{10, 15, 18}));
}

TEST(Engine, RequestChoosesItsOwnK) {
  Rig rig;
  rig.options.proposals = 6;
  rig.fake.draft_hits = 100;
  rig.start();
  for (const int k : {0, 1, 6, 15}) {
    Request request = test_request(test_prompt(10), 1 + 2 * (k + 1));
    request.proposals = k;
    const Outcome outcome = rig.run(request);
    EXPECT_EQ(outcome.last.usage.drafted_tokens, 2 * k);
    EXPECT_EQ(outcome.last.usage.accepted_tokens, 2 * k);
  }
}

TEST(Engine, SequencesSideBySide) {
  for (const int max_rows : {3, 8, 64}) {
    Rig rig;
    rig.fake.info.slots = 3;
    rig.fake.info.max_rows = max_rows;
    rig.fake.info.pages = 20;  // 320 positions: not always room for three
    rig.options.proposals = 6;
    rig.start();
    constexpr int kRequests = 20;
    std::vector<Request> requests;
    std::vector<Collector> collectors(kRequests);
    for (int i = 0; i < kRequests; ++i) {
      Request request = test_request(test_prompt(1 + (i * 29) % 90, i), 10 + (i * 13) % 50);
      if (i % 3 == 0) request.sampling = sampled(static_cast<uint64_t>(i));
      request.proposals = i % 4 == 0 ? -1 : i % 10;
      requests.push_back(request);
      ASSERT_TRUE(rig.engine->submit(request, collectors[static_cast<size_t>(i)].sink()).ok());
    }
    for (size_t i = 0; i < kRequests; ++i) {
      const Outcome outcome = collectors[i].wait();
      EXPECT_EQ(outcome.tokens, rig.target.generate(requests[i].prompt, requests[i].sampling,
                                                    requests[i].max_tokens));
    }
    rig.engine.reset();
    EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
    size_t together = 0;
    for (const FakeCall& call : rig.record->calls) together = std::max(together, call.parts.size());
    EXPECT_EQ(together, 3u);
  }
}

}  // namespace
}  // namespace lagoon::engine
