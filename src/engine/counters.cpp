#include "engine/counters.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"

namespace lagoon::engine {
namespace {

// Bucket bounds in seconds, as vLLM's loggers have them.
const std::vector<double> kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04,  0.06,  0.08, 0.1,
                                               0.25,  0.5,   0.75, 1.0,  2.5,   5.0,   7.5,  10.0,
                                               20.0,  40.0,  80.,  160., 640.0, 2560.0};
const std::vector<double> kInterTokenBounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                               0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                               7.5,  10.0,  20.0, 40.0,  80.0};
const std::vector<double> kRequestBounds = {0.3,  0.5,  0.8,  1.0,   1.5,   2.0,   2.5,
                                            5.0,  10.0, 15.0, 20.0,  30.0,  40.0,  50.0,
                                            60.0, 120., 240., 480.0, 960.0, 1920., 7680.0};

const std::vector<double> kIterationBounds = {1,   8,    16,   32,   64,   128,  256,
                                              512, 1024, 2048, 4096, 8192, 16384};

// 1, 2, 5, 10, 20, 50 ... up to the most.
std::vector<double> token_bounds(int64_t most) {
  std::vector<double> bounds;
  for (int64_t power = 1; power <= most; power *= 10) {
    for (const int64_t bound : {power, 2 * power, 5 * power}) {
      if (bound <= most) bounds.push_back(static_cast<double>(bound));
    }
  }
  return bounds;
}

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

Labels with(const Labels& labels, const std::string& name, const std::string& value) {
  Labels more = labels;
  more.emplace_back(name, value);
  std::sort(more.begin(), more.end());
  return more;
}

Labels common_labels(const CounterOptions& options) {
  Labels labels = {{"engine", "0"}, {"model_name", options.model_name}};
  if (options.synthetic_acceptance) labels = with(labels, "acceptance", "synthetic");
  return labels;
}

}  // namespace

Counter& Counters::counter(const char* name, const char* help) {
  return registry_.counter(name, help, labels_);
}

Gauge& Counters::gauge(const char* name, const char* help) {
  return registry_.gauge(name, help, labels_);
}

Histogram& Counters::histogram(const char* name, const char* help,
                               const std::vector<double>& bounds) {
  return registry_.histogram(name, help, bounds, labels_);
}

Counters::Counters(MetricsRegistry& registry, const CounterOptions& options)
    : registry_(registry),
      labels_(common_labels(options)),
      running_(gauge("vllm:num_requests_running", "Number of requests being computed.")),
      waiting_(gauge("vllm:num_requests_waiting", "Number of requests in the queue.")),
      kv_usage_(
          gauge("vllm:kv_cache_usage_perc", "Share of the KV cache's pages in use; 1 is all.")),
      proposals_(gauge("lagoon:num_speculative_tokens",
                       "Proposals for an answer that the last step verified, on average.")),
      prefix_queries_(counter("vllm:prefix_cache_queries_total",
                              "Number of prompt tokens looked up in the prefix cache.")),
      prefix_hits_(counter("vllm:prefix_cache_hits_total",
                           "Number of prompt tokens found in the prefix cache.")),
      preemptions_(counter("vllm:num_preemptions_total",
                           "Number of times a running request gave up its pages.")),
      prompt_tokens_(counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.")),
      generation_tokens_(
          counter("vllm:generation_tokens_total", "Number of generation tokens processed.")),
      drafts_(
          counter("vllm:spec_decode_num_drafts_total", "Number of speculative drafts verified.")),
      draft_tokens_(
          counter("vllm:spec_decode_num_draft_tokens_total", "Number of tokens drafted.")),
      accepted_tokens_(counter("vllm:spec_decode_num_accepted_tokens_total",
                               "Number of drafted tokens accepted.")),
      expert_rows_(counter("lagoon:decode_layer_rows_total",
                           "Rows of steps without prompt rows, times sparse layers.")),
      expert_layers_(counter("lagoon:decode_layers_total",
                             "Sparse layers computed in steps without prompt rows.")),
      experts_read_(counter("lagoon:decode_experts_total",
                            "Experts that these layers read, each once per layer.")),
      first_token_(histogram("vllm:time_to_first_token_seconds",
                             "Time from a request's arrival to its first token.",
                             kFirstTokenBounds)),
      inter_token_(histogram("vllm:inter_token_latency_seconds",
                             "Time between two steps that gave a request tokens.",
                             kInterTokenBounds)),
      request_time_per_token_(
          histogram("vllm:request_time_per_output_token_seconds",
                    "A request's time after its first token, divided by the tokens after it.",
                    kInterTokenBounds)),
      request_latency_(histogram("vllm:e2e_request_latency_seconds",
                                 "Time from a request's arrival to its end.", kRequestBounds)),
      queue_time_(histogram("vllm:request_queue_time_seconds",
                            "Time a request waited before it first ran.", kRequestBounds)),
      inference_time_(histogram("vllm:request_inference_time_seconds",
                                "Time from when a request first ran to its last token.",
                                kRequestBounds)),
      prefill_time_(histogram("vllm:request_prefill_time_seconds",
                              "Time from when a request first ran to its first token.",
                              kRequestBounds)),
      decode_time_(histogram("vllm:request_decode_time_seconds",
                             "Time from a request's first token to its last.", kRequestBounds)),
      request_prompt_tokens_(histogram("vllm:request_prompt_tokens", "Tokens of a prompt.",
                                       token_bounds(options.max_length))),
      request_generation_tokens_(histogram("vllm:request_generation_tokens", "Tokens of an answer.",
                                           token_bounds(options.max_length))),
      request_max_generation_tokens_(histogram("vllm:request_max_num_generation_tokens",
                                               "Tokens of the longest answer to a request.",
                                               token_bounds(options.max_length))),
      request_max_tokens_(histogram("vllm:request_params_max_tokens", "max_tokens of a request.",
                                    token_bounds(options.max_length))),
      iteration_tokens_(histogram("vllm:iteration_tokens_total",
                                  "Prompt rows and new tokens of a step.", kIterationBounds)) {
  for (const char* reason : {"stop", "length", "abort", "error"}) {  // in order of FinishReason
    ended_.push_back(&registry.counter("vllm:request_success_total",
                                       "Number of requests ended, by reason.",
                                       with(labels_, "finished_reason", reason)));
  }
  if (options.proposals > 0) accepted_at(options.proposals - 1);
  Labels info = with(labels_, "block_size", fmt::format("{}", options.page_tokens));
  info = with(info, "num_gpu_blocks", fmt::format("{}", options.pages));
  const bool fp8 = options.cache_type == kernels::CacheType::kFP8;
  info = with(info, "cache_dtype", fp8 ? "fp8" : "bfloat16");
  info = with(info, "enable_prefix_caching", "False");
  registry.gauge("vllm:cache_config_info", "The KV cache; always 1.", info).set(1);
}

Counter& Counters::accepted_at(int position) {
  while (static_cast<int>(accepted_by_position_.size()) <= position) {
    const std::string label = fmt::format("{}", accepted_by_position_.size());
    accepted_by_position_.push_back(
        &registry_.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                           "Number of drafted tokens accepted, by position in the draft.",
                           with(labels_, "position", label)));
  }
  return *accepted_by_position_[static_cast<size_t>(position)];
}

void Counters::count_step(const Sequence& sequence, const Sequence::Drawn& drawn,
                          const Event& event, Clock::time_point now) {
  const int emitted = static_cast<int>(event.pieces.size());
  generation_tokens_.add(static_cast<uint64_t>(emitted));
  if (event.usage.completion_tokens == emitted) {
    first_token_.observe(seconds(now - sequence.job().arrival));
  } else {
    inter_token_.observe(seconds(now - sequence.times().newest_token));
  }
  if (drawn.proposed == 0) return;
  const int accepted = std::min(drawn.accepted, emitted);
  drafts_.add();
  draft_tokens_.add(static_cast<uint64_t>(drawn.proposed));
  accepted_tokens_.add(static_cast<uint64_t>(accepted));
  accepted_at(drawn.proposed - 1);
  for (int position = 0; position < accepted; ++position) accepted_at(position).add();
}

void Counters::count_experts(const kernels::ExpertUse& use, int rows) {
  expert_rows_.add(static_cast<uint64_t>(use.layers * rows));
  expert_layers_.add(static_cast<uint64_t>(use.layers));
  experts_read_.add(static_cast<uint64_t>(use.distinct));
}

void Counters::count_end(const Sequence& sequence, FinishReason reason, Clock::time_point now) {
  ended_[static_cast<size_t>(reason)]->add();
  if (reason != FinishReason::kStop && reason != FinishReason::kLength) return;
  const Sequence::Times& times = sequence.times();
  const Usage& usage = sequence.usage();
  const double decode = seconds(times.newest_token - times.first_token);
  request_latency_.observe(seconds(now - sequence.job().arrival));
  queue_time_.observe(seconds(times.start - sequence.job().arrival));
  inference_time_.observe(seconds(times.newest_token - times.start));
  prefill_time_.observe(seconds(times.first_token - times.start));
  decode_time_.observe(decode);
  if (usage.completion_tokens > 1) {
    request_time_per_token_.observe(decode / (usage.completion_tokens - 1));
  }
  request_prompt_tokens_.observe(usage.prompt_tokens);
  request_generation_tokens_.observe(usage.completion_tokens);
  request_max_generation_tokens_.observe(usage.completion_tokens);
  request_max_tokens_.observe(sequence.request().max_tokens);
}

Counters::Totals Counters::totals() const {
  Totals totals;
  totals.prompt_tokens = prompt_tokens_.value();
  totals.generation_tokens = generation_tokens_.value();
  totals.drafts = drafts_.value();
  totals.draft_tokens = draft_tokens_.value();
  totals.accepted_tokens = accepted_tokens_.value();
  totals.prefix_queries = prefix_queries_.value();
  totals.prefix_hits = prefix_hits_.value();
  for (const Counter* counter : accepted_by_position_) {
    totals.accepted_by_position.push_back(counter->value());
  }
  return totals;
}

ThroughputLog::ThroughputLog(const Counters& counters, double interval, Clock::time_point now)
    : counters_(counters), interval_(interval), last_(now), before_(counters.totals()) {}

bool ThroughputLog::idle(const Counters::Totals& totals) const {
  return totals.prompt_tokens == before_.prompt_tokens &&
         totals.generation_tokens == before_.generation_tokens && counters_.running_now() == 0;
}

std::optional<Clock::duration> ThroughputLog::due_in(Clock::time_point now) const {
  if (interval_ == 0 || idle(counters_.totals())) return std::nullopt;
  const auto due =
      last_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval_));
  return std::max(due - now, Clock::duration(1));
}

void ThroughputLog::resume(Clock::time_point now) {
  if (idle(counters_.totals())) last_ = now;
}

void ThroughputLog::write_if_due(Clock::time_point now) {
  if (interval_ == 0 || seconds(now - last_) < interval_) return;
  for (const std::string& line : lines(now)) {
    if (!line.empty()) LOG(info, "{}", line);
  }
  last_ = now;
  before_ = counters_.totals();
}

std::array<std::string, 2> ThroughputLog::lines(Clock::time_point now) const {
  const Counters::Totals totals = counters_.totals();
  if (idle(totals)) return {};
  const double time = std::max(seconds(now - last_), 1e-9);
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto rate = [time](uint64_t count) { return static_cast<double>(count) / time; };
  std::array<std::string, 2> lines;
  lines[0] = fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} "
      "tokens/s, Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: {:.1f}%, Prefix cache hit "
      "rate: {:.1f}%",
      rate(totals.prompt_tokens - before_.prompt_tokens),
      rate(totals.generation_tokens - before_.generation_tokens), counters_.running_now(),
      counters_.waiting_now(), 100 * counters_.kv_usage(),
      100 * share(totals.prefix_hits, totals.prefix_queries));
  const uint64_t drafts = totals.drafts - before_.drafts;
  if (drafts == 0) return lines;
  const uint64_t accepted = totals.accepted_tokens - before_.accepted_tokens;
  const uint64_t drafted = totals.draft_tokens - before_.draft_tokens;
  std::string by_position;
  for (size_t i = 0; i < totals.accepted_by_position.size(); ++i) {
    const auto& old = before_.accepted_by_position;
    const uint64_t count = totals.accepted_by_position[i] - (i < old.size() ? old[i] : 0);
    by_position += fmt::format("{}{:.3f}", i == 0 ? "" : ", ", share(count, drafts));
  }
  lines[1] = fmt::format(
      "SpecDecoding metrics: Mean acceptance length: {:.2f}, Accepted throughput: {:.2f} tokens/s, "
      "Drafted throughput: {:.2f} tokens/s, Accepted: {} tokens, Drafted: {} tokens, Per-position "
      "acceptance rate: {}, Avg Draft acceptance rate: {:.1f}%",
      1 + share(accepted, drafts), rate(accepted), rate(drafted), accepted, drafted, by_position,
      100 * share(accepted, drafted));
  return lines;
}

}  // namespace lagoon::engine
