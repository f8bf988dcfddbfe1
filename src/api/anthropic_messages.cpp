// POST /v1/messages and /v1/messages/count_tokens.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/anthropic_request.h"
#include "api/block_answer.h"
#include "api/chat_prompt.h"
#include "api/chat_request.h"
#include "api/context.h"
#include "api/json.h"
#include "net/sse.h"

namespace lagoon::api {
namespace {

// What the answer's form depends on.
struct MessageForm {
  std::string id;
  std::string model;  // as the request calls it
  bool include_signatures = true;
  bool cut_by_context = false;  // max_tokens was more than the context leaves
  int prompt_tokens = 0;
};

// Stands where Anthropic signs thinking. Clients want one to be there, and send it back; nobody
// checks it here. FNV-1a (Fowler, Noll, Vo), so that the same thought has the same.
std::string signature_of(std::string_view thinking) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : thinking) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

class MessageAnswer : public BlockAnswer {
 public:
  MessageAnswer(MessageForm form, AnswerParts parts)
      : BlockAnswer(std::move(parts)), form_(std::move(form)) {}

  std::string stream_begin() override {
    engine::Usage usage;
    usage.prompt_tokens = form_.prompt_tokens;
    return net::sse_event("message_start", R"({"type":"message_start","message":)" +
                                               message_json("", "null", "null", usage) + "}");
  }

  std::string stream_end(const engine::Usage& total) override {
    return net::sse_event("message_delta",
                          fmt::format(R"({{"type":"message_delta","delta":{{"stop_reason":{},)"
                                      R"("stop_sequence":{},"stop_details":null}},"usage":{}}})",
                                      stop_reason(), stop_sequence(), usage_json(total))) +
           net::sse_event("message_stop", R"({"type":"message_stop"})");
  }

  std::string stream_error(const ApiError& error) override {
    return net::sse_event("error", to_anthropic_json(error));
  }

  std::string stream_alive() override { return net::sse_event("ping", R"({"type":"ping"})"); }

  std::string body(const engine::Usage& total) override {
    std::string content;
    for (const Block& block : blocks()) {
      if (!content.empty()) content += ',';
      content += block_json(block);
    }
    return message_json(content, stop_reason(), stop_sequence(), total);
  }

 protected:
  std::string begin_block(size_t index, const Block& block) override {
    Block empty = block;
    empty.text = block.kind == Block::Kind::kCall ? "{}" : "";
    return event("content_block_start", index, R"("content_block":)" + block_json(empty));
  }

  std::string block_piece(size_t index, const Block& block, const std::string& piece) override {
    switch (block.kind) {
      case Block::Kind::kReasoning:
        return delta(index, "thinking_delta", "thinking", piece);
      case Block::Kind::kText:
        return delta(index, "text_delta", "text", piece);
      case Block::Kind::kCall:
        break;
    }
    return delta(index, "input_json_delta", "partial_json", piece);
  }

  std::string end_block(size_t index, const Block& block) override {
    std::string text;
    if (block.kind == Block::Kind::kReasoning && form_.include_signatures) {
      text = delta(index, "signature_delta", "signature", signature_of(block.text));
    }
    return text +
           net::sse_event("content_block_stop",
                          fmt::format(R"({{"type":"content_block_stop","index":{}}})", index));
  }

 private:
  static std::string event(const char* type, size_t index, const std::string& fields) {
    return net::sse_event(type,
                          fmt::format(R"({{"type":"{}","index":{},{}}})", type, index, fields));
  }

  static std::string delta(size_t index, const char* type, const char* field,
                           const std::string& text) {
    return event("content_block_delta", index,
                 fmt::format(R"("delta":{{"type":"{}","{}":{}}})", type, field, json_string(text)));
  }

  std::string block_json(const Block& block) const {
    switch (block.kind) {
      case Block::Kind::kReasoning: {
        const bool sign = form_.include_signatures && block.ended;
        return fmt::format(R"({{"type":"thinking","thinking":{},"signature":"{}"}})",
                           json_string(block.text), sign ? signature_of(block.text) : "");
      }
      case Block::Kind::kText:
        return fmt::format(R"({{"type":"text","text":{}}})", json_string(block.text));
      case Block::Kind::kCall:
        break;
    }
    return fmt::format(R"({{"type":"tool_use","id":"toolu_{}","name":{},"input":{}}})", block.id,
                       json_string(block.name), block.text);
  }

  // What was cached counts apart, as Anthropic has it.
  static std::string usage_json(const engine::Usage& usage) {
    return fmt::format(R"({{"input_tokens":{},"cache_creation_input_tokens":0,)"
                       R"("cache_read_input_tokens":{},"output_tokens":{}}})",
                       usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens,
                       usage.completion_tokens);
  }

  std::string message_json(const std::string& content, const std::string& reason,
                           const std::string& sequence, const engine::Usage& usage) const {
    return fmt::format(R"({{"id":{},"type":"message","role":"assistant","model":{},"content":[{}],)"
                       R"("stop_reason":{},"stop_sequence":{},"stop_details":null,"usage":{}}})",
                       json_string(form_.id), json_string(form_.model), content, reason, sequence,
                       usage_json(usage));
  }

  std::string stop_reason() const {
    if (last().reason == engine::FinishReason::kLength) {
      return form_.cut_by_context ? "\"model_context_window_exceeded\"" : "\"max_tokens\"";
    }
    if (!last().stop_string.empty()) return "\"stop_sequence\"";
    return parts().ending().calls > 0 ? "\"tool_use\"" : "\"end_turn\"";
  }

  std::string stop_sequence() const {
    return last().stop_string.empty() ? "null" : json_string(last().stop_string);
  }

  const MessageForm form_;
};

// The model's name: any, unless the server is strict about it.
std::string read_model(Fields& fields, const Context& context) {
  if (context.options.strict_model_name) check_model(fields, context);
  return fields.string("model").value_or(context.model_name());
}

}  // namespace

ApiResult<Prepared> prepare_messages(const Context& context, const Json& body,
                                     const std::string& id) {
  Fields fields(body);
  const std::string model = read_model(fields, context);
  FieldNames names;
  const Json chat = chat_of_messages(fields, id, false, names);
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);
  Fields chat_fields(chat);
  auto read = read_chat_request(chat_fields, context, id, Overlong::kCut);
  if (auto* error = std::get_if<ApiError>(&read)) return in_names_of_body(*error, names);
  auto& request = std::get<ChatRequest>(read);
  AnswerParts parts(request.parser(*context.tokenizer), request.parallel_calls);
  Prepared prepared;
  prepared.requests = std::move(request.requests);
  prepared.stream = request.params.stream;
  const engine::Request& made = prepared.requests[0];
  prepared.answer = std::make_unique<MessageAnswer>(
      MessageForm{.id = id,
                  .model = model,
                  .include_signatures = context.options.thinking_signatures,
                  .cut_by_context = made.max_tokens < request.params.max_tokens,
                  .prompt_tokens = static_cast<int>(made.prompt.size())},
      std::move(parts));
  return prepared;
}

ApiResult<std::string> count_message_tokens(const Context& context, const Json& body,
                                            const std::string& id) {
  Fields fields(body);
  read_model(fields, context);
  FieldNames names;
  const Json chat = chat_of_messages(fields, id, true, names);
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);
  Fields chat_fields(chat);
  ChatPromptFields prompt = read_chat_prompt(chat_fields, context);
  if (chat_fields.failed()) return in_names_of_body(chat_fields.error(), names);
  const auto tokens = encode_chat_prompt(context, prompt);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return *error;
  const size_t count = std::get<std::vector<int32_t>>(tokens).size();
  return fmt::format(R"({{"input_tokens":{},"context_management":{{"original_input_tokens":{}}}}})",
                     count, count);
}

}  // namespace lagoon::api
