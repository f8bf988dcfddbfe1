#include "api/messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/fields.h"

namespace lagoon::api {
namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};

// What a message says, and what was thought before it.
struct Spoken {
  std::string content;
  std::string reasoning;
};

bool is_reasoning_part(std::string_view type) {
  return type == "thinking" || type == "reasoning" || type == "redacted_thinking";
}

// The text of {"type":"thinking","thinking":...} or {"type":"reasoning","text":...}; "" of one that
// is encrypted.
std::string reasoning_part(Fields& part) {
  for (const char* name : {"thinking", "reasoning", "text"}) {
    const auto text = part.string(name);
    if (text) return *text;
  }
  return "";
}

// The text of a part, empty where it is not one of text.
std::optional<std::string> part_text(Fields& part, const std::string& location) {
  const auto type = part.string("type").value_or("");
  std::optional<std::string> text;
  if (type == "text" || type == "input_text" || type == "output_text") {
    text = part.string("text");
  } else if (type == "refusal") {
    text = part.string("refusal");
  } else if (type.find("image") != std::string::npos) {
    part.fail(bad_value(location, "Images are not supported: this model reads text only."));
  } else {
    part.fail(bad_value(
        location, fmt::format("Content parts of type {} are not supported: this model reads text "
                              "only.",
                              json_string(type))));
  }
  if (!text) part.fail(invalid_field(part.location("text"), "Field required"));
  return text;
}

Spoken read_parts(Fields& message, const Json& parts, bool assistant) {
  Spoken spoken;
  bool first = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string location = fmt::format("{}.{}", message.location("content"), i);
    const Json& part = parts[i];
    std::optional<std::string> text;
    if (part.is_string()) {
      text = part.get<std::string>();
    } else if (part.is_object()) {
      Fields fields(part, location);
      if (assistant && is_reasoning_part(fields.string("type").value_or(""))) {
        spoken.reasoning += reasoning_part(fields);
        if (!fields.failed()) continue;
      } else {
        text = part_text(fields, location);
      }
      if (fields.failed()) message.fail(fields.error());
    } else {
      message.fail(invalid_field(location, "Input should be a string or an object."));
    }
    if (!text) return {};
    if (!std::exchange(first, false)) spoken.content.push_back('\n');
    spoken.content.append(*text);
  }
  return spoken;
}

Spoken read_content(Fields& message, bool assistant) {
  const Json* content = message.any("content");
  if (content == nullptr) return {};
  if (content->is_string()) return {content->get<std::string>(), ""};
  if (content->is_array()) return read_parts(message, *content, assistant);
  message.fail_type("content", "a string or a list of parts");
  return {};
}

// What clients send back of a turn's reasoning: `reasoning_content`, `reasoning`, or OpenRouter's
// `reasoning_details` [{"type": "reasoning.text", "text": ...}]. Empty where there is none.
std::string reasoning_text(Fields& message) {
  auto content = message.string("reasoning_content").value_or("");
  auto reasoning = message.string("reasoning").value_or("");
  const Json* details = message.array("reasoning_details");
  if (!content.empty()) return content;
  if (!reasoning.empty() || details == nullptr) return reasoning;
  std::string joined;
  for (const Json& detail : *details) {
    if (detail.is_object() && detail.contains("text") && detail["text"].is_string()) {
      joined.append(detail["text"].get_ref<const std::string&>());
    }
  }
  return joined;
}

// Clients without a field for reasoning leave it in the content, as a server without a parser had
// it: "<think>...</think>" or, where the prompt had opened it and nothing was thought, "</think>".
// Templates put these tags themselves. A block that was cut off before its end is reasoning.
void split_think_block(Spoken& spoken) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const size_t start = spoken.content.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) return;
  if (spoken.content.compare(start, kClose.size(), kClose) == 0) {
    spoken.content.erase(0, start + kClose.size());
    return;
  }
  if (spoken.content.compare(start, kOpen.size(), kOpen) != 0) return;
  const size_t begin = start + kOpen.size();
  const size_t end = spoken.content.find(kClose, begin);  // npos: cut off
  std::string thought = spoken.content.substr(begin, end == std::string::npos ? end : end - begin);
  // Reasoning that came twice is said once; two different ones are both kept.
  if (!spoken.reasoning.empty() && spoken.reasoning != thought) return;
  spoken.reasoning = std::move(thought);
  spoken.content.erase(0, end == std::string::npos ? end : end + kClose.size());
}

Spoken read_spoken(Fields& message, bool assistant) {
  Spoken spoken = read_content(message, assistant);
  std::string reasoning = reasoning_text(message);
  if (!reasoning.empty()) spoken.reasoning = std::move(reasoning);
  if (assistant) split_think_block(spoken);
  return spoken;
}

Value arguments_dict(const Json* arguments) {
  if (arguments == nullptr) return Dict();
  if (arguments->is_object()) return to_value(*arguments);
  std::string raw = arguments->is_string() ? arguments->get<std::string>() : dump(*arguments);
  if (raw.find_first_not_of(" \t\r\n") == std::string::npos) return Dict();
  const auto parsed = parse_json(raw);
  if (parsed.ok() && parsed->is_object()) return to_value(*parsed);
  Dict kept;
  kept.set("raw_arguments", std::move(raw));
  return kept;
}

// A dict of all of an object's keys but `except`.
Dict copy_without(const Json& object, std::initializer_list<std::string_view> except) {
  Dict copy;
  for (const auto& item : object.items()) {
    if (std::find(except.begin(), except.end(), item.key()) == except.end()) {
      copy.set(item.key(), to_value(item.value()));
    }
  }
  return copy;
}

Value tool_call_value(Fields& message, const Json& call, const std::string& location) {
  if (!call.is_object()) {
    message.fail(invalid_field(location, "Input should be an object."));
    return {};
  }
  Fields fields(call, location);
  const Json* function = fields.object("function");
  Dict converted;
  if (function != nullptr) {
    Fields inner(*function, fields.location("function"));
    const auto name = inner.string("name");
    if (!name) inner.fail(invalid_field(inner.location("name"), "Field required"));
    if (inner.failed()) fields.fail(inner.error());
    converted = copy_without(*function, {"arguments"});
    converted.set("arguments", arguments_dict(inner.any("arguments")));
  } else {
    fields.fail(invalid_field(fields.location("function"), "Field required"));
  }
  if (fields.failed()) message.fail(fields.error());
  Dict result = copy_without(call, {"function"});
  result.set("function", std::move(converted));
  return result;
}

Value message_value(Fields& message, const Json& json) {
  const auto role = message.string("role");
  if (!role) {
    message.fail(invalid_field(message.location("role"), "Field required"));
  } else if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    message.fail(invalid_field(message.location("role"),
                               "Input should be 'system', 'developer', 'user', 'assistant' or "
                               "'tool'."));
  }
  Dict result = copy_without(
      json, {"content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls"});
  // Templates of the Laguna family know no developer, and would leave out what one says.
  if (role == "developer") result.set("role", "system");
  Spoken spoken = read_spoken(message, role == "assistant");
  result.set("content", std::move(spoken.content));
  if (!spoken.reasoning.empty()) {
    result.set("reasoning_content", spoken.reasoning);
    result.set("reasoning", std::move(spoken.reasoning));
  }
  const Json* calls = message.array("tool_calls");
  if (calls != nullptr && !calls->empty()) {
    List list;
    for (size_t i = 0; i < calls->size(); ++i) {
      list.push_back(tool_call_value(message, (*calls)[i],
                                     fmt::format("{}.{}", message.location("tool_calls"), i)));
    }
    result.set("tool_calls", std::move(list));
  }
  return result;
}

}  // namespace

ApiResult<Value> to_template_messages(const Json& messages) {
  if (messages.empty()) return bad_value("messages", "messages must not be empty.");
  List list;
  list.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string location = fmt::format("messages.{}", i);
    if (!messages[i].is_object()) return invalid_field(location, "Input should be an object.");
    Fields fields(messages[i], location);
    Value value = message_value(fields, messages[i]);
    if (fields.failed()) return fields.error();
    list.push_back(std::move(value));
  }
  return Value(std::move(list));
}

}  // namespace lagoon::api
