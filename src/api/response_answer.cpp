#include "api/response_answer.h"

#include <fmt/core.h>

#include "api/json.h"
#include "api/response_items.h"
#include "net/sse.h"

namespace lagoon::api {
namespace {

std::string usage_json(const engine::Usage& usage, int reasoning_tokens) {
  return fmt::format(R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},)"
                     R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},)"
                     R"("total_tokens":{}}})",
                     usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
                     reasoning_tokens, usage.prompt_tokens + usage.completion_tokens);
}

std::string_view status_of(const Block& block) {
  if (!block.ended) return "in_progress";
  return block.cut ? "incomplete" : "completed";
}

std::string text_part(std::string_view text) {
  return R"({"type":"output_text","text":)" + json_string(text) +
         R"(,"annotations":[],"logprobs":[]})";
}

std::string reasoning_part(std::string_view text) {
  return R"({"type":"reasoning_text","text":)" + json_string(text) + "}";
}

// The words that clients look for (Codex reads these).
std::string_view error_code(const ApiError& error) {
  if (error.reason == kContextLengthExceeded) return kContextLengthExceeded;
  if (error.status == 429) return "rate_limit_exceeded";
  return error.status < 500 ? "invalid_prompt" : "server_error";
}

}  // namespace

// Models leave the namespace out now and then. Where one tool alone has the name, it is meant.
const ResponseTool* ResponseAnswer::tool_of(const Block& block) const {
  const auto shown = form_.tools.find(block.name);
  if (shown != form_.tools.end()) return &shown->second;
  const ResponseTool* found = nullptr;
  for (const auto& [name, tool] : form_.tools) {
    if (tool.name != block.name) continue;
    if (found != nullptr) return nullptr;
    found = &tool;
  }
  return found;
}

ResponseAnswer::Item ResponseAnswer::item_of(const Block& block) const {
  if (block.kind == Block::Kind::kReasoning) return Item::kReasoning;
  if (block.kind == Block::Kind::kText) return Item::kMessage;
  const ResponseTool* const tool = tool_of(block);
  if (tool == nullptr) return Item::kFunctionCall;
  switch (tool->kind) {
    case ResponseTool::Kind::kCustom:
      return Item::kCustomCall;
    case ResponseTool::Kind::kLocalShell:
      return Item::kShellCall;
    case ResponseTool::Kind::kFunction:
      break;
  }
  return Item::kFunctionCall;
}

std::string ResponseAnswer::item_id(size_t index, const Block& block) const {
  const char* prefix = "";
  switch (item_of(block)) {
    case Item::kReasoning:
      prefix = "rs";
      break;
    case Item::kMessage:
      prefix = "msg";
      break;
    case Item::kFunctionCall:
      prefix = "fc";
      break;
    case Item::kCustomCall:
      prefix = "ctc";
      break;
    case Item::kShellCall:
      prefix = "lsh";
      break;
  }
  return fmt::format("{}_{}{:02x}", prefix, block.id, index);
}

// "call_id", "name", and "namespace" where there is one.
std::string ResponseAnswer::call_fields(const Block& block) const {
  const ResponseTool* const tool = tool_of(block);
  std::string text = fmt::format(R"("call_id":"call_{}","name":{})", block.id,
                                 json_string(tool == nullptr ? block.name : tool->name));
  if (tool != nullptr && !tool->name_space.empty()) {
    text += ",\"namespace\":" + json_string(tool->name_space);
  }
  return text;
}

std::string ResponseAnswer::item_json(size_t index, const Block& block) const {
  const std::string head =
      fmt::format(R"({{"id":"{}","status":"{}",)", item_id(index, block), status_of(block));
  const bool begun = block.ended || !block.text.empty();
  switch (item_of(block)) {
    case Item::kReasoning: {
      std::string text = head + R"("type":"reasoning","summary":[],"content":[)" +
                         (begun ? reasoning_part(block.text) : "") + "]";
      if (form_.seal_reasoning) {
        text += ",\"encrypted_content\":" + json_string(seal_reasoning(block.text));
      }
      return text + "}";
    }
    case Item::kMessage:
      return head + R"("type":"message","role":"assistant","content":[)" +
             (begun ? text_part(block.text) : "") + "]}";
    case Item::kFunctionCall:
      return head + R"("type":"function_call",)" + call_fields(block) +
             ",\"arguments\":" + json_string(block.text) + "}";
    case Item::kCustomCall:
      return head + R"("type":"custom_tool_call",)" + call_fields(block) +
             ",\"input\":" + json_string(block.ended ? custom_input(block.text) : "") + "}";
    case Item::kShellCall:
      break;
  }
  return head + fmt::format(R"("type":"local_shell_call","call_id":"call_{}","action":{}}})",
                            block.id, local_shell_action(block.ended ? block.text : "{}"));
}

std::string ResponseAnswer::items_json() const {
  std::string text;
  for (size_t i = 0; i < blocks().size(); ++i) {
    if (i > 0) text += ',';
    text += item_json(i, blocks()[i]);
  }
  return text;
}

std::string ResponseAnswer::response_json(std::string_view status, const std::string& error,
                                          const std::string& usage) const {
  const bool cut = status == "incomplete";
  return fmt::format(
      R"({{"id":{},"object":"response","created_at":{},"status":"{}","background":false,)"
      R"("error":{},"incomplete_details":{},"model":{},"output":[{}],"usage":{}{}}})",
      json_string(form_.id), form_.created, status, error,
      cut ? R"({"reason":"max_output_tokens"})" : "null", json_string(form_.model), items_json(),
      usage, form_.echo);
}

void ResponseAnswer::add_event(std::string& out, std::string_view type, const std::string& fields) {
  out += net::sse_event(
      type, fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", type, next_++, fields));
}

std::string ResponseAnswer::event_of_response(std::string_view type, const std::string& response) {
  std::string out;
  add_event(out, type, "\"response\":" + response);
  return out;
}

std::string ResponseAnswer::stream_begin() {
  const std::string response = "\"response\":" + response_json("in_progress", "null", "null");
  std::string out;
  add_event(out, "response.created", response);
  add_event(out, "response.in_progress", response);
  return out;
}

std::string ResponseAnswer::stream_alive() {
  return event_of_response("response.in_progress", response_json("in_progress", "null", "null"));
}

std::string ResponseAnswer::place(size_t index, const Block& block) const {
  return fmt::format(R"("item_id":"{}","output_index":{}{})", item_id(index, block), index,
                     block.kind == Block::Kind::kCall ? "" : ",\"content_index\":0");
}

std::string ResponseAnswer::begin_block(size_t index, const Block& block) {
  std::string out;
  add_event(out, "response.output_item.added",
            fmt::format(R"("output_index":{},"item":{})", index, item_json(index, block)));
  if (block.kind == Block::Kind::kCall) return out;
  add_event(out, "response.content_part.added",
            place(index, block) + ",\"part\":" +
                (block.kind == Block::Kind::kText ? text_part("") : reasoning_part("")));
  return out;
}

std::string ResponseAnswer::block_piece(size_t index, const Block& block,
                                        const std::string& piece) {
  std::string out;
  const std::string fields = place(index, block) + ",\"delta\":" + json_string(piece);
  switch (item_of(block)) {
    case Item::kReasoning:
      add_event(out, "response.reasoning_text.delta", fields);
      break;
    case Item::kMessage:
      add_event(out, "response.output_text.delta", fields + ",\"logprobs\":[]");
      break;
    case Item::kFunctionCall:
      add_event(out, "response.function_call_arguments.delta", fields);
      break;
    case Item::kCustomCall:  // told as a whole: its text is inside the arguments
    case Item::kShellCall:
      break;
  }
  return out;
}

std::string ResponseAnswer::end_block(size_t index, const Block& block) {
  std::string out;
  // Clients run a call as soon as it is said to be done. One that was cut off must not be run; the
  // response at the end has it.
  if (block.kind == Block::Kind::kCall && block.cut) return out;
  const std::string at = place(index, block);
  const std::string text = json_string(block.text);
  const ResponseTool* const tool = tool_of(block);
  switch (item_of(block)) {
    case Item::kReasoning:
      add_event(out, "response.reasoning_text.done", at + ",\"text\":" + text);
      add_event(out, "response.content_part.done", at + ",\"part\":" + reasoning_part(block.text));
      break;
    case Item::kMessage:
      add_event(out, "response.output_text.done", at + ",\"text\":" + text + ",\"logprobs\":[]");
      add_event(out, "response.content_part.done", at + ",\"part\":" + text_part(block.text));
      break;
    case Item::kFunctionCall:
      add_event(out, "response.function_call_arguments.done",
                at + ",\"name\":" + json_string(tool == nullptr ? block.name : tool->name) +
                    ",\"arguments\":" + text);
      break;
    case Item::kCustomCall: {
      const std::string input = json_string(custom_input(block.text));
      add_event(out, "response.custom_tool_call_input.delta", at + ",\"delta\":" + input);
      add_event(out, "response.custom_tool_call_input.done", at + ",\"input\":" + input);
      break;
    }
    case Item::kShellCall:
      break;
  }
  add_event(out, "response.output_item.done",
            fmt::format(R"("output_index":{},"item":{})", index, item_json(index, block)));
  return out;
}

// The end of the answer, which is kept before anybody can ask for it.
std::string ResponseAnswer::finished_json(const engine::Usage& total) {
  const bool cut = last().reason == engine::FinishReason::kLength;
  std::string response = response_json(cut ? "incomplete" : "completed", "null",
                                       usage_json(total, parts().reasoning_tokens()));
  if (form_.store != nullptr) {
    std::string items = form_.items;
    const std::string own = items_json();
    if (!items.empty() && !own.empty()) items += ',';
    form_.store->put(form_.id, {.body = response, .items = items + own});
  }
  return response;
}

// As vLLM has it, an answer that a limit ended is completed too, and its status says what it is: of
// other ends Codex would try the whole turn again.
std::string ResponseAnswer::stream_end(const engine::Usage& total) {
  return event_of_response("response.completed", finished_json(total));
}

std::string ResponseAnswer::stream_error(const ApiError& error) {
  const std::string text =
      fmt::format(R"({{"code":"{}","message":{}}})", error_code(error), json_string(error.message));
  return event_of_response("response.failed", response_json("failed", text, "null"));
}

std::string ResponseAnswer::body(const engine::Usage& total) {
  return finished_json(total);
}

}  // namespace lagoon::api
