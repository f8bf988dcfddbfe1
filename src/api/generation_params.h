// The fields that chat completions and completions share: sampling, limits, stops, log
// probabilities, streaming; and those that would change the answer in ways this version cannot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/fields.h"
#include "engine/engine.h"
#include "kernels/ops.h"

namespace lagoon::api {

inline constexpr int kMaxChoices = 128;  // of one request, all prompts together
inline constexpr int kMaxLogprobs = 20;  // the likeliest tokens told for one position
inline constexpr double kMaxBias = 100;  // of logit_bias, either way

struct GenerationParams {
  kernels::Sampling sampling;  // of the first choice
  engine::Penalties penalties;
  std::vector<std::pair<int32_t, float>> logit_bias;
  int n = 1;                          // choices for each prompt
  std::optional<int64_t> max_tokens;  // at least 1; with `echo` at least 0
  int64_t min_tokens = 0;
  int logprobs = -1;         // as in engine::Request
  int prompt_logprobs = -1;  // asked for by this name; without `stream` only
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  bool include_stop = false;  // a stop string or stop token that ends the answer is part of it
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool echo = false;  // completions: the prompt stands before the answer
  bool stream = false;
  bool include_usage = false;     // stream_options: a last chunk with the usage
  bool continuous_usage = false;  // stream_options: usage so far in every chunk
};

// `defaults` stand where the request says nothing; without a seed a random one is drawn. `chat`:
// whether the fields are those of chat completions, else of completions. Problems are left in
// `fields`.
GenerationParams read_generation_params(Fields& fields, const kernels::Sampling& defaults,
                                        int32_t vocab, bool chat);

// Fails for every field that asks for something this version does not do; values that ask for
// nothing pass.
void refuse_unsupported(Fields& fields, bool chat);

// Appends the `params.n` requests that answer a prompt, called `id`, or `id`-INDEX where an answer
// has several; each choice has a seed of its own. `context`: tokens of prompt and answer together.
// `usual_tokens`: how many are made at most where the request does not say; 0: the rest of the
// context. An error where prompt and answer do not fit, or min_tokens is above their limit.
std::optional<ApiError> add_requests(const GenerationParams& params, std::vector<int32_t> prompt,
                                     int64_t context, int64_t usual_tokens, const std::string& id,
                                     std::vector<engine::Request>& requests);

// The number of tokens to make: what was asked, or the rest of the context. The error is vLLM's,
// which clients read: prompt and answer do not fit `context`.
ApiResult<int> resolve_max_tokens(std::optional<int64_t> asked, int64_t prompt_tokens,
                                  int64_t context);

// The seed of choice `index`; the first one's is `seed` itself.
uint64_t choice_seed(uint64_t seed, int index);

// A seed nobody chose.
uint64_t random_seed();

}  // namespace lagoon::api
