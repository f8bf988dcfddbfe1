#include "api/chat_request.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/chat_prompt.h"

namespace lagoon::api {

namespace {

bool is_word(char c) {
  return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
}

void replace_words(std::string& text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const size_t end = at + word.size();
    const bool whole =
        (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (whole) text.replace(at, word.size(), by);
    at += whole ? by.size() : word.size();
  }
}

}  // namespace

ApiError in_names_of_body(ApiError error, const FieldNames& names) {
  for (const auto& [chat, body] : names) {
    if (error.param != chat && !error.param.starts_with(chat + ".")) continue;
    error.param.replace(0, chat.size(), body);
    replace_words(error.message, chat, body);
    break;
  }
  return error;
}

text::parse::TokenParser ChatRequest::parser(const text::Tokenizer& tokenizer) const {
  return {tokenizer, requests[0].prompt, tool_types, params.skip_special_tokens};
}

ApiResult<ChatRequest> read_chat_request(Fields& fields, const Context& context,
                                         const std::string& id, Overlong overlong) {
  ChatRequest request;
  GenerationParams& params = request.params;
  params = read_generation_params(fields, context.options.default_sampling,
                                  context.tokenizer->vocab_size(), true);
  refuse_unsupported(fields, true);
  ChatPromptFields chat = read_chat_prompt(fields, context);
  request.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  if (fields.failed()) return fields.error();
  request.parallel_calls = chat.tools.parallel;
  request.tool_types = chat.tools.types;
  // As in vLLM: a value may hold a tag of the model's own, and must not lose it.
  if (request.tool_types != nullptr) params.skip_special_tokens = false;

  auto encoded = encode_chat_prompt(context, chat);
  if (auto* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  auto& prompt = std::get<std::vector<int32_t>>(encoded);
  const int64_t length = context.engine->max_length();
  GenerationParams within = params;
  if (overlong == Overlong::kCut && params.max_tokens) {
    within.max_tokens = std::clamp<int64_t>(length - std::ssize(prompt), 1,
                                            std::max<int64_t>(*params.max_tokens, 1));
  }
  if (auto error = add_requests(within, std::move(prompt), length, 0, id, request.requests)) {
    return std::move(*error);
  }
  return request;
}

void copy_common_fields(Fields& fields, Json& chat) {
  for (const char* name : {"temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty",
                           "frequency_penalty", "repetition_penalty", "logit_bias", "min_tokens",
                           "ignore_eos", "stop_token_ids", "chat_template_kwargs", "stream"}) {
    if (const Json* value = fields.any(name)) chat[name] = *value;
  }
}

}  // namespace lagoon::api
