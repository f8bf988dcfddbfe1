// Errors as clients of vLLM know them: {"error":{"message","type","param","code"}}, with the HTTP
// status as an integer code, and a field `reason` where there is one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace lagoon::api {

struct ApiError {
  int status = 400;
  std::string type = "BadRequestError";
  std::string message = {};
  std::string param = {};  // the request's field, dotted ("messages.0.content"); "" is null
  // OpenAI's word for it, for clients that look for "context_length_exceeded"; "": left out.
  std::string reason = {};
  // JSON that stands beside the message in Anthropic's shape; "": left out.
  std::string anthropic_details = {};
  // Of context_length_exceeded: tokens of the prompt (at least), and of the context.
  int64_t prompt_tokens = 0;
  int64_t context = 0;
};

inline constexpr std::string_view kContextLengthExceeded = "context_length_exceeded";

template <typename T>
using ApiResult = std::variant<T, ApiError>;

// A field that is missing, or of the wrong type.
ApiError invalid_field(std::string_view param, std::string_view message);
// A body that is no JSON object.
ApiError invalid_body(std::string_view message);
// A value that cannot be used.
ApiError bad_value(std::string_view param, std::string message);
// An error from below, by its code: 400, 404, 429, 500, 501 or 503.
ApiError from_error(const Error& error);

std::string to_json(const ApiError& error);
// As Anthropic's clients know them: {"type":"error","error":{"type","message"}}. A prompt that is
// too long has the sentence that they look for.
std::string to_anthropic_json(const ApiError& error);

// How a dialect writes an error.
using ErrorWriter = std::string (*)(const ApiError& error);

}  // namespace lagoon::api
