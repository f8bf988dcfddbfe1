#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/counters.h"
#include "engine/loop.h"
#include "engine/mailbox.h"

namespace lagoon::engine {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

// Positions that one sequence can have: the checkpoint's limit and the cache's.
int64_t model_length(const model::ModelInfo& info) {
  return std::min(info.max_positions, int64_t{info.pages} * info.page_tokens);
}

// Synthetic acceptance knows what becomes of so many proposals only.
int most_proposals(const model::ModelInfo& info, const Options& options) {
  if (options.synthetic_acceptance.empty()) return info.max_proposals;
  return std::min(info.max_proposals, static_cast<int>(options.synthetic_acceptance.size()));
}

Now clock_of(const Options& options) {
  return options.clock ? options.clock : [] { return Clock::now(); };
}

// `asked`, where 0 stands for `most`.
int at_most(int asked, int most) {
  return asked > 0 ? std::min(asked, most) : most;
}

CounterOptions counter_options(const model::ModelInfo& info, const std::string& model_name,
                               const Options& options, int64_t max_length) {
  CounterOptions made;
  made.model_name = model_name;
  made.proposals = options.proposals;
  made.synthetic_acceptance = !options.synthetic_acceptance.empty();
  made.max_length = max_length;
  made.pages = info.pages;
  made.page_tokens = info.page_tokens;
  made.cache_type = info.cache_type;
  return made;
}

LoopOptions loop_options(const model::ModelInfo& info, const Options& options) {
  LoopOptions made;
  made.max_running = at_most(options.max_num_seqs, info.slots);
  made.limits.max_rows = at_most(options.max_num_batched_tokens, info.max_rows);
  made.limits.prefill_rows = at_most(options.prefill_rows, made.limits.max_rows);
  made.limits.proposals = options.adaptive_proposals ? -1 : options.proposals;
  made.most_adaptive_proposals = options.proposals;
  made.limits.max_proposals = most_proposals(info, options);
  made.max_prefill_stall = options.max_prefill_stall;
  made.log_interval = options.log_interval;
  made.synthetic_acceptance = options.synthetic_acceptance;
  made.now = clock_of(options);
  return made;
}

Result<void> check_prompt(const Request& request, int vocab) {
  if (request.prompt.empty()) return invalid("The prompt is empty; it needs at least one token.");
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocab) {
      return invalid(fmt::format(
          "Token id {} of the prompt is out of vocabulary: this model's ids are 0 to {}.", token,
          vocab - 1));
    }
  }
  return {};
}

Result<void> check_length(const Request& request, int64_t max_length) {
  if (request.max_tokens < 1) {
    return invalid(fmt::format("max_tokens must be at least 1, got {}.", request.max_tokens));
  }
  if (request.computed < 0 ||
      (request.computed > 0 && request.computed >= static_cast<int>(request.prompt.size()))) {
    return invalid(fmt::format("Of a prompt of {} tokens {} cannot count as computed.",
                               request.prompt.size(), request.computed));
  }
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens) {
    return invalid(fmt::format("min_tokens must lie between 0 and max_tokens ({}), got {}.",
                               request.max_tokens, request.min_tokens));
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t total = prompt + request.max_tokens;
  if (total <= max_length) return {};
  // vLLM's sentence; agents take the numbers from it.
  return invalid(fmt::format(
      "This model's maximum context length is {} tokens. However, you requested {} output tokens "
      "and your prompt contains at least {} input tokens, for a total of at least {} tokens. "
      "Please reduce the length of the input prompt or the number of requested output tokens.",
      max_length, request.max_tokens, prompt, total));
}

Result<void> check_sampling(const kernels::Sampling& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) {
    return invalid(
        fmt::format("temperature must be a number of at least 0, got {}.", sampling.temperature));
  }
  if (!(sampling.top_p >= 0 && sampling.top_p <= 1)) {
    return invalid(fmt::format("top_p must lie between 0 and 1, got {}.", sampling.top_p));
  }
  if (sampling.top_k < 0) {
    return invalid(fmt::format("top_k must be at least 0 (0: all), got {}.", sampling.top_k));
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    return invalid(fmt::format("min_p must lie between 0 and 1, got {}.", sampling.min_p));
  }
  return {};
}

// The bounds are vLLM's (vllm/sampling_params.py).
Result<void> check_penalties(const Penalties& penalties) {
  if (!std::isfinite(penalties.repetition) || !(penalties.repetition > 0)) {
    return invalid(
        fmt::format("repetition_penalty must be a number above 0, got {}.", penalties.repetition));
  }
  if (!(penalties.presence >= -2 && penalties.presence <= 2)) {
    return invalid(
        fmt::format("presence_penalty must lie between -2 and 2, got {}.", penalties.presence));
  }
  if (!(penalties.frequency >= -2 && penalties.frequency <= 2)) {
    return invalid(
        fmt::format("frequency_penalty must lie between -2 and 2, got {}.", penalties.frequency));
  }
  return {};
}

Result<void> check_tokens(const Request& request, int vocab) {
  for (const auto& [token, bias] : request.logit_bias) {
    if (token < 0 || token >= vocab) {
      return invalid(fmt::format(
          "Token id {} of logit_bias is out of vocabulary: this model's ids are 0 to {}.", token,
          vocab - 1));
    }
    if (!std::isfinite(bias)) {
      return invalid(
          fmt::format("logit_bias must hold finite numbers, got {} for token {}.", bias, token));
    }
  }
  for (const int32_t token : request.stop_tokens) {
    if (token < 0 || token >= vocab) {
      return invalid(fmt::format(
          "Token id {} of stop_token_ids is out of vocabulary: this model's ids are 0 to {}.",
          token, vocab - 1));
    }
  }
  const auto counts = [vocab](int n) { return n >= -1 && n <= vocab; };
  if (!counts(request.logprobs) || !counts(request.prompt_logprobs)) {
    return invalid(fmt::format(
        "logprobs and prompt_logprobs must lie between -1 (none) and {}, got {} and {}.", vocab,
        request.logprobs, request.prompt_logprobs));
  }
  return {};
}

Result<void> check_proposals(int proposals, int max_proposals) {
  if (proposals >= -1 && proposals <= max_proposals) return {};
  return invalid(fmt::format(
      "The number of speculative tokens must lie between 0 and {} for this model, got {}.",
      max_proposals, proposals));
}

class EngineImpl : public Engine {
 public:
  EngineImpl(std::unique_ptr<model::Model> model, const text::Tokenizer& tokenizer,
             MetricsRegistry& metrics, const std::string& model_name, const Options& options,
             Proposer proposer)
      : model_(std::move(model)),
        info_(model_->info()),
        max_length_(options.max_length > 0 ? options.max_length : model_length(info_)),
        max_proposals_(most_proposals(info_, options)),
        counters_(metrics, counter_options(info_, model_name, options, max_length_)),
        mailbox_(at_most(options.max_num_seqs, info_.slots), options.max_waiting,
                 counters_.running(), counters_.waiting(), clock_of(options)),
        loop_(*model_, tokenizer, counters_, mailbox_, loop_options(info_, options),
              std::move(proposer)),
        thread_([this] { loop_.run(); }) {}

  ~EngineImpl() override { EngineImpl::shutdown(); }

  EngineImpl(const EngineImpl&) = delete;
  EngineImpl& operator=(const EngineImpl&) = delete;

  Result<uint64_t> submit(Request request, EventSink sink) override {
    CHECK(sink);
    LAGOON_RETURN_IF_ERROR(check_prompt(request, info_.vocab));
    LAGOON_RETURN_IF_ERROR(check_length(request, max_length_));
    LAGOON_RETURN_IF_ERROR(check_sampling(request.sampling));
    LAGOON_RETURN_IF_ERROR(check_penalties(request.penalties));
    LAGOON_RETURN_IF_ERROR(check_tokens(request, info_.vocab));
    LAGOON_RETURN_IF_ERROR(check_proposals(request.proposals, max_proposals_));
    return mailbox_.submit(std::move(request), std::move(sink));
  }

  void cancel(uint64_t request) override { mailbox_.cancel(request); }

  void shutdown() override {
    mailbox_.stop();
    const std::lock_guard lock(join_);
    if (thread_.joinable()) thread_.join();
  }

  Progress progress() const override {
    Progress progress = mailbox_.progress();
    progress.kv_usage = counters_.kv_usage();
    return progress;
  }

  int64_t max_length() const override { return max_length_; }
  const model::ModelInfo& model_info() const override { return info_; }

 private:
  std::unique_ptr<model::Model> model_;  // the loop's thread drives it
  const model::ModelInfo info_;          // a copy, for callers on other threads
  const int64_t max_length_;
  const int max_proposals_;  // of a request
  Counters counters_;
  Mailbox mailbox_;
  Loop loop_;
  std::mutex join_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Engine> Engine::start(std::unique_ptr<model::Model> model,
                                      const text::Tokenizer& tokenizer, MetricsRegistry& metrics,
                                      const std::string& model_name, const Options& options,
                                      Proposer proposer) {
  CHECK(model != nullptr);
  const model::ModelInfo& info = model->info();
  CHECK(info.slots > 0 && options.max_num_seqs >= 0 && options.max_num_batched_tokens >= 0);
  CHECK(at_most(options.max_num_batched_tokens, info.max_rows) >=
        at_most(options.max_num_seqs, info.slots));
  CHECK(options.proposals >= 0 && options.proposals <= info.max_proposals);
  CHECK(!options.adaptive_proposals ||
        (options.proposals > 0 && options.synthetic_acceptance.empty()));
  CHECK(options.max_length >= 0 && options.max_length <= model_length(info));
  CHECK(options.synthetic_acceptance.empty() ||
        static_cast<int>(options.synthetic_acceptance.size()) >= options.proposals);
  CHECK(options.max_waiting >= 0 && options.prefill_rows >= 0);
  CHECK(options.max_prefill_stall > 0 && options.log_interval >= 0);
  return std::make_unique<EngineImpl>(std::move(model), tokenizer, metrics, model_name, options,
                                      std::move(proposer));
}

}  // namespace lagoon::engine
