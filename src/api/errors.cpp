#include "api/errors.h"

#include <fmt/core.h>

#include "api/json.h"

namespace lagoon::api {
namespace {

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError invalid_field(std::string_view param, std::string_view message) {
  return {.type = "Bad Request",
          .message = fmt::format("1 validation error: {}: {}", param, message),
          .param = std::string(param)};
}

ApiError invalid_body(std::string_view message) {
  return {.type = "Bad Request", .message = fmt::format("1 validation error: body: {}", message)};
}

ApiError bad_value(std::string_view param, std::string message) {
  return {.message = std::move(message), .param = std::string(param)};
}

ApiError from_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return {.message = error.message};
    case ErrorCode::kNotFound:
      return {.status = 404, .type = "NotFoundError", .message = error.message};
    case ErrorCode::kUnsupported:
      return {.status = 501, .type = "NotImplementedError", .message = error.message};
    case ErrorCode::kResourceExhausted:
      return {.status = 429, .type = "TooManyRequestsError", .message = error.message};
    case ErrorCode::kUnavailable:
    case ErrorCode::kCancelled:
      return {.status = 503, .type = "ServiceUnavailableError", .message = error.message};
    case ErrorCode::kInternal:
      break;
  }
  return {.status = 500, .type = "InternalServerError", .message = error.message};
}

std::string to_json(const ApiError& error) {
  const std::string reason =
      error.reason.empty() ? "" : R"(,"reason":)" + json_string(error.reason);
  return fmt::format(R"({{"error":{{"message":{},"type":{},"param":{},"code":{}{}}}}})",
                     json_string(error.message), json_string(error.type),
                     error.param.empty() ? "null" : json_string(error.param), error.status, reason);
}

std::string to_anthropic_json(const ApiError& error) {
  std::string message = error.message;
  if (error.reason == kContextLengthExceeded) {
    // An answer has one token at least.
    message = fmt::format("prompt is too long: {} tokens > {} maximum", error.prompt_tokens,
                          error.context - 1);
  }
  const std::string details =
      error.anthropic_details.empty() ? "" : ",\"details\":" + error.anthropic_details;
  return fmt::format(R"({{"type":"error","error":{{"type":"{}","message":{}{}}}}})",
                     anthropic_type(error.status), json_string(message), details);
}

}  // namespace lagoon::api
