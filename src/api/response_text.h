// Pieces of response bodies, written by hand since streams send one for every step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lagoon::api {

// What stands at the head of every object of one response.
struct ResponseIdentity {
  std::string id;
  std::string model;    // as the client will see it
  int64_t created = 0;  // seconds since 1970
};

// {"id":...,"object":...,"created":...,"model":...  without the closing brace.
std::string response_head(const ResponseIdentity& identity, std::string_view object);

// {"prompt_tokens","total_tokens","completion_tokens","prompt_tokens_details":{"cached_tokens"}},
// with completion_tokens_details.reasoning_tokens where that is not negative.
std::string usage_json(const engine::Usage& usage, int reasoning_tokens);

// "stop" or "length".
std::string_view finish_reason(const engine::Event& last);

// The JSON of `stop_reason`: the stop string, or the id of a token in `stop_tokens`, else null.
std::string stop_reason_json(const engine::Event& last, const std::vector<int32_t>& stop_tokens);

// The text of what ended an answer, for clients that want it in the output: the stop string, or the
// token (special ones have no text where these are skipped). "" for an event that is not the last.
std::string stop_text(const engine::Event& event, const text::Tokenizer& tokenizer,
                      bool skip_special_tokens);

}  // namespace lagoon::api
