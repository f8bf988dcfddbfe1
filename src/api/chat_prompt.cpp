#include "api/chat_prompt.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "api/generation_params.h"
#include "api/json.h"
#include "api/messages.h"

namespace lagoon::api {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

// "none" asks for no reasoning and any other effort for some; the model knows no degrees.
std::optional<bool> read_reasoning_effort(Fields& fields) {
  const auto effort = fields.string("reasoning_effort");
  if (!effort) return {};
  if (*effort == "none") return false;
  for (const char* known : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
    if (*effort == known) return true;
  }
  fields.fail(invalid_field("reasoning_effort",
                            "Input should be 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' "
                            "or 'max'."));
  return {};
}

// Variables for the template: off-by-default thinking, then the server's defaults, then
// reasoning_effort, then the request's chat_template_kwargs.
Dict read_template_kwargs(Fields& fields, const Context& context) {
  Dict kwargs;
  kwargs.set("enable_thinking", false);
  for (const auto& [key, value] : context.default_template_kwargs.items()) kwargs.set(key, value);
  if (const auto thinking = read_reasoning_effort(fields)) {
    kwargs.set("enable_thinking", *thinking);
  }
  if (const Json* own = fields.object("chat_template_kwargs")) {
    for (const auto& item : own->items()) {
      if (item.key() == "messages" || item.key() == "tools" ||
          item.key() == "add_generation_prompt" || item.key() == "chat_template" ||
          item.key() == "tokenize") {
        fields.fail(bad_value("chat_template_kwargs." + item.key(),
                              "chat_template_kwargs cannot set `" + item.key() + "`."));
      }
      Dict one;
      one.set(item.key(), to_value(item.value()));
      if (const auto fine = text::check_template_kwargs(one); !fine.ok()) {
        fields.fail(bad_value("chat_template_kwargs." + item.key(), fine.error().message));
      }
      kwargs.set(item.key(), *one.find(item.key()));
    }
  }
  return kwargs;
}

// Whether the key is there with text in it.
bool has_text(const Dict& message, const char* key) {
  const Value* value = message.find(key);
  return value != nullptr && value->is_string() && !value->string().empty();
}

// The conversation with `mark` at the end of its last message.
Value with_mark(const List& conversation, const std::string& mark) {
  List marked = conversation;
  Dict last = marked.back().dict();
  const bool in_reasoning = !has_text(last, "content") && has_text(last, "reasoning");
  for (const char* key : {"content", "reasoning", "reasoning_content"}) {
    const bool is_content = std::string_view(key) == "content";
    if (is_content == in_reasoning) continue;
    const Value* text = last.find(key);
    if (text != nullptr) last.set(key, text->string() + mark);
  }
  marked.back() = Value(std::move(last));
  return Value(std::move(marked));
}

// The prompt up to the end of the last message's text. What the template writes after it is found
// by a mark that no conversation has, so that neither repeated text nor trimming misleads.
ApiResult<std::string> render_unclosed(const Context& context, const List& conversation,
                                       ChatPromptFields& fields) {
  if (conversation.back().dict().find("tool_calls") != nullptr) {
    return bad_value("continue_final_message",
                     "continue_final_message cannot go on with a message that has tool_calls.");
  }
  const std::string mark = fmt::format("[end of message {:016x}]", random_seed());
  auto text = context.chat_template->render(
      with_mark(conversation, mark), std::move(fields.tools.shown), fields.template_kwargs, false);
  if (!text.ok()) return bad_value("messages", text.error().message);
  const size_t end = text->rfind(mark);
  if (end == std::string::npos) {
    return bad_value("continue_final_message",
                     "continue_final_message is set, but the chat template does not show the final "
                     "message (its reasoning, where it has no content).");
  }
  return text->substr(0, end);
}

}  // namespace

ChatPromptFields read_chat_prompt(Fields& fields, const Context& context) {
  ChatPromptFields read;
  read.tools = read_tools(fields);
  const auto generation_prompt = fields.boolean("add_generation_prompt");
  read.add_generation_prompt = generation_prompt.value_or(true);
  read.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  if (read.continue_final_message && read.add_generation_prompt) {
    fields.fail(bad_value("continue_final_message",
                          "Cannot set both `continue_final_message` and `add_generation_prompt` to "
                          "True."));
  }
  read.template_kwargs = read_template_kwargs(fields, context);
  read.messages = fields.array("messages");
  if (read.messages == nullptr) fields.fail(invalid_field("messages", "Field required"));
  return read;
}

ApiResult<std::vector<int32_t>> encode_chat_prompt(const Context& context,
                                                   ChatPromptFields& fields) {
  auto read = to_template_messages(*fields.messages);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  auto& conversation = std::get<Value>(read);
  if (fields.continue_final_message) {
    const auto text = render_unclosed(context, conversation.list(), fields);
    if (const auto* error = std::get_if<ApiError>(&text)) return *error;
    return encode_prompt(context, std::get<std::string>(text));
  }
  const auto text =
      context.chat_template->render(std::move(conversation), std::move(fields.tools.shown),
                                    fields.template_kwargs, fields.add_generation_prompt);
  if (!text.ok()) return bad_value("messages", text.error().message);
  return encode_prompt(context, *text);
}

}  // namespace lagoon::api
