// Too few pages, prompts beside answers, a model that fails: what a busy or broken engine does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <tuple>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

using ::testing::HasSubstr;

// A request that uses everything at once, differently for each i.
Request varied_request(int i) {
  Request request = test_request(test_prompt(1 + i * 37 % 60, i), 20 + i * 13 % 40);
  if (i % 2 == 0) request.sampling = {0.8F, 20, 0.95F, static_cast<uint64_t>(i)};
  if (i % 3 == 0) request.penalties = {1.2F, 0.3F, 0.1F};
  if (i % 4 == 1) request.logit_bias = {{300, 2.0F}, {301, 1.0F}, {300, -2.0F}};
  if (i % 2 == 1) request.logprobs = i % 5;
  if (i % 3 == 1) request.prompt_logprobs = i % 4;
  request.proposals = i % 7;
  return request;
}

// Tokens, text of pieces, log-probabilities and what the cache held last, as plain decoding has it.
void expect_plain(const Rig& rig, const Request& request, const Outcome& outcome) {
  const std::vector<int32_t> answer = rig.target.generate(request, request.max_tokens);
  ASSERT_EQ(outcome.tokens, answer);
  EXPECT_EQ(outcome.last.reason, FinishReason::kLength);
  EXPECT_EQ(outcome.last.usage.completion_tokens, request.max_tokens);
  uint64_t chain = kEmptyChain;
  std::vector<std::vector<TokenLogprob>> prompt;
  for (const int32_t token : request.prompt) {
    prompt.push_back(request.prompt_logprobs < 0 || prompt.empty()
                         ? std::vector<TokenLogprob>()
                         : fake_logprobs(chain, token, request.prompt_logprobs));
    chain = extend_chain(chain, token);
  }
  if (request.prompt_logprobs < 0) prompt.clear();
  const auto tuples = [](const std::vector<TokenLogprob>& entries) {
    std::vector<std::tuple<int32_t, float, int32_t>> all;
    all.reserve(entries.size());
    for (const TokenLogprob& e : entries) all.emplace_back(e.token, e.logprob, e.rank);
    return all;
  };
  ASSERT_EQ(outcome.prompt_logprobs.size(), prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_EQ(tuples(outcome.prompt_logprobs[i]), tuples(prompt[i])) << i;
  }
  for (size_t i = 0; i < answer.size(); ++i) {
    std::vector<TokenLogprob> entries;
    if (outcome.pieces[i].logprob) entries.push_back(*outcome.pieces[i].logprob);
    entries.insert(entries.end(), outcome.pieces[i].top.begin(), outcome.pieces[i].top.end());
    EXPECT_EQ(tuples(entries), request.logprobs < 0
                                   ? tuples({})
                                   : tuples(fake_logprobs(chain, answer[i], request.logprobs)));
    chain = extend_chain(chain, answer[i]);
  }
  // Of the sequences that were computed the whole one has these rows, by class too.
  const std::vector<uint64_t> cache = FakeTarget::cache_of(request.prompt, answer);
  EXPECT_TRUE(std::ranges::any_of(rig.record->sequences,
                                  [&](const auto& sequence) { return sequence.cache == cache; }));
}

void run_all(Rig& rig, int requests) {
  std::vector<Collector> collectors(static_cast<size_t>(requests));
  for (int i = 0; i < requests; ++i) {
    const auto id =
        rig.engine->submit(varied_request(i), collectors[static_cast<size_t>(i)].sink());
    ASSERT_TRUE(id.ok()) << id.error().message;
  }
  std::vector<Outcome> outcomes;
  outcomes.reserve(collectors.size());
  for (Collector& collector : collectors) outcomes.push_back(collector.wait());
  rig.engine->shutdown();
  for (int i = 0; i < requests; ++i) {
    expect_plain(rig, varied_request(i), outcomes[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
  EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
  EXPECT_EQ(rig.gauge("vllm:num_requests_waiting"), 0);
}

TEST(Preemption, GivesTheSameTextCacheAndLogprobs) {
  for (const int pages : {8, 10, 14, 200}) {  // of 16: the longest request needs 8
    Rig rig;
    rig.fake.info.slots = 6;
    rig.fake.info.pages = pages;
    rig.options.prefill_rows = 24;
    rig.start();
    run_all(rig, 40);
    const uint64_t preemptions = rig.counter("vllm:num_preemptions_total");
    if (pages == 200) {
      EXPECT_EQ(preemptions, 0u);
    } else {
      EXPECT_GT(preemptions, 0u);
    }
    // What is computed again is not counted again.
    uint64_t prompt_tokens = 0;
    for (int i = 0; i < 40; ++i) prompt_tokens += varied_request(i).prompt.size();
    EXPECT_EQ(rig.counter("vllm:prompt_tokens_total"), prompt_tokens);
    EXPECT_EQ(rig.observations("vllm:request_queue_time_seconds"), 40);
  }
}

// The oldest is never preempted, so it ends first among equals, and nobody waits for ever.
TEST(Preemption, OldestGoesOn) {
  Rig rig;
  rig.fake.info.slots = 4;
  rig.fake.info.pages = 8;
  rig.start();
  std::mutex mutex;
  std::vector<int> order;
  std::vector<Collector> collectors(4);
  for (int i = 0; i < 4; ++i) {
    const EventSink sink = [&, i,
                            collect = collectors[static_cast<size_t>(i)].sink()](Event event) {
      if (event.finished) {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      collect(std::move(event));
    };
    ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10, i), 100), sink).ok());
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(collectors[static_cast<size_t>(i)].wait().tokens,
              rig.target.generate(test_prompt(10, i), {}, 100));
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_GT(rig.counter("vllm:num_preemptions_total"), 0u);
}

// A preempted request that waits, one that recomputes, one that runs: each can be cancelled.
TEST(Preemption, CancelledAtAnyTime) {
  for (int at = 5; at < 90; at += 7) {
    Rig rig;
    rig.fake.info.slots = 3;
    rig.fake.info.pages = 8;
    rig.options.prefill_rows = 16;
    std::latch submitted(3);  // or the third would come when its turn to be cancelled is over
    rig.fake.before_step = [&](int step) {
      submitted.wait();
      if (step == at) rig.engine->cancel(3);
    };
    rig.start();
    std::vector<Collector> collectors(3);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(rig.engine
                      ->submit(test_request(test_prompt(10, i), 80),
                               collectors[static_cast<size_t>(i)].sink())
                      .ok());
      submitted.count_down();
    }
    for (int i = 0; i < 3; ++i) {
      const Outcome outcome = collectors[static_cast<size_t>(i)].wait();
      EXPECT_EQ(outcome.last.reason, i == 2 ? FinishReason::kAborted : FinishReason::kLength);
      EXPECT_EQ(outcome.tokens, rig.target.generate(test_prompt(10, i), {},
                                                    static_cast<int>(outcome.tokens.size())));
    }
    rig.engine->shutdown();
    EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
    EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
    EXPECT_EQ(rig.gauge("vllm:num_requests_waiting"), 0);
  }
}

// Accept counts by script, pages that run out and requests that are cancelled, all at once: what
// ends by itself has plain decoding's text and cache, what is cancelled the beginning of it.
TEST(Preemption, WithScriptedAcceptanceAndAborts) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Rig rig;
    rig.fake.info.slots = 5;
    rig.fake.info.pages = 9;
    rig.options.proposals = 7;
    rig.options.prefill_rows = 20;
    rig.options.max_waiting = 100;
    rig.proposer = [target = rig.target, seed](const std::vector<int32_t>& tokens, int k) {
      uint64_t chain = kEmptyChain;
      for (const int32_t token : tokens) chain = extend_chain(chain, token);
      std::vector<int32_t> proposed;
      for (int j = 0; j < k; ++j) {
        const int32_t right = target.next(chain, 0, {});
        const bool wrong = (chain ^ seed) % 5 == 0;
        proposed.push_back(wrong ? right + 1 : right);
        chain = extend_chain(chain, proposed.back());
      }
      return proposed;
    };
    std::mt19937 random(seed);
    rig.fake.before_step = [&](int step) {
      if (step % 6 == 5) rig.engine->cancel(1 + random() % 30);
    };
    rig.start();
    std::vector<Request> requests;
    std::vector<Collector> collectors(30);
    for (int i = 0; i < 30; ++i) {
      requests.push_back(test_request(test_prompt(1 + i * 37 % 60, i), 20 + i * 13 % 40));
      ASSERT_TRUE(
          rig.engine->submit(requests.back(), collectors[static_cast<size_t>(i)].sink()).ok());
    }
    int aborted = 0;
    std::vector<Outcome> outcomes;
    outcomes.reserve(collectors.size());
    for (Collector& collector : collectors) outcomes.push_back(collector.wait());
    rig.engine->shutdown();
    for (size_t i = 0; i < requests.size(); ++i) {
      if (outcomes[i].last.reason == FinishReason::kLength) {
        expect_plain(rig, requests[i], outcomes[i]);
        continue;
      }
      ++aborted;
      EXPECT_EQ(outcomes[i].tokens,
                rig.target.generate(requests[i], static_cast<int>(outcomes[i].tokens.size())));
    }
    EXPECT_GT(aborted, 2);
    EXPECT_LT(aborted, 28);
    EXPECT_GT(rig.counter("vllm:num_preemptions_total"), 0u);
    EXPECT_GT(rig.counter("vllm:spec_decode_num_accepted_tokens_total"), 100u);
    EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
    EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
  }
}

TEST(Requests, AtMostMaxNumSeqsRunAtATime) {
  Rig rig;
  rig.fake.info.slots = 6;
  rig.options.max_num_seqs = 2;
  rig.options.max_num_batched_tokens = 9;
  rig.start();
  run_all(rig, 12);
  for (const FakeCall& call : rig.record->calls) {
    if (call.kind != FakeCall::Kind::kStep) continue;
    EXPECT_LE(call.parts.size(), 2u);
    int rows = 0;
    for (const FakeCall::Part& part : call.parts) rows += part.rows;
    EXPECT_LE(rows, 9);
  }
}

// A clock that only the model moves: 20 ms a step and 1 ms a row.
void use_slow_model(Rig& rig) {
  // The engine's thread reads the clock to its end.
  const auto microseconds = std::make_shared<std::atomic<int64_t>>(1'000'000);
  rig.fake.after_step = [=](int rows) { *microseconds += 20'000 + 1000 * rows; };
  rig.options.clock = [=] {
    return std::chrono::steady_clock::time_point(std::chrono::microseconds(*microseconds));
  };
  rig.options.max_prefill_stall = 0.25;
}

TEST(Prefill, HoldsNoAnswerUpForLongerThanTheStall) {
  Rig rig;
  rig.fake.info.slots = 4;
  rig.fake.info.max_rows = 8192;
  rig.fake.info.max_positions = 100'000;
  rig.fake.info.pages = 3000;
  use_slow_model(rig);
  rig.start();
  Collector answer;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 400), answer.sink()).ok());
  answer.wait_for_events(3);
  Collector prompt;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(20'000), 5), prompt.sink()).ok());
  EXPECT_EQ(prompt.wait().tokens.size(), 5u);
  answer.wait();
  rig.engine->shutdown();
  int with_prompt = 0;
  int most = 0;
  for (const FakeCall& call : rig.record->calls) {
    if (call.kind != FakeCall::Kind::kStep || call.parts.size() < 2) continue;
    int rows = 0;
    bool prompt_too = false;
    for (const FakeCall::Part& part : call.parts) {
      rows += part.rows;
      prompt_too = prompt_too || part.row_class == model::RowClass::kPrompt;
    }
    if (prompt_too) ++with_prompt;
    most = std::max(most, rows);
  }
  // 230 rows fit; the first chunk is a guess.
  EXPECT_LE(20 + most, 280);
  EXPECT_LE(with_prompt, 20'000 / 200);
}

TEST(Prefill, ShortPromptsDoNotWaitForALongOne) {
  Rig rig;
  rig.fake.info.slots = 4;
  rig.fake.info.max_rows = 256;
  rig.fake.info.max_positions = 100'000;
  rig.fake.info.pages = 3000;
  use_slow_model(rig);
  std::promise<void> both_there;
  rig.fake.before_step = [&](int step) {
    if (step == 1) both_there.get_future().wait();
  };
  rig.start();
  Collector long_one;
  Collector short_one;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(20'000), 5), long_one.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(100, 2), 5), short_one.sink()).ok());
  both_there.set_value();
  short_one.wait();
  EXPECT_EQ(long_one.now().events, 0);
  long_one.wait();
  rig.engine->shutdown();
  // The short one had its prompt done within a few steps, and the long one got half of each.
  int steps = 0;
  for (const FakeCall& call : rig.record->calls) {
    if (call.kind != FakeCall::Kind::kStep || call.parts.size() < 2) continue;
    ++steps;
    int long_rows = 0;
    int rows = 0;
    for (const FakeCall::Part& part : call.parts) {
      rows += part.rows;
      if (part.slot == 0) long_rows = part.rows;
    }
    EXPECT_GE(long_rows * 2 + 1, rows);
  }
  EXPECT_LE(steps, 10);
}

TEST(Progress, TellsOfAStepThatHangs) {
  std::atomic<int64_t> seconds{100};
  std::promise<void> reached;
  std::promise<void> open;
  Rig rig;
  rig.options.max_waiting = 5;
  rig.fake.before_step = [&](int step) {
    if (step != 2) return;
    reached.set_value();
    open.get_future().wait();
  };
  rig.options.clock = [&] {
    return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds));
  };
  rig.start();
  seconds = 5000;  // nothing to do: no progress is missed
  EXPECT_EQ(rig.engine->progress().seconds_since_progress, 0);
  Collector running;
  Collector waiting;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 5), running.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 5), waiting.sink()).ok());
  reached.get_future().wait();
  seconds = 5037;
  const Progress progress = rig.engine->progress();
  EXPECT_EQ(progress.running, 1);
  EXPECT_EQ(progress.waiting, 1);
  EXPECT_EQ(progress.seconds_since_progress, 37);
  EXPECT_GT(progress.kv_usage, 0);
  EXPECT_FALSE(progress.failed);
  open.set_value();
  running.wait();
  waiting.wait();
  EXPECT_EQ(rig.engine->progress().running, 0);
  EXPECT_EQ(rig.engine->progress().seconds_since_progress, 0);
}

TEST(Failure, EndsEveryStreamAndTakesNothingMore) {
  Rig rig;
  rig.fake.info.slots = 2;
  rig.fake.fails_at_step = 3;
  std::latch submitted(5);  // or the last ones could come when it has failed
  rig.fake.before_step = [&](int) { submitted.wait(); };
  rig.start();
  std::vector<Collector> collectors(5);
  for (Collector& collector : collectors) {
    ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 50), collector.sink()).ok());
    submitted.count_down();
  }
  for (Collector& collector : collectors) {
    const Outcome outcome = collector.wait();
    EXPECT_EQ(outcome.last.reason, FinishReason::kError);
    EXPECT_EQ(outcome.last.error, "the fake has failed");
    EXPECT_LE(outcome.tokens.size(), 3u);  // of steps before it
  }
  EXPECT_TRUE(rig.engine->progress().failed);
  EXPECT_EQ(rig.engine->progress().running, 0);
  const auto refused = rig.engine->submit(test_request(test_prompt(10), 5), [](const Event&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("the fake has failed"));
  EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "error"}}), 5u);
  rig.engine->cancel(1);
  rig.engine->shutdown();
}

}  // namespace
}  // namespace lagoon::engine
