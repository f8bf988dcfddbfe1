// What the endpoints share. Immutable after start-up; used from all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/errors.h"
#include "api/fields.h"
#include "api/generation.h"
#include "api/response_store.h"
#include "api/service.h"
#include "text/jinja/value.h"

namespace lagoon::api {

struct Context {
  ServiceOptions options;
  text::jinja::Dict default_template_kwargs;
  engine::Engine* engine = nullptr;
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;
  std::shared_ptr<ResponseStore> responses;  // of /v1/responses
  int64_t created = 0;                       // when the service started, for /v1/models

  const std::string& model_name() const { return options.model_names.front(); }
};

// {"error":...} of a model that is not served.
ApiError no_such_model(const std::string& name);

// Fails where the request names a model that is not served.
void check_model(Fields& fields, const Context& context);

// Warns in the log about fields that nothing has read, by name.
void log_ignored_fields(const Fields& fields, const std::string& id);

// The tokens of a prompt. One that is too long for the context by its bytes alone is refused, with
// vLLM's sentence, before it costs the time and memory of being taken apart.
ApiResult<std::vector<int32_t>> encode_prompt(const Context& context, const std::string& text);

// The text of tokens, special ones too.
std::string decode(const text::Tokenizer& tokenizer, std::span<const int32_t> tokens);

// Request bodies to requests of the engine. `id` is the answer's.
ApiResult<Prepared> prepare_chat(const Context& context, const Json& body, const std::string& id);
ApiResult<Prepared> prepare_completion(const Context& context, const Json& body,
                                       const std::string& id);
ApiResult<Prepared> prepare_messages(const Context& context, const Json& body,
                                     const std::string& id);
ApiResult<Prepared> prepare_response(const Context& context, const Json& body,
                                     const std::string& id);

// What a body would have the engine compute, without doing it.
ApiResult<std::string> render_chat(const Context& context, const Json& body, const std::string& id);
ApiResult<std::string> render_completion(const Context& context, const Json& body,
                                         const std::string& id);
ApiResult<std::string> render_messages(const Context& context, const Json& body,
                                       const std::string& id);
ApiResult<std::string> render_response(const Context& context, const Json& body,
                                       const std::string& id);

// POST /tokenize and /detokenize.
ApiResult<std::string> tokenize(const Context& context, const Json& body, const std::string& id);
ApiResult<std::string> detokenize(const Context& context, const Json& body, const std::string& id);

// POST /v1/messages/count_tokens.
ApiResult<std::string> count_message_tokens(const Context& context, const Json& body,
                                            const std::string& id);

// GET and DELETE /v1/responses/ID.
ApiResult<std::string> stored_response(const Context& context, const std::string& id);
ApiResult<std::string> delete_response(const Context& context, const std::string& id);

// GET /v1/models.
std::string models_json(const Context& context);
// GET /v1/models/NAME.
ApiResult<std::string> model_json(const Context& context, const std::string& name);

}  // namespace lagoon::api
