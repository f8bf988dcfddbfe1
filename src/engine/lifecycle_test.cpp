// From submit() to the last event: refusals, the queue, cancelling, shutting down, threads.
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <future>
#include <latch>
#include <limits>
#include <random>
#include <thread>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

// Holds the engine's thread inside step number `step` until opened.
class Gate {
 public:
  explicit Gate(int step) : step_(step) {}
  std::function<void(int)> hook() {
    return [this](int step) {
      if (step != step_) return;
      reached_.set_value();
      opened_.get_future().wait();
    };
  }
  void wait_until_reached() { reached_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  int step_;
  std::promise<void> reached_;
  std::promise<void> opened_;
};

Error refusal(Rig& rig, Request request) {
  const auto sink = [](const Event&) { ADD_FAILURE() << "an event of a refused request"; };
  const Result<uint64_t> result = rig.engine->submit(std::move(request), sink);
  EXPECT_FALSE(result.ok());
  return result.ok() ? Error{} : result.error();
}

TEST(Submit, RefusesWhatCannotRun) {
  Rig rig;
  rig.start();
  const Request good = test_request(test_prompt(10), 5);
  const auto refused = [&](auto change) {
    Request request = good;
    change(request);
    const Error error = refusal(rig, request);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_EQ(refused([](Request& r) { r.prompt.clear(); }),
            "The prompt is empty; it needs at least one token.");
  EXPECT_EQ(refused([](Request& r) { r.prompt[3] = 4096; }),
            "Token id 4096 of the prompt is out of vocabulary: this model's ids are 0 to 4095.");
  refused([](Request& r) { r.prompt[3] = -1; });
  EXPECT_EQ(refused([](Request& r) { r.max_tokens = 0; }), "max_tokens must be at least 1, got 0.");
  refused([](Request& r) { r.max_tokens = -5; });
  refused([](Request& r) { r.proposals = 16; });
  refused([](Request& r) { r.proposals = -2; });
  refused([](Request& r) { r.sampling.temperature = -0.5F; });
  refused([](Request& r) { r.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); });
  refused([](Request& r) { r.sampling.temperature = std::numeric_limits<float>::infinity(); });
  refused([](Request& r) { r.sampling.top_p = 1.5F; });
  refused([](Request& r) { r.sampling.top_p = std::numeric_limits<float>::quiet_NaN(); });
  refused([](Request& r) { r.sampling.top_k = -1; });
  refused([](Request& r) { r.sampling.min_p = 1.1F; });
  refused([](Request& r) { r.sampling.min_p = -0.1F; });
  EXPECT_EQ(refused([](Request& r) { r.min_tokens = 6; }),
            "min_tokens must lie between 0 and max_tokens (5), got 6.");
  refused([](Request& r) { r.min_tokens = -1; });
  EXPECT_EQ(refused([](Request& r) { r.penalties.repetition = 0; }),
            "repetition_penalty must be a number above 0, got 0.");
  refused([](Request& r) { r.penalties.repetition = std::numeric_limits<float>::infinity(); });
  EXPECT_EQ(refused([](Request& r) { r.penalties.presence = 2.5F; }),
            "presence_penalty must lie between -2 and 2, got 2.5.");
  refused([](Request& r) { r.penalties.frequency = -3; });
  refused([](Request& r) { r.penalties.frequency = std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_EQ(refused([](Request& r) { r.logit_bias = {{5000, 1.0F}}; }),
            "Token id 5000 of logit_bias is out of vocabulary: this model's ids are 0 to 4095.");
  refused([](Request& r) { r.logit_bias = {{5, std::numeric_limits<float>::quiet_NaN()}}; });
  refused([](Request& r) { r.stop_tokens = {-1}; });
  refused([](Request& r) { r.logprobs = -2; });
  refused([](Request& r) { r.prompt_logprobs = 5000; });
  EXPECT_EQ(rig.run(good).last.reason, FinishReason::kLength);
}

TEST(Submit, RefusesWhatIsTooLongInVllmsWords) {
  Rig rig;
  rig.options.max_length = 100;
  rig.start();
  EXPECT_EQ(rig.engine->max_length(), 100);
  const Error error = refusal(rig, test_request(test_prompt(90), 11));
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message,
            "This model's maximum context length is 100 tokens. However, you requested 11 output "
            "tokens and your prompt contains at least 90 input tokens, for a total of at least 101 "
            "tokens. Please reduce the length of the input prompt or the number of requested "
            "output tokens.");
  refusal(rig, test_request(test_prompt(100), 1));
  refusal(rig, test_request(test_prompt(1), std::numeric_limits<int>::max()));
  EXPECT_EQ(rig.run(test_request(test_prompt(90), 10)).tokens.size(), 10u);
}

TEST(Submit, RefusesProposalsWithoutADraft) {
  Rig rig;
  rig.fake.info.max_proposals = 0;
  rig.start();
  Request request = test_request(test_prompt(10), 5);
  request.proposals = 1;
  refusal(rig, request);
  request.proposals = 0;
  EXPECT_EQ(rig.run(request).tokens.size(), 5u);
}

TEST(Queue, IsFirstInFirstOutAndBounded) {
  Gate gate(0);
  Rig rig;
  rig.fake.before_step = gate.hook();
  rig.options.max_waiting = 2;
  rig.start();
  std::vector<int> order;
  std::mutex mutex;
  std::vector<Collector> collectors(3);
  for (int i = 0; i < 3; ++i) {
    const EventSink sink = [&, i,
                            collect = collectors[static_cast<size_t>(i)].sink()](Event event) {
      if (event.finished) {
        const std::lock_guard lock(mutex);
        order.push_back(i);
      }
      collect(std::move(event));
    };
    ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10, i), 5), sink).ok());
  }
  const Error error = refusal(rig, test_request(test_prompt(10), 5));
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.message,
            "The queue is full: 2 requests are waiting, which is the limit. Try again later.");
  gate.wait_until_reached();
  EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 1);
  EXPECT_EQ(rig.gauge("vllm:num_requests_waiting"), 2);
  EXPECT_GT(rig.gauge("vllm:kv_cache_usage_perc"), 0);
  gate.open();
  for (Collector& collector : collectors) EXPECT_EQ(collector.wait().tokens.size(), 5u);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
  EXPECT_EQ(rig.gauge("vllm:num_requests_waiting"), 0);
  EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
  EXPECT_EQ(rig.run(test_request(test_prompt(10), 5)).tokens.size(), 5u);
}

TEST(Queue, NoneWaitsWhereNoneMay) {
  Gate gate(0);
  Rig rig;
  rig.fake.before_step = gate.hook();
  rig.options.max_waiting = 0;
  rig.start();
  Collector collector;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 5), collector.sink()).ok());
  EXPECT_EQ(refusal(rig, test_request(test_prompt(10), 5)).code, ErrorCode::kResourceExhausted);
  gate.open();
  collector.wait();
  EXPECT_EQ(rig.run(test_request(test_prompt(10), 5)).tokens.size(), 5u);
}

// In each step of a request of three prompt chunks and an answer in blocks.
TEST(Cancel, WithinAStepAtEveryStage) {
  for (int at = 0; at < 8; ++at) {
    Rig rig;
    uint64_t id = 0;
    rig.fake.before_step = [&](int step) {
      if (step == at) rig.engine->cancel(id);
    };
    rig.fake.draft_hits = 100;
    rig.options.proposals = 6;
    rig.options.prefill_rows = 16;
    rig.start();
    id = 1;  // the first that an engine gives
    const Request request = test_request(test_prompt(40), 200);
    Collector collector;
    const Result<uint64_t> submitted = rig.engine->submit(request, collector.sink());
    ASSERT_TRUE(submitted.ok());
    ASSERT_EQ(*submitted, id);
    const Outcome outcome = collector.wait();
    EXPECT_EQ(outcome.last.reason, FinishReason::kAborted);
    const int drawn = at < 2 ? 0 : 1 + 7 * (at - 2);
    EXPECT_EQ(outcome.tokens, rig.target.generate(request.prompt, {}, drawn));
    EXPECT_EQ(outcome.last.usage.completion_tokens, drawn);
    EXPECT_EQ(outcome.last.usage.prompt_tokens, 40);
    EXPECT_EQ(rig.counter("vllm:prompt_tokens_total"),
              static_cast<uint64_t>(std::min(40, 16 * (at + 1))));
    EXPECT_EQ(rig.counter("vllm:generation_tokens_total"), static_cast<uint64_t>(drawn));
    EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "abort"}}), 1u);
    EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
    EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
    EXPECT_EQ(rig.run(test_request(test_prompt(10), 5)).tokens.size(), 5u);
  }
}

TEST(Cancel, WhileQueued) {
  Gate gate(0);
  Rig rig;
  rig.fake.before_step = gate.hook();
  rig.start();
  Collector running;
  Collector queued;
  Collector behind;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 50), running.sink()).ok());
  bool waited_its_turn = true;
  const EventSink sink = [&, collect = queued.sink()](Event event) {
    waited_its_turn = running.now().finished;
    collect(std::move(event));
  };
  const Result<uint64_t> id = rig.engine->submit(test_request(test_prompt(10), 50), sink);
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 5), behind.sink()).ok());
  gate.wait_until_reached();
  rig.engine->cancel(*id);
  rig.engine->cancel(*id);
  gate.open();
  const Outcome outcome = queued.wait();
  EXPECT_FALSE(waited_its_turn);
  EXPECT_EQ(outcome.last.reason, FinishReason::kAborted);
  EXPECT_EQ(outcome.events, 1);
  EXPECT_EQ(outcome.last.usage.prompt_tokens, 10);
  EXPECT_EQ(running.wait().tokens.size(), 50u);
  EXPECT_EQ(behind.wait().tokens.size(), 5u);
  EXPECT_EQ(rig.counter("vllm:prompt_tokens_total"), 20u);
}

TEST(Cancel, OfAFinishedOrUnknownRequestIsNothing) {
  Rig rig;
  rig.start();
  Collector collector;
  const Result<uint64_t> id =
      rig.engine->submit(test_request(test_prompt(10), 5), collector.sink());
  EXPECT_EQ(collector.wait().last.reason, FinishReason::kLength);
  rig.engine->cancel(*id);
  rig.engine->cancel(0);
  rig.engine->cancel(12345);
  EXPECT_EQ(rig.run(test_request(test_prompt(10), 5)).last.reason, FinishReason::kLength);
  EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "abort"}}), 0u);
  EXPECT_EQ(collector.now().events, 5);
}

TEST(Cancel, OneOfSeveralLeavesTheOthers) {
  Rig rig;
  rig.fake.info.slots = 3;
  std::latch submitted(4);  // or request 2 could come after its turn
  rig.fake.before_step = [&](int step) {
    submitted.wait();
    if (step == 4) rig.engine->cancel(2);
  };
  rig.options.proposals = 3;
  rig.start();
  std::vector<Collector> collectors(4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rig.engine
                    ->submit(test_request(test_prompt(10, i), 40),
                             collectors[static_cast<size_t>(i)].sink())
                    .ok());
    submitted.count_down();
  }
  for (int i = 0; i < 4; ++i) {
    const Outcome outcome = collectors[static_cast<size_t>(i)].wait();
    EXPECT_EQ(outcome.last.reason, i == 1 ? FinishReason::kAborted : FinishReason::kLength);
    EXPECT_EQ(outcome.tokens,
              rig.target.generate(test_prompt(10, i), {}, static_cast<int>(outcome.tokens.size())));
  }
}

TEST(Shutdown, EndsRunningAndWaitingOnes) {
  for (const bool destroy : {false, true}) {
    Gate gate(3);
    Rig rig;
    rig.fake.before_step = gate.hook();
    rig.start();
    std::vector<Collector> collectors(3);
    for (Collector& collector : collectors) {
      ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 100), collector.sink()).ok());
    }
    gate.wait_until_reached();
    std::thread opener([&gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    if (destroy) {
      rig.engine.reset();
    } else {
      rig.engine->shutdown();
      rig.engine->shutdown();
      EXPECT_EQ(refusal(rig, test_request(test_prompt(10), 5)).code, ErrorCode::kUnavailable);
      rig.engine->cancel(1);
    }
    opener.join();
    // All have had their last event by now.
    for (Collector& collector : collectors) {
      const Outcome outcome = collector.now();
      EXPECT_TRUE(outcome.finished);
      EXPECT_EQ(outcome.last.reason, FinishReason::kAborted);
    }
    EXPECT_EQ(collectors[0].now().tokens.size(), 4u);
    EXPECT_EQ(collectors[1].now().events, 1);
    EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "abort"}}), 3u);
  }
}

TEST(Shutdown, OfAnIdleEngine) {
  Rig rig;
  rig.start();
  rig.engine->shutdown();
  EXPECT_TRUE(rig.record->calls.empty());
}

TEST(Sink, IsCalledWithoutALock) {
  Rig rig;
  rig.start();
  std::promise<void> submitted;
  Collector collector;
  std::atomic<int> events{0};
  const EventSink blocking = [&, collect = collector.sink()](Event event) {
    if (++events == 1) submitted.get_future().wait();
    collect(std::move(event));
  };
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(10), 5), blocking).ok());
  while (events == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Collector other;
  const Result<uint64_t> id = rig.engine->submit(test_request(test_prompt(10), 5), other.sink());
  rig.engine->cancel(*id);
  submitted.set_value();
  EXPECT_EQ(collector.wait().tokens.size(), 5u);
  EXPECT_EQ(other.wait().last.reason, FinishReason::kAborted);
}

TEST(Idle, EngineSleeps) {
  Rig rig;
  rig.start();
  rig.run(test_request(test_prompt(10), 5));
  const std::clock_t before = std::clock();  // CPU time of all threads
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.03);
}

TEST(Threads, SubmitAndCancelFromSeveral) {
  Rig rig;
  rig.fake.info.slots = 2;
  rig.options.proposals = 4;
  rig.options.max_waiting = 20;
  rig.start();
  std::atomic<int> taken{0};
  std::atomic<int> full{0};
  std::atomic<int> ended{0};
  std::atomic<int> aborted{0};
  const auto client = [&](int number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    for (int i = 0; i < 40; ++i) {
      const int answer = 1 + static_cast<int>(random() % 30);
      const Request request =
          test_request(test_prompt(1 + static_cast<int>(random() % 60), number * 100 + i), answer);
      Collector collector;
      const Result<uint64_t> id = rig.engine->submit(request, collector.sink());
      if (!id) {
        EXPECT_EQ(id.error().code, ErrorCode::kResourceExhausted);
        ++full;
        continue;
      }
      ++taken;
      if (random() % 3 == 0) rig.engine->cancel(*id);
      if (random() % 8 == 0) continue;  // leaves without waiting
      const Outcome outcome = collector.wait();
      ++ended;
      const bool whole = outcome.last.reason == FinishReason::kLength;
      if (!whole) ++aborted;
      EXPECT_EQ(outcome.tokens,
                rig.target.generate(request.prompt, {},
                                    whole ? answer : static_cast<int>(outcome.tokens.size())));
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(6);
  for (int number = 0; number < 6; ++number) threads.emplace_back(client, number);
  for (std::thread& thread : threads) thread.join();
  rig.engine.reset();
  EXPECT_GT(ended.load(), aborted.load());
  uint64_t counted = 0;
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    counted += rig.counter("vllm:request_success_total", {{"finished_reason", reason}});
  }
  EXPECT_EQ(counted, static_cast<uint64_t>(taken.load()));
  EXPECT_EQ(rig.gauge("vllm:num_requests_running"), 0);
  EXPECT_EQ(rig.gauge("vllm:num_requests_waiting"), 0);
  EXPECT_EQ(rig.gauge("vllm:kv_cache_usage_perc"), 0);
}

}  // namespace
}  // namespace lagoon::engine
