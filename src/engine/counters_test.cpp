#include "engine/counters.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

using ::testing::HasSubstr;

uint64_t accepted_at(Rig& rig, const std::string& position) {
  return rig.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                     {{"position", position}});
}

TEST(Counters, AreThereAtZeroFromTheStart) {
  Rig rig;
  rig.options.proposals = 2;
  rig.start();
  const std::string text = rig.metrics.render();
  for (const char* name : {"vllm:prompt_tokens_total",
                           "vllm:generation_tokens_total",
                           "vllm:num_requests_running",
                           "vllm:num_requests_waiting",
                           "vllm:kv_cache_usage_perc",
                           "vllm:spec_decode_num_drafts_total",
                           "vllm:spec_decode_num_draft_tokens_total",
                           "vllm:spec_decode_num_accepted_tokens_total",
                           "vllm:num_preemptions_total",
                           "vllm:prefix_cache_queries_total",
                           "vllm:prefix_cache_hits_total",
                           "vllm:time_to_first_token_seconds_count",
                           "vllm:inter_token_latency_seconds_count",
                           "vllm:e2e_request_latency_seconds_count",
                           "vllm:request_queue_time_seconds_count",
                           "vllm:request_inference_time_seconds_count",
                           "vllm:request_prefill_time_seconds_count",
                           "vllm:request_decode_time_seconds_count",
                           "vllm:request_prompt_tokens_count",
                           "vllm:request_generation_tokens_count",
                           "vllm:request_max_num_generation_tokens_count",
                           "vllm:request_params_max_tokens_count",
                           "vllm:iteration_tokens_total_count",
                           "vllm:request_time_per_output_token_seconds_count"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("\n{}{{engine=\"0\",model_name=\"fake\"}} 0\n", name)));
  }
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("\nvllm:request_success_total{{engine=\"0\","
                                            "finished_reason=\"{}\",model_name=\"fake\"}} 0\n",
                                            reason)));
  }
  for (const char* position : {"0", "1"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format(
                          "\nvllm:spec_decode_num_accepted_tokens_per_pos_total{{engine=\"0\","
                          "model_name=\"fake\",position=\"{}\"}} 0\n",
                          position)));
  }
  EXPECT_THAT(text, Not(HasSubstr("position=\"2\"")));
  EXPECT_THAT(text, HasSubstr("\nvllm:cache_config_info{block_size=\"16\",cache_dtype=\"bfloat16\","
                              "enable_prefix_caching=\"False\",engine=\"0\",model_name=\"fake\","
                              "num_gpu_blocks=\"32\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:prompt_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:kv_cache_usage_perc gauge\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:time_to_first_token_seconds histogram\n"));
}

TEST(Counters, HistogramsHaveVllmsBounds) {
  Rig rig;
  rig.start();
  const auto bounds_of = [text = rig.metrics.render()](const std::string& name) {
    std::string bounds;
    for (size_t at = text.find(name + "_bucket"); at != std::string::npos;
         at = text.find(name + "_bucket", at + 1)) {
      const size_t begin = text.find("le=\"", at) + 4;
      bounds += text.substr(begin, text.find('"', begin) - begin) + " ";
    }
    return bounds;
  };
  EXPECT_EQ(bounds_of("vllm:time_to_first_token_seconds"),
            "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 "
            "640 2560 +Inf ");
  EXPECT_EQ(bounds_of("vllm:inter_token_latency_seconds"),
            "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80 +Inf ");
  EXPECT_EQ(bounds_of("vllm:e2e_request_latency_seconds"),
            "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf ");
  EXPECT_EQ(bounds_of("vllm:request_queue_time_seconds"),
            bounds_of("vllm:e2e_request_latency_seconds"));
  EXPECT_EQ(bounds_of("vllm:iteration_tokens_total"),
            "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 +Inf ");
  // Up to the context's length, which is 512 here.
  EXPECT_EQ(bounds_of("vllm:request_prompt_tokens"), "1 2 5 10 20 50 100 200 500 +Inf ");
}

TEST(Counters, OfAWholeRun) {
  Rig rig;
  rig.fake.draft_hits = 100;
  rig.options.proposals = 6;
  rig.start();
  rig.run(test_request(test_prompt(9), 1 + 3 * 7));
  EXPECT_EQ(rig.counter("vllm:prompt_tokens_total"), 9u);
  EXPECT_EQ(rig.counter("vllm:generation_tokens_total"), 22u);
  EXPECT_EQ(rig.counter("vllm:spec_decode_num_drafts_total"), 3u);
  EXPECT_EQ(rig.counter("vllm:spec_decode_num_draft_tokens_total"), 18u);
  EXPECT_EQ(rig.counter("vllm:spec_decode_num_accepted_tokens_total"), 18u);
  for (const char* position : {"0", "1", "2", "3", "4", "5"}) {
    EXPECT_EQ(accepted_at(rig, position), 3u);
  }
  EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "length"}}), 1u);
  EXPECT_EQ(rig.observations("vllm:time_to_first_token_seconds"), 1);
  EXPECT_EQ(rig.observations("vllm:inter_token_latency_seconds"), 3);
  EXPECT_EQ(rig.observations("vllm:e2e_request_latency_seconds"), 1);
}

// 5 s in the queue, 2 s a step: one of the prompt, four more of the answer.
TEST(Counters, TimesOfARequest) {
  // Before the engine, whose thread reads the clock to its end.
  std::atomic<int64_t> seconds{0};
  std::promise<void> reached;
  std::promise<void> queued;
  Rig rig;
  rig.options.clock = [&] {
    return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds));
  };
  rig.fake.before_step = [&](int step) {
    if (step > 0) return;
    reached.set_value();
    queued.get_future().wait();
  };
  rig.fake.after_step = [&](int) { seconds += 2; };
  rig.start();
  Collector first;
  Collector second;
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(9), 1), first.sink()).ok());
  ASSERT_TRUE(rig.engine->submit(test_request(test_prompt(9), 5), second.sink()).ok());
  reached.get_future().wait();
  seconds = 3;
  queued.set_value();
  first.wait();
  second.wait();
  const std::string text = rig.metrics.render();
  const auto sum_of = [&text](const std::string& name) {
    const std::string start = name + "_sum{engine=\"0\",model_name=\"fake\"} ";
    const size_t at = text.find(start);
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + start.size());
  };
  // The first: 3 s until the step goes on, 2 s in it.
  EXPECT_EQ(sum_of("vllm:request_queue_time_seconds"), 0 + 5);
  EXPECT_EQ(sum_of("vllm:request_prefill_time_seconds"), 5 + 2);
  EXPECT_EQ(sum_of("vllm:request_decode_time_seconds"), 0 + 8);
  EXPECT_EQ(sum_of("vllm:request_inference_time_seconds"), 5 + 10);
  EXPECT_EQ(sum_of("vllm:e2e_request_latency_seconds"), 5 + 15);
  EXPECT_EQ(sum_of("vllm:time_to_first_token_seconds"), 5 + 7);
  EXPECT_EQ(sum_of("vllm:request_time_per_output_token_seconds"), 2);
  EXPECT_EQ(sum_of("vllm:request_prompt_tokens"), 18);
  EXPECT_EQ(sum_of("vllm:request_generation_tokens"), 6);
  EXPECT_EQ(sum_of("vllm:request_max_num_generation_tokens"), 6);
  EXPECT_EQ(sum_of("vllm:request_params_max_tokens"), 6);
  EXPECT_EQ(sum_of("vllm:iteration_tokens_total"), 10 + 10 + 4);
  EXPECT_EQ(rig.observations("vllm:iteration_tokens_total"), 6);
}

TEST(ThroughputLog, WritesVllmsLinesWhileThereIsTraffic) {
  MetricsRegistry registry;
  CounterOptions options;
  options.model_name = "fake";
  options.proposals = 3;
  options.max_length = 512;
  Counters counters(registry, options);
  const Clock::time_point start{};
  ThroughputLog log(counters, 10, start - std::chrono::hours(1));
  log.resume(start);  // an hour without traffic does not count
  const auto later = start + std::chrono::seconds(10);
  EXPECT_EQ(log.lines(later)[0], "");
  EXPECT_EQ(log.due_in(start), std::nullopt);

  counters.count_prompt(1234);
  counters.running().set(2);
  counters.waiting().set(1);
  counters.set_kv_usage(1, 8);
  EXPECT_EQ(log.due_in(start), std::chrono::seconds(10));
  EXPECT_EQ(log.lines(later)[0],
            "Engine 000: Avg prompt throughput: 123.4 tokens/s, Avg generation throughput: 0.0 "
            "tokens/s, Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache "
            "hit rate: 0.0%");
  EXPECT_EQ(log.lines(later)[1], "");

  Job job;
  job.request = test_request(test_prompt(5), 50);
  const std::vector<int32_t> eos = {2};
  Sequence sequence(std::move(job), test_tokenizer(), eos);
  sequence.commit_prefill(5);
  const std::vector<int32_t> tokens = {300, 301, 302};
  for (const int accepted : {2, 2, 0, 1}) {
    const Sequence::Drawn drawn = {std::span(tokens).first(static_cast<size_t>(accepted) + 1), 3,
                                   accepted};
    counters.count_step(sequence, drawn, sequence.append(drawn), later);
  }
  EXPECT_EQ(log.lines(later)[1],
            "SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 0.50 "
            "tokens/s, Drafted throughput: 1.20 tokens/s, Accepted: 5 tokens, Drafted: 12 tokens, "
            "Per-position acceptance rate: 0.750, 0.500, 0.000, Avg Draft acceptance rate: 41.7%");
}

// The answer ends with the third proposal: it counts, the three after it do not.
TEST(Counters, OfAnEndInsideABlock) {
  Rig rig;
  rig.target.script(test_prompt(9), {400, 401, 402, 2, 403, 404, 405, 406, 407});
  rig.fake.draft_hits = 100;
  rig.options.proposals = 6;
  rig.start();
  rig.run(test_request(test_prompt(9), 50));
  EXPECT_EQ(rig.counter("vllm:generation_tokens_total"), 4u);
  EXPECT_EQ(rig.counter("vllm:spec_decode_num_draft_tokens_total"), 6u);
  EXPECT_EQ(rig.counter("vllm:spec_decode_num_accepted_tokens_total"), 3u);
  EXPECT_EQ(accepted_at(rig, "2"), 1u);
  EXPECT_EQ(accepted_at(rig, "3"), 0u);
  EXPECT_EQ(rig.counter("vllm:request_success_total", {{"finished_reason", "stop"}}), 1u);
}

TEST(Counters, BeyondTheEnginesK) {
  Rig rig;
  rig.fake.draft_hits = 100;
  rig.options.proposals = 1;
  rig.start();
  Request request = test_request(test_prompt(9), 6);
  request.proposals = 4;
  rig.run(request);
  EXPECT_EQ(accepted_at(rig, "0"), 1u);
  EXPECT_EQ(accepted_at(rig, "3"), 1u);
  EXPECT_THAT(rig.metrics.render(), HasSubstr("position=\"3\"} 1\n"));
}

TEST(Counters, AbortedRequestsHaveNoLatency) {
  Rig rig;
  rig.fake.before_step = [&](int step) {
    if (step == 2) rig.engine->cancel(1);
  };
  rig.start();
  EXPECT_EQ(rig.run(test_request(test_prompt(9), 50)).last.reason, FinishReason::kAborted);
  EXPECT_EQ(rig.observations("vllm:e2e_request_latency_seconds"), 0);
  EXPECT_EQ(rig.counter("vllm:generation_tokens_total"), 3u);
}

}  // namespace
}  // namespace lagoon::engine
