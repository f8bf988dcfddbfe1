// POST /v1/responses, and what is kept of its answers.
#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/chat_request.h"
#include "api/context.h"
#include "api/json.h"
#include "api/response_answer.h"
#include "api/response_items.h"

namespace lagoon::api {
namespace {

ApiError no_such_response(const std::string& id, const char* param) {
  return {.status = 404,
          .type = "NotFoundError",
          .message = fmt::format("Response with id '{}' not found. Answers are kept in memory, "
                                 "where `store` is not false and --max-response-store-bytes leaves "
                                 "room, until the server ends.",
                                 id.substr(0, 200)),
          .param = param};
}

// A field that must not ask for anything.
void refuse_unless(Fields& fields, const char* name, bool fine, const char* accepted) {
  if (fine) return;
  fields.fail(bad_value(name, fmt::format("`{}` is not supported by this version of Lagoon; only "
                                          "{} is accepted.",
                                          name, accepted)));
}

// Fields that ask for what is not done here.
void refuse_others(Fields& fields) {
  refuse_unless(fields, "background", !fields.boolean("background").value_or(false), "false");
  refuse_unless(fields, "prompt", fields.any("prompt") == nullptr, "null");
  refuse_unless(fields, "conversation", fields.any("conversation") == nullptr, "null");
  refuse_unless(fields, "truncation",
                fields.string("truncation").value_or("disabled") == "disabled", "\"disabled\"");
  refuse_unless(fields, "top_logprobs", fields.integer("top_logprobs").value_or(0) == 0, "0");
  refuse_unless(fields, "context_management", fields.any("context_management") == nullptr, "null");
  for (const char* name :
       {"metadata", "user", "service_tier", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "stream_options", "max_tool_calls", "client_metadata"}) {
    fields.any(name);
  }
}

// Whether reasoning is to have encrypted_content. What else can be included belongs to tools that
// are not here, but for log probabilities.
bool read_include(Fields& fields) {
  bool sealed = false;
  const Json* include = fields.array("include");
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const Json& name = (*include)[i];
    if (name == "reasoning.encrypted_content") sealed = true;
    if (name == "message.output_text.logprobs" || !name.is_string()) {
      fields.fail(bad_value("include", fmt::format("include.{}: {} is not supported by this "
                                                   "version of Lagoon.",
                                                   i, dump(name))));
    }
  }
  return sealed;
}

// {"effort","summary"}; there are no summaries, the reasoning itself is told.
void read_reasoning(Fields& fields, Json& chat) {
  const Json* json = fields.object("reasoning");
  if (json == nullptr) return;
  Fields reasoning(*json, "reasoning");
  if (const auto effort = reasoning.string("effort")) chat["reasoning_effort"] = *effort;
  reasoning.string("summary");
  if (reasoning.failed()) fields.fail(reasoning.error());
}

// {"format":{"type":...},"verbosity"}, of which chat's response_format has the schema one deeper.
void read_text_format(Fields& fields, Json& chat) {
  const Json* json = fields.object("text");
  if (json == nullptr) return;
  Fields text(*json, "text");
  text.string("verbosity");
  if (const Json* object = text.object("format")) {
    Fields format(*object, "text.format");
    const std::string type = format.required_string("type");
    if (type == "json_schema") {
      Json schema = *object;
      schema.erase("type");
      chat["response_format"] = {{"type", type}, {"json_schema", std::move(schema)}};
    } else if (type != "text") {
      chat["response_format"] = *object;
    }
    if (format.failed()) text.fail(format.error());
  }
  if (text.failed()) fields.fail(text.error());
}

void read_limit(Fields& fields, Json& chat) {
  const auto limit = fields.integer("max_output_tokens");
  if (!limit) return;
  if (*limit < 1) {
    fields.fail(
        bad_value("max_output_tokens", fmt::format("max_output_tokens must be at least 1, got {}. "
                                                   "(parameter=max_output_tokens, value={})",
                                                   *limit, *limit)));
  }
  chat["max_tokens"] = *limit;
}

// The turns before the answer: instructions, those of the answer that this one goes on with, input.
class History {
 public:
  void read(Fields& fields, const Context& context) {
    if (const auto instructions = fields.string("instructions");
        !instructions.value_or("").empty()) {
      turns_.add("system", *instructions);
    }
    if (const auto previous = fields.string("previous_response_id")) {
      read_previous(fields, context, *previous);
    }
    const Json* input = fields.any("input");
    if (input == nullptr) {
      fields.fail(invalid_field("input", "Field required"));
    } else if (input->is_string()) {
      Json message = {{"role", "user"}, {"content", *input}};
      read_items(fields, Json::array({std::move(message)}), "input");
    } else if (input->is_array()) {
      read_items(fields, *input, "input");
    } else {
      fields.fail_type("input", "a string or a list of items");
    }
    if (turns_.empty()) fields.fail(bad_value("input", "input must not be empty."));
  }

  Json messages() const { return turns_.to_json(); }
  // All items, JSON without brackets.
  std::string items() const { return items_; }

 private:
  void read_previous(Fields& fields, const Context& context, const std::string& id) {
    const auto stored = context.responses->get(id);
    if (!stored) {
      fields.fail(no_such_response(id, "previous_response_id"));
      return;
    }
    const auto items = parse_json("[" + stored->items + "]");
    if (!items.ok()) {
      fields.fail(bad_value("previous_response_id", "The conversation is too long to go on with: " +
                                                        items.error().message));
      return;
    }
    read_items(fields, *items, "previous_response_id");
  }

  void read_items(Fields& fields, const Json& items, const std::string& location) {
    read_response_items(fields, items, location, turns_);
    for (const Json& item : items) {
      if (!items_.empty()) items_ += ',';
      items_ += dump(item);
    }
  }

  ChatTurns turns_;
  std::string items_;
};

// Fields of the answer that say what was asked for.
std::string echo_json(const Json& body, const kernels::Sampling& sampling) {
  const auto said = [&](const char* name, const char* otherwise) {
    const auto found = body.find(name);
    return fmt::format(R"(,"{}":{})", name,
                       found == body.end() || found->is_null() ? otherwise : dump(*found));
  };
  std::string text =
      fmt::format(R"(,"temperature":{:.6g},"top_p":{:.6g})", sampling.temperature, sampling.top_p);
  text += said("instructions", "null") + said("max_output_tokens", "null") +
          said("max_tool_calls", "null") + said("metadata", "{}") +
          said("parallel_tool_calls", "true") + said("previous_response_id", "null") +
          said("prompt_cache_key", "null") +
          said("reasoning", R"({"effort":null,"summary":null})") +
          said("safety_identifier", "null") + said("service_tier", "\"default\"") +
          said("store", "true") + said("text", R"({"format":{"type":"text"}})") +
          said("tool_choice", "\"auto\"") + said("tools", "[]") + said("top_logprobs", "0") +
          said("truncation", "\"disabled\"") + said("user", "null");
  return text;
}

}  // namespace

ApiResult<Prepared> prepare_response(const Context& context, const Json& body,
                                     const std::string& id) {
  Fields fields(body);
  check_model(fields, context);
  ResponseForm form;
  form.id = id;
  form.created = std::time(nullptr);
  form.model = context.model_name();
  Json chat = Json::object();
  copy_common_fields(fields, chat);
  FieldNames names = {{"max_tokens", "max_output_tokens"},
                      {"reasoning_effort", "reasoning.effort"},
                      {"response_format", "text.format"}};
  form.tools = read_response_tools(fields, chat, names);
  read_reasoning(fields, chat);
  read_text_format(fields, chat);
  read_limit(fields, chat);
  form.seal_reasoning = read_include(fields);
  if (fields.boolean("store").value_or(true)) form.store = context.responses;
  refuse_others(fields);
  History history;
  if (!fields.failed()) history.read(fields, context);
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);
  chat["messages"] = history.messages();
  if (form.store != nullptr) form.items = history.items();

  Fields chat_fields(chat);
  auto read = read_chat_request(chat_fields, context, id);
  if (auto* error = std::get_if<ApiError>(&read)) {
    if (error->reason != kContextLengthExceeded || !chat.value("stream", false)) {
      return in_names_of_body(std::move(*error), names);
    }
    // Codex looks for it at the end of a stream, and nowhere else.
    form.store = nullptr;
    // What is too long is not said again.
    form.echo = echo_json(Json::object(), context.options.default_sampling);
    ResponseAnswer answer(std::move(form),
                          AnswerParts({*context.tokenizer, {}, nullptr, true}, true));
    Prepared refused;
    refused.refusal = answer.stream_begin();
    refused.refusal += answer.stream_error(*error);
    return refused;
  }
  auto& request = std::get<ChatRequest>(read);
  form.echo = echo_json(body, request.params.sampling);
  AnswerParts parts(request.parser(*context.tokenizer), request.parallel_calls);
  Prepared prepared;
  prepared.requests = std::move(request.requests);
  prepared.stream = request.params.stream;
  prepared.answer = std::make_unique<ResponseAnswer>(std::move(form), std::move(parts));
  return prepared;
}

ApiResult<std::string> stored_response(const Context& context, const std::string& id) {
  auto stored = context.responses->get(id);
  if (!stored) return no_such_response(id, "response_id");
  return std::move(stored->body);
}

ApiResult<std::string> delete_response(const Context& context, const std::string& id) {
  if (!context.responses->erase(id)) return no_such_response(id, "response_id");
  return fmt::format(R"({{"id":{},"object":"response","deleted":true}})", json_string(id));
}

}  // namespace lagoon::api
