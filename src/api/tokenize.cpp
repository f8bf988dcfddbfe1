// POST /tokenize, /detokenize, and the /render endpoints: what the tokenizer and the template make
// of a request, without computing anything.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/chat_prompt.h"
#include "api/context.h"
#include "api/json.h"
#include "api/logprobs.h"

namespace lagoon::api {
namespace {

std::string ids_json(std::span<const int32_t> ids) {
  std::string json = "[";
  for (const int32_t id : ids) {
    if (json.size() > 1) json += ',';
    json += std::to_string(id);
  }
  return json + "]";
}

// The tokens of `messages`, or of `prompt`.
ApiResult<std::vector<int32_t>> read_tokens(Fields& fields, const Context& context,
                                            const std::string& id) {
  const bool chat = fields.any("messages") != nullptr;
  // As in vLLM: a template writes them itself.
  const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(!chat);
  ChatPromptFields read;
  std::string prompt;
  if (chat) {
    read = read_chat_prompt(fields, context);
    if (fields.any("prompt") != nullptr) {
      fields.fail(bad_value("prompt", "Only one of `prompt` and `messages` is tokenized."));
    }
  } else if (auto text = fields.string("prompt")) {
    prompt = std::move(*text);
  } else {
    fields.fail(invalid_field("prompt", "Field required"));
  }
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);
  auto tokens = chat ? encode_chat_prompt(context, read) : encode_prompt(context, prompt);
  if (auto* ids = std::get_if<std::vector<int32_t>>(&tokens);
      ids != nullptr && add_special_tokens) {
    context.tokenizer->add_prefix(*ids);
  }
  return tokens;
}

std::string sampling_json(const engine::Request& request) {
  const auto& sampling = request.sampling;
  std::string bias;
  for (const auto& [token, value] : request.logit_bias) {
    bias += fmt::format(R"({}"{}":{})", bias.empty() ? "" : ",", token, value);
  }
  std::string stop;
  for (const auto& text : request.stop) stop += (stop.empty() ? "" : ",") + json_string(text);
  return fmt::format(
      R"({{"temperature":{},"top_p":{},"top_k":{},"min_p":{},"seed":{},"repetition_penalty":{},)"
      R"("presence_penalty":{},"frequency_penalty":{},"logit_bias":{{{}}},"max_tokens":{},)"
      R"("min_tokens":{},"ignore_eos":{},"stop":[{}],"stop_token_ids":{}}})",
      sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.seed,
      request.penalties.repetition, request.penalties.presence, request.penalties.frequency, bias,
      request.max_tokens, request.min_tokens, request.ignore_eos, stop,
      ids_json(request.stop_tokens));
}

// One prompt's requests differ in their seeds alone; the first is shown.
std::string rendered_json(const Context& context, const Prepared& prepared, size_t index) {
  const engine::Request& request = prepared.requests[index];
  return fmt::format(
      R"({{"request_id":{},"model":{},"prompt":{},"token_ids":{},"count":{},"max_model_len":{},)"
      R"("n":{},"sampling_params":{}}})",
      json_string(request.id), json_string(context.model_name()),
      json_string(decode(*context.tokenizer, request.prompt)), ids_json(request.prompt),
      request.prompt.size(), context.engine->max_length(), prepared.choices_of_a_prompt,
      sampling_json(request));
}

// Of a request with one prompt.
ApiResult<std::string> rendered(const Context& context, const ApiResult<Prepared>& prepared) {
  if (const auto* error = std::get_if<ApiError>(&prepared)) return *error;
  return rendered_json(context, std::get<Prepared>(prepared), 0);
}

}  // namespace

ApiResult<std::string> render_chat(const Context& context, const Json& body,
                                   const std::string& id) {
  return rendered(context, prepare_chat(context, body, id));
}

ApiResult<std::string> render_messages(const Context& context, const Json& body,
                                       const std::string& id) {
  return rendered(context, prepare_messages(context, body, id));
}

ApiResult<std::string> render_response(const Context& context, const Json& body,
                                       const std::string& id) {
  Json whole = body;
  whole["stream"] = false;  // so that a refusal is an error
  return rendered(context, prepare_response(context, whole, id));
}

ApiResult<std::string> render_completion(const Context& context, const Json& body,
                                         const std::string& id) {
  const auto result = prepare_completion(context, body, id);
  if (const auto* error = std::get_if<ApiError>(&result)) return *error;
  const auto& prepared = std::get<Prepared>(result);
  std::string list;
  for (size_t i = 0; i < prepared.requests.size(); i += prepared.choices_of_a_prompt) {
    list += (list.empty() ? "" : ",") + rendered_json(context, prepared, i);
  }
  return "[" + list + "]";
}

ApiResult<std::string> tokenize(const Context& context, const Json& body, const std::string& id) {
  Fields fields(body);
  check_model(fields, context);
  const bool with_text = fields.boolean("return_token_strs").value_or(false);
  const auto tokens = read_tokens(fields, context, id);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return *error;
  const auto& ids = std::get<std::vector<int32_t>>(tokens);
  std::string texts = "null";
  if (with_text) {
    texts = "[";
    for (const int32_t token : ids) {
      if (texts.size() > 1) texts += ',';
      append_json_string(texts, token_name(*context.tokenizer, token));
    }
    texts += ']';
  }
  return fmt::format(R"({{"count":{},"max_model_len":{},"tokens":{},"token_strs":{}}})", ids.size(),
                     context.engine->max_length(), ids_json(ids), texts);
}

ApiResult<std::string> detokenize(const Context& context, const Json& body, const std::string& id) {
  Fields fields(body);
  check_model(fields, context);
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.fail(invalid_field("tokens", "Field required"));
  std::vector<int32_t> ids;
  for (size_t i = 0; tokens != nullptr && i < tokens->size() && !fields.failed(); ++i) {
    const Json& token = (*tokens)[i];
    if (!token.is_number_integer() || token < 0 || token >= context.tokenizer->vocab_size()) {
      fields.fail(invalid_field(
          fmt::format("tokens.{}", i),
          fmt::format("Input should be a token id below {}.", context.tokenizer->vocab_size())));
    } else {
      ids.push_back(token.get<int32_t>());
    }
  }
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);
  return R"({"prompt":)" + json_string(decode(*context.tokenizer, ids)) + "}";
}

}  // namespace lagoon::api
