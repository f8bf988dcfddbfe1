#include "api/response_items.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "api/response_tools.h"

namespace lagoon::api {
namespace {

constexpr std::string_view kSeal = "lagoon:";

std::string part_text(Fields& part, const std::string& at) {
  const std::string type = part.required_string("type");
  if (type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" ||
      type == "reasoning_text") {
    return part.required_string("text");
  }
  if (type == "refusal") return part.required_string("refusal");
  if (type.find("image") != std::string::npos) {
    part.fail(bad_value(at, at + ": images are not supported: this model reads text only."));
  } else if (!part.failed()) {
    part.fail(bad_value(at, fmt::format("{}: content parts of type {} are not supported: this "
                                        "model reads text only.",
                                        at, dump(Json(type)))));
  }
  return "";
}

// A string, or parts of text, joined by line breaks; null is "".
std::string read_text(Fields& item, std::string_view name) {
  const Json* content = item.any(name);
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    item.fail_type(name, "a string or a list of parts");
    return "";
  }
  std::string text;
  for (size_t i = 0; i < content->size() && !item.failed(); ++i) {
    const std::string at = fmt::format("{}.{}", item.location(name), i);
    if (i > 0) text += '\n';
    if ((*content)[i].is_string()) {
      text += (*content)[i].get_ref<const std::string&>();
    } else if ((*content)[i].is_object()) {
      Fields part((*content)[i], at);
      text += part_text(part, at);
      if (part.failed()) item.fail(part.error());
    } else {
      item.fail(invalid_field(at, "Input should be a string or an object."));
    }
  }
  return text;
}

void read_message(Fields& item, ChatTurns& turns) {
  const std::string role = item.required_string("role");
  const std::string text = read_text(item, "content");
  if (item.failed()) return;
  if (role == "assistant") {
    turns.say(text);
  } else if (role == "user" || role == "system" || role == "developer") {
    turns.add(role, text);
  } else {
    item.fail(invalid_field(item.location("role"),
                            "Input should be 'user', 'assistant', 'system' or 'developer'."));
  }
}

// The text itself, else what the client kept of it, else the summary of it.
void read_reasoning(Fields& item, ChatTurns& turns) {
  std::string text = read_text(item, "content");
  const auto sealed = item.string("encrypted_content");
  if (text.empty() && sealed) text = open_reasoning(*sealed).value_or("");
  if (text.empty()) text = read_text(item, "summary");
  if (!text.empty() && !item.failed()) turns.reason(text);
}

void read_call(Fields& item, bool custom, ChatTurns& turns) {
  const std::string id = item.required_string("call_id");
  const std::string name =
      shown_tool_name(item.string("namespace").value_or(""), item.required_string("name"));
  std::string arguments = custom ? custom_arguments(item.required_string("input"))
                                 : item.string("arguments").value_or("");
  if (!item.failed()) turns.call(id, name, std::move(arguments));
}

void read_shell_call(Fields& item, ChatTurns& turns) {
  const auto call_id = item.string("call_id");
  const std::string id = call_id ? *call_id : item.required_string("id");
  const Json* action = item.object("action");
  if (action == nullptr) item.fail(invalid_field(item.location("action"), "Field required"));
  if (item.failed()) return;
  Json arguments = Json::object();
  for (const char* name : {"command", "working_directory", "timeout_ms"}) {
    const auto value = action->find(name);
    if (value != action->end() && !value->is_null()) arguments[name] = *value;
  }
  turns.call(id, kLocalShell, dump(arguments));
}

void read_output(Fields& item, ChatTurns& turns) {
  const auto call_id = item.string("call_id");
  const std::string id = call_id ? *call_id : item.required_string("id");
  const std::string text = read_text(item, "output");
  if (!item.failed()) turns.result(id, text);
}

void read_item(Fields& item, ChatTurns& turns) {
  const std::string type = item.string("type").value_or("message");
  if (type == "message") {
    read_message(item, turns);
  } else if (type == "reasoning") {
    read_reasoning(item, turns);
  } else if (type == "function_call" || type == "custom_tool_call") {
    read_call(item, type == "custom_tool_call", turns);
  } else if (type == "local_shell_call") {
    read_shell_call(item, turns);
  } else if (type == "function_call_output" || type == "custom_tool_call_output" ||
             type == "local_shell_call_output") {
    read_output(item, turns);
  } else if (!item.failed()) {
    const std::string at = item.location("type");
    item.fail(bad_value(
        at, fmt::format("{}: input items of type {} are not supported.", at, dump(Json(type)))));
  }
}

}  // namespace

void read_response_items(Fields& fields, const Json& items, const std::string& location,
                         ChatTurns& turns) {
  for (size_t i = 0; i < items.size() && !fields.failed(); ++i) {
    const std::string at = fmt::format("{}.{}", location, i);
    if (!items[i].is_object()) {
      fields.fail(invalid_field(at, "Input should be an object."));
      return;
    }
    Fields item(items[i], at);
    read_item(item, turns);
    if (item.failed()) fields.fail(item.error());
  }
}

std::string seal_reasoning(std::string_view text) {
  return std::string(kSeal).append(text);
}

std::optional<std::string> open_reasoning(std::string_view sealed) {
  if (!sealed.starts_with(kSeal)) return {};
  return std::string(sealed.substr(kSeal.size()));
}

}  // namespace lagoon::api
