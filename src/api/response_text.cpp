#include "api/response_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "api/json.h"

namespace lagoon::api {

std::string response_head(const ResponseIdentity& identity, std::string_view object) {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{})", json_string(identity.id),
                     object, identity.created, json_string(identity.model));
}

std::string usage_json(const engine::Usage& usage, int reasoning_tokens) {
  std::string text = fmt::format(R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},)"
                                 R"("prompt_tokens_details":{{"cached_tokens":{}}})",
                                 usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens,
                                 usage.completion_tokens, usage.cached_tokens);
  if (reasoning_tokens >= 0) {
    text +=
        fmt::format(R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})", reasoning_tokens);
  }
  text += '}';
  return text;
}

std::string_view finish_reason(const engine::Event& last) {
  return last.reason == engine::FinishReason::kLength ? "length" : "stop";
}

std::string stop_reason_json(const engine::Event& last, const std::vector<int32_t>& stop_tokens) {
  if (last.reason != engine::FinishReason::kStop) return "null";
  if (!last.stop_string.empty()) return json_string(last.stop_string);
  const bool asked =
      std::find(stop_tokens.begin(), stop_tokens.end(), last.stop_token) != stop_tokens.end();
  return asked ? fmt::format("{}", last.stop_token) : "null";
}

std::string stop_text(const engine::Event& event, const text::Tokenizer& tokenizer,
                      bool skip_special_tokens) {
  if (!event.finished || event.reason != engine::FinishReason::kStop) return "";
  if (!event.stop_string.empty()) return event.stop_string;
  if (event.stop_token < 0) return "";
  if (skip_special_tokens && tokenizer.is_special(event.stop_token)) return "";
  return std::string(tokenizer.token_bytes(event.stop_token));
}

}  // namespace lagoon::api
