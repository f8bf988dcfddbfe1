// The engine's metrics, under vLLM's names so that dashboards keep working. All are created, at 0,
// when the engine starts; each carries the labels engine="0" and model_name. Updated on the
// engine's thread (the two request gauges on any, see mailbox.h), read on any.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/mailbox.h"
#include "engine/sequence.h"

namespace lagoon::engine {

// What Counters is told once.
struct CounterOptions {
  std::string model_name;
  int proposals = 0;  // the engine's k; acceptance is counted by position 0..k-1, and beyond once a
                      // request has verified more
  bool synthetic_acceptance = false;  // every metric then has the label acceptance="synthetic"
  int64_t max_length = 0;             // of a sequence
  int pages = 0;
  int page_tokens = 0;
  kernels::CacheType cache_type = kernels::CacheType::kActivations;
};

class Counters {
 public:
  Counters(MetricsRegistry& registry, const CounterOptions& options);

  Gauge& running() { return running_; }
  Gauge& waiting() { return waiting_; }

  void count_prompt(int rows) { prompt_tokens_.add(static_cast<uint64_t>(rows)); }
  // A step at `now` drew `drawn` for the sequence; `event` holds what of it is in the answer. Must
  // be called before sequence.set_newest_token_at().
  void count_step(const Sequence& sequence, const Sequence::Drawn& drawn, const Event& event,
                  Clock::time_point now);
  // A step computed rows of prompts and gave answers tokens, this many together.
  void count_iteration(int tokens) { iteration_tokens_.observe(tokens); }
  // A step of `rows` rows, none of a prompt, read these experts.
  void count_experts(const kernels::ExpertUse& use, int rows);
  void count_preemption() { preemptions_.add(); }
  // Of aborted and failed requests nothing but their number is observed.
  void count_end(const Sequence& sequence, FinishReason reason, Clock::time_point now);
  // A step verified so many proposals of so many answers.
  void set_proposals(int proposals, int answers) {
    if (answers > 0) proposals_.set(static_cast<double>(proposals) / answers);
  }
  void set_kv_usage(int used, int pages) { kv_usage_.set(static_cast<double>(used) / pages); }

  // What the log lines tell.
  struct Totals {
    uint64_t prompt_tokens = 0;
    uint64_t generation_tokens = 0;
    uint64_t drafts = 0;
    uint64_t draft_tokens = 0;
    uint64_t accepted_tokens = 0;
    uint64_t prefix_queries = 0;
    uint64_t prefix_hits = 0;
    std::vector<uint64_t> accepted_by_position;
  };
  Totals totals() const;
  // Any thread.
  double running_now() const { return running_.value(); }
  double waiting_now() const { return waiting_.value(); }
  double kv_usage() const { return kv_usage_.value(); }

 private:
  Counter& counter(const char* name, const char* help);
  Gauge& gauge(const char* name, const char* help);
  Histogram& histogram(const char* name, const char* help, const std::vector<double>& bounds);
  Counter& accepted_at(int position);

  MetricsRegistry& registry_;
  Labels labels_;
  Gauge& running_;
  Gauge& waiting_;
  Gauge& kv_usage_;
  Gauge& proposals_;
  Counter& prefix_queries_;
  Counter& prefix_hits_;
  Counter& preemptions_;
  Counter& prompt_tokens_;
  Counter& generation_tokens_;
  std::vector<Counter*> ended_;  // by FinishReason
  Counter& drafts_;
  Counter& draft_tokens_;
  Counter& accepted_tokens_;
  std::vector<Counter*> accepted_by_position_;
  Counter& expert_rows_;
  Counter& expert_layers_;
  Counter& experts_read_;
  Histogram& first_token_;
  Histogram& inter_token_;
  Histogram& request_time_per_token_;
  Histogram& request_latency_;
  Histogram& queue_time_;
  Histogram& inference_time_;
  Histogram& prefill_time_;
  Histogram& decode_time_;
  Histogram& request_prompt_tokens_;
  Histogram& request_generation_tokens_;
  Histogram& request_max_generation_tokens_;
  Histogram& request_max_tokens_;
  Histogram& iteration_tokens_;
};

// vLLM's two log lines, of what was done since the last ones: scripts look for them
// (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py). The engine's thread.
class ThroughputLog {
 public:
  // Every `interval` seconds; 0: never. `counters` outlives the log.
  ThroughputLog(const Counters& counters, double interval, Clock::time_point now);

  // There is something to do again: a line tells of no time before it, if all was idle.
  void resume(Clock::time_point now);
  // Writes the lines where it is time and something has been done.
  void write_if_due(Clock::time_point now);
  // How long until lines are due; none where nothing has been done since the last ones.
  std::optional<Clock::duration> due_in(Clock::time_point now) const;
  // The lines of now, without waiting; "" for none. For tests.
  std::array<std::string, 2> lines(Clock::time_point now) const;

 private:
  bool idle(const Counters::Totals& totals) const;

  const Counters& counters_;
  double interval_;
  Clock::time_point last_;
  Counters::Totals before_;
};

}  // namespace lagoon::engine
