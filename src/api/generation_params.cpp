#include "api/generation_params.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

namespace lagoon::api {
namespace {

constexpr size_t kMaxStops = 128;
constexpr size_t kMaxStopBytes = 4096;
// Tokens of prompts, one for each choice, that are scored for prompt_logprobs or echo.
constexpr int64_t kMostScoredTokens = 65'536;
constexpr double kGreedyBelow = 1e-5;       // temperatures below are 0, as in vLLM
constexpr double kLeastTemperature = 0.01;  // of those that are not, as in vLLM
constexpr double kMaxRepetition = 1e4;      // far beyond what leaves any text

// "temperature must be non-negative, got -1. (parameter=temperature, value=-1)": vLLM's form.
template <typename Number>
ApiError out_of_range(std::string_view name, std::string_view must, Number value) {
  return bad_value(name, fmt::format("{} must {}, got {}. (parameter={}, value={})", name, must,
                                     value, name, value));
}

void read_sampling(Fields& fields, kernels::Sampling& sampling) {
  if (const auto temperature = fields.number("temperature")) {
    if (*temperature < 0) {
      fields.fail(out_of_range("temperature", "be non-negative", *temperature));
    }
    sampling.temperature = static_cast<float>(
        *temperature < kGreedyBelow ? 0.0 : std::clamp(*temperature, kLeastTemperature, 1e6));
  }
  if (const auto top_p = fields.number("top_p")) {
    if (*top_p <= 0 || *top_p > 1) fields.fail(out_of_range("top_p", "be in (0, 1]", *top_p));
    sampling.top_p = static_cast<float>(*top_p);
  }
  if (const auto top_k = fields.integer("top_k")) {
    if (*top_k < -1) {
      fields.fail(out_of_range("top_k", "be 0 or -1 (off), or at least 1", *top_k));
    }
    sampling.top_k = static_cast<int>(std::clamp<int64_t>(*top_k, 0, 1 << 30));
  }
  if (const auto min_p = fields.number("min_p")) {
    if (*min_p < 0 || *min_p > 1) fields.fail(out_of_range("min_p", "be in [0, 1]", *min_p));
    sampling.min_p = static_cast<float>(*min_p);
  }
  const auto seed = fields.integer("seed");
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
}

void read_penalties(Fields& fields, engine::Penalties& penalties) {
  const auto read = [&](const char* name, float& penalty) {
    const auto value = fields.number(name);
    if (!value) return;
    if (*value < -2 || *value > 2) fields.fail(out_of_range(name, "be in [-2, 2]", *value));
    penalty = static_cast<float>(*value);
  };
  read("presence_penalty", penalties.presence);
  read("frequency_penalty", penalties.frequency);
  if (const auto repetition = fields.number("repetition_penalty")) {
    penalties.repetition = static_cast<float>(*repetition);
    if (*repetition <= 0) {
      fields.fail(out_of_range("repetition_penalty", "be greater than zero", *repetition));
    } else if (*repetition > kMaxRepetition || *repetition < 1 / kMaxRepetition) {
      fields.fail(out_of_range("repetition_penalty", "be in [0.0001, 10000]", *repetition));
    }
  }
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// {"TOKEN ID": BIAS ...}
void read_logit_bias(Fields& fields, GenerationParams& params, int32_t vocab) {
  const Json* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  std::map<int32_t, float> by_token;
  for (const auto& item : biases->items()) {
    const std::string location = "logit_bias." + item.key().substr(0, 64);
    const auto token = whole_number(item.key());
    const Json& bias = item.value();
    if (!token) {
      fields.fail(invalid_field(location, "Keys should be token ids, as strings."));
    } else if (*token < 0 || *token >= vocab) {
      fields.fail(bad_value("logit_bias",
                            fmt::format("token_id {} in logit_bias is out of vocabulary. "
                                        "Vocabulary size: {} (parameter=logit_bias, value={})",
                                        *token, vocab, *token)));
    } else if (!bias.is_number()) {
      fields.fail(invalid_field(location, "Input should be a number."));
    } else if (!(std::abs(bias.get<double>()) <= kMaxBias)) {
      fields.fail(out_of_range(location, "be in [-100, 100]", bias.get<double>()));
    } else {
      by_token[static_cast<int32_t>(*token)] = bias.get<float>();
      continue;
    }
    return;
  }
  params.logit_bias.assign(by_token.begin(), by_token.end());
}

void add_stop(Fields& fields, const Json& stop, const std::string& location,
              std::vector<std::string>& stops) {
  if (!stop.is_string()) {
    fields.fail(invalid_field(location, "Input should be a string."));
    return;
  }
  auto text = stop.get<std::string>();
  if (text.empty()) {
    fields.fail(bad_value("stop", "stop cannot contain an empty string."));
  } else if (text.size() > kMaxStopBytes) {
    fields.fail(
        bad_value("stop", fmt::format("a stop string is longer than {} bytes.", kMaxStopBytes)));
  }
  stops.push_back(std::move(text));
}

void read_stops(Fields& fields, GenerationParams& params, int32_t vocab) {
  if (const Json* stop = fields.any("stop")) {
    if (stop->is_string()) {
      add_stop(fields, *stop, "stop", params.stop);
    } else if (!stop->is_array()) {
      fields.fail_type("stop", "a string or a list of strings");
    } else if (stop->size() > kMaxStops) {
      fields.fail(bad_value("stop", fmt::format("stop has more than {} strings.", kMaxStops)));
    } else {
      for (size_t i = 0; i < stop->size(); ++i) {
        add_stop(fields, (*stop)[i], fmt::format("stop.{}", i), params.stop);
      }
    }
  }
  const Json* tokens = fields.array("stop_token_ids");
  if (tokens == nullptr) return;
  if (tokens->size() > kMaxStops) {
    fields.fail(bad_value("stop_token_ids",
                          fmt::format("stop_token_ids has more than {} ids.", kMaxStops)));
    return;
  }
  for (size_t i = 0; i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    if (!token.is_number_integer() || token < 0 || token >= vocab) {
      fields.fail(invalid_field(fmt::format("stop_token_ids.{}", i),
                                fmt::format("Input should be a token id below {}.", vocab)));
      return;
    }
    params.stop_tokens.push_back(token.get<int32_t>());
  }
}

// An integer field from 0 to kMaxLogprobs; -1 where it is not there.
int read_count(Fields& fields, const char* name, std::string_view kind) {
  const auto count = fields.integer(name);
  if (!count) return -1;
  if (*count < 0) fields.fail(out_of_range(name, "be non-negative", *count));
  if (*count > kMaxLogprobs) {
    fields.fail(bad_value(name, fmt::format("Requested {} logprobs of {}, which is greater than "
                                            "max allowed: {} (parameter={}, value={})",
                                            kind, *count, kMaxLogprobs, name, *count)));
  }
  return static_cast<int>(std::clamp<int64_t>(*count, 0, kMaxLogprobs));
}

// Completions: `logprobs` is a number. Chat: it is true or false, the number is `top_logprobs`.
void read_logprobs(Fields& fields, GenerationParams& params, bool chat) {
  if (chat) {
    const bool wanted = fields.boolean("logprobs").value_or(false);
    const int top = read_count(fields, "top_logprobs", "sample");
    if (wanted) {
      params.logprobs = std::max(top, 0);
    } else if (top > 0) {
      fields.fail(
          bad_value("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true."));
    }
  } else {
    params.logprobs = read_count(fields, "logprobs", "sample");
  }
  params.prompt_logprobs = read_count(fields, "prompt_logprobs", "prompt");
  if (params.prompt_logprobs >= 0 && params.stream) {
    fields.fail(
        bad_value("prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`."));
  }
}

void read_streaming(Fields& fields, GenerationParams& params) {
  params.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!params.stream) {
    fields.fail(
        bad_value("stream_options", "Stream options can only be defined when `stream=True`."));
    return;
  }
  Fields inner(*options, "stream_options");
  params.include_usage = inner.boolean("include_usage").value_or(false);
  params.continuous_usage =
      inner.boolean("continuous_usage_stats").value_or(false) && params.include_usage;
  if (inner.failed()) fields.fail(inner.error());
}

std::optional<int64_t> read_max_tokens(Fields& fields, bool may_be_zero) {
  std::optional<int64_t> max_tokens;
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    const auto value = fields.integer(name);
    if (!value) continue;
    if (*value < (may_be_zero ? 0 : 1)) {
      fields.fail(out_of_range(name, may_be_zero ? "be non-negative" : "be at least 1", *value));
    }
    if (!max_tokens) max_tokens = value;
  }
  return max_tokens;
}

void read_choices(Fields& fields, GenerationParams& params) {
  const auto n = fields.integer("n");
  if (n && *n < 1) fields.fail(out_of_range("n", "be at least 1", *n));
  if (n && *n > kMaxChoices) {
    fields.fail(out_of_range("n", fmt::format("be at most {}", kMaxChoices), *n));
  }
  params.n = static_cast<int>(std::clamp<int64_t>(n.value_or(1), 1, kMaxChoices));
  const auto best_of = fields.integer("best_of");
  if (best_of && *best_of != params.n) {
    fields.fail(bad_value("best_of", fmt::format("`best_of` other than `n` is not supported by "
                                                 "this version of Lagoon, got {}. "
                                                 "(parameter=best_of, value={})",
                                                 *best_of, *best_of)));
  }
}

}  // namespace

GenerationParams read_generation_params(Fields& fields, const kernels::Sampling& defaults,
                                        int32_t vocab, bool chat) {
  GenerationParams params;
  params.sampling = defaults;
  read_sampling(fields, params.sampling);
  read_penalties(fields, params.penalties);
  read_logit_bias(fields, params, vocab);
  read_choices(fields, params);
  if (!chat) params.echo = fields.boolean("echo").value_or(false);
  params.max_tokens = read_max_tokens(fields, params.echo);
  if (const auto least = fields.integer("min_tokens")) {
    if (*least < 0) {
      fields.fail(out_of_range("min_tokens", "be greater than or equal to 0", *least));
    }
    params.min_tokens = *least;
  }
  read_stops(fields, params, vocab);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false);
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  params.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  read_streaming(fields, params);
  read_logprobs(fields, params, chat);
  return params;
}

std::optional<ApiError> add_requests(const GenerationParams& params, std::vector<int32_t> prompt,
                                     int64_t context, int64_t usual_tokens, const std::string& id,
                                     std::vector<engine::Request>& requests) {
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  std::optional<int64_t> asked = params.max_tokens;
  // What nobody asked for is no reason to refuse.
  if (!asked && usual_tokens > 0) {
    asked = std::clamp<int64_t>(context - prompt_tokens, 1, usual_tokens);
  }
  // With echo an answer may have no tokens; the engine draws one, which is not told.
  if (asked == 0) asked = 1;
  const auto max_tokens = resolve_max_tokens(asked, prompt_tokens, context);
  if (const auto* error = std::get_if<ApiError>(&max_tokens)) return *error;
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = std::get<int>(max_tokens);
  if (params.min_tokens > request.max_tokens) {
    return out_of_range("min_tokens",
                        fmt::format("be less than or equal to max_tokens={}", request.max_tokens),
                        params.min_tokens);
  }
  request.min_tokens = static_cast<int>(params.min_tokens);
  request.sampling = params.sampling;
  request.penalties = params.penalties;
  request.logit_bias = params.logit_bias;
  request.stop = params.stop;
  request.stop_tokens = params.stop_tokens;
  request.ignore_eos = params.ignore_eos;
  request.skip_special_tokens = params.skip_special_tokens;
  request.logprobs = params.logprobs;
  // The probabilities of an echoed prompt are told like those of the answer.
  request.prompt_logprobs = std::max(params.prompt_logprobs, params.echo ? params.logprobs : -1);
  int64_t scored = prompt_tokens * params.n;
  for (const engine::Request& before : requests) scored += std::ssize(before.prompt);
  if (request.prompt_logprobs >= 0 && scored > kMostScoredTokens && scored > prompt_tokens) {
    return bad_value(
        "prompt_logprobs",
        fmt::format(
            "Log probabilities of prompts of {} tokens, each counted n={} times, are too many "
            "for one request: together they may have {} tokens.",
            scored / params.n, params.n, kMostScoredTokens));
  }
  for (int i = 0; i < params.n; ++i) {
    const auto index = static_cast<int>(requests.size());
    request.id = index == 0 ? id : fmt::format("{}-{}", id, index);
    request.sampling.seed = choice_seed(params.sampling.seed, i);
    requests.push_back(request);
  }
  return {};
}

ApiResult<int> resolve_max_tokens(std::optional<int64_t> asked, int64_t prompt_tokens,
                                  int64_t context) {
  if (asked && *asked > context) {
    return bad_value("max_tokens", fmt::format("max_tokens={} cannot be greater than "
                                               "max_model_len={}. Please request fewer output "
                                               "tokens. (parameter=max_tokens, value={})",
                                               *asked, context, *asked));
  }
  const int64_t least = asked.value_or(1);
  if (prompt_tokens + least > context) {
    ApiError error = bad_value(
        "input_tokens",
        fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                    "output tokens and your prompt contains at least {} input tokens, for a total "
                    "of at least {} tokens. Please reduce the length of the input prompt or the "
                    "number of requested output tokens. (parameter=input_tokens, value={})",
                    context, least, prompt_tokens, prompt_tokens + least, prompt_tokens));
    error.reason = kContextLengthExceeded;
    error.prompt_tokens = prompt_tokens;
    error.context = context;
    return error;
  }
  return static_cast<int>(asked.value_or(context - prompt_tokens));
}

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
// generators") over seed and index.
uint64_t choice_seed(uint64_t seed, int index) {
  if (index == 0) return seed;
  uint64_t mixed = seed + static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

uint64_t random_seed() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace lagoon::api
