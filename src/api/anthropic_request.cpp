#include "api/anthropic_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "api/chat_request.h"
#include "api/chat_turns.h"
#include "base/log.h"

namespace lagoon::api {
namespace {

// Claude Code begins its system prompt with a line that names the version and a number that is
// another in every request. The model has no use for it, and no two prompts would begin alike.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// Tools that a server of Anthropic's runs, by the beginning of their type.
constexpr std::array<std::string_view, 5> kServerTools = {
    "web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_"};

std::string_view without_billing_header(std::string_view text) {
  if (!text.starts_with(kBillingHeader)) return text;
  const size_t end = text.find('\n');
  return end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
}

ApiError not_supported(const std::string& location, std::string_view type) {
  if (type.find("image") != std::string_view::npos) {
    return bad_value(location,
                     location + ": images are not supported: this model reads text only.");
  }
  return bad_value(location, fmt::format("{}: blocks of type {} are not supported here.", location,
                                         json_string(type)));
}

// Calls `read` with the type and the fields of each block of a list.
template <typename Read>
void for_each_block(Fields& outer, const Json& blocks, const std::string& location, Read read) {
  for (size_t i = 0; i < blocks.size() && !outer.failed(); ++i) {
    const std::string at = fmt::format("{}.{}", location, i);
    if (!blocks[i].is_object()) {
      outer.fail(invalid_field(at, "Input should be an object."));
      return;
    }
    Fields block(blocks[i], at);
    const std::string type = block.required_string("type");
    if (!block.failed()) read(type, block, at);
    if (block.failed()) outer.fail(block.error());
  }
}

// A string, or blocks of text alone, joined by line breaks; null is "".
std::string read_text(Fields& outer, std::string_view name) {
  const Json* content = outer.any(name);
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) {
    outer.fail_type(name, "a string or a list of blocks");
    return text;
  }
  bool first = true;
  for_each_block(outer, *content, outer.location(name),
                 [&](const std::string& type, Fields& block, const std::string& at) {
                   if (type != "text") {
                     block.fail(not_supported(at, type));
                     return;
                   }
                   if (!std::exchange(first, false)) text += '\n';
                   text += block.required_string("text");
                 });
  return text;
}

void read_system(Fields& fields, ChatTurns& turns) {
  const Json* system = fields.any("system");
  if (system == nullptr) return;
  std::string text;
  if (system->is_string()) {
    text = without_billing_header(system->get_ref<const std::string&>());
  } else if (system->is_array()) {
    for_each_block(fields, *system, "system",
                   [&](const std::string& type, Fields& block, const std::string& at) {
                     if (type != "text") block.fail(not_supported(at, type));
                     const std::string own = block.required_string("text");
                     const std::string_view kept = without_billing_header(own);
                     if (kept.empty()) return;
                     if (!text.empty()) text += '\n';
                     text += kept;
                   });
  } else {
    fields.fail_type("system", "a string or a list of blocks");
  }
  if (!text.empty()) turns.add("system", text);
}

void read_user_block(const std::string& type, Fields& block, const std::string& at,
                     std::string_view role, bool& joins, ChatTurns& turns) {
  if (type == "text") {
    turns.add(role, block.required_string("text"), std::exchange(joins, true));
  } else if (type == "tool_result" && role == "user") {
    const std::string id = block.required_string("tool_use_id");
    turns.result(id, read_text(block, "content"));
    joins = false;
  } else {
    block.fail(not_supported(at, type));
  }
}

void read_assistant_block(const std::string& type, Fields& block, const std::string& at,
                          ChatTurns& turns) {
  if (type == "text") {
    turns.say(block.required_string("text"));
  } else if (type == "tool_use") {
    const std::string id = block.required_string("id");
    const std::string name = block.required_string("name");
    const Json* input = block.any("input");
    turns.call(id, name, input == nullptr ? "{}" : dump(*input));
  } else if (type == "thinking") {
    block.required_string("thinking");       // all_thinking() has it
  } else if (type != "redacted_thinking") {  // which nobody but Anthropic can read
    block.fail(not_supported(at, type));
  }
}

std::string all_thinking(const Json& blocks) {
  std::string joined;
  for (const Json& block : blocks) {
    if (!block.is_object() || block.value("type", Json()) != "thinking") continue;
    const auto text = block.find("thinking");
    if (text == block.end() || !text->is_string()) continue;
    if (!joined.empty()) joined += '\n';
    joined += text->get_ref<const std::string&>();
  }
  return joined;
}

// Whatever the order of its blocks, a turn's thinking comes first: histories that went through
// several clients have text before it.
void read_assistant(Fields& message, const Json& blocks, ChatTurns& turns) {
  turns.end_turn();
  const std::string thinking = all_thinking(blocks);
  if (!thinking.empty()) turns.reason(thinking);
  for_each_block(message, blocks, message.location("content"),
                 [&](const std::string& type, Fields& block, const std::string& at) {
                   read_assistant_block(type, block, at, turns);
                 });
}

void read_message(Fields& message, ChatTurns& turns) {
  const std::string role = message.required_string("role");
  if (message.failed()) return;
  if (role != "user" && role != "assistant" && role != "system") {
    message.fail(invalid_field(message.location("role"),
                               "Input should be 'user', 'assistant' or 'system'."));
    return;
  }
  const Json* content = message.any("content");
  if (content != nullptr && !content->is_string() && !content->is_array()) {
    message.fail_type("content", "a string or a list of blocks");
    return;
  }
  const bool blocks = content != nullptr && content->is_array();
  if (role == "assistant" && blocks) {
    read_assistant(message, *content, turns);
  } else if (blocks) {
    bool joins = false;
    for_each_block(message, *content, message.location("content"),
                   [&](const std::string& type, Fields& block, const std::string& at) {
                     read_user_block(type, block, at, role, joins, turns);
                   });
  } else {
    const std::string text = content == nullptr ? "" : content->get<std::string>();
    if (role != "assistant") {
      turns.add(role, text);
    } else {
      turns.end_turn();
      turns.say(text);
    }
  }
}

void read_messages(Fields& fields, ChatTurns& turns) {
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    fields.fail(invalid_field(
        "messages", messages == nullptr ? "Field required" : "List should not be empty."));
    return;
  }
  for (size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    const std::string location = fmt::format("messages.{}", i);
    if (!(*messages)[i].is_object()) {
      fields.fail(invalid_field(location, "Input should be an object."));
      return;
    }
    Fields message((*messages)[i], location);
    read_message(message, turns);
    if (message.failed()) fields.fail(message.error());
  }
}

bool runs_on_a_server(std::string_view type) {
  return std::any_of(kServerTools.begin(), kServerTools.end(),
                     [&](std::string_view begin) { return type.starts_with(begin); });
}

// {"name","description","input_schema"} as {"type":"function","function":{...}}.
void read_tool(Fields& tool, const std::string& id, Json& tools, FieldNames& names,
               const std::string& location) {
  const std::string type = tool.string("type").value_or("custom");
  if (runs_on_a_server(type)) {
    LOG(warning, "{} offers the tool {}, which only a server of Anthropic's can run: left out", id,
        json_string(type.substr(0, 64)));
    return;
  }
  if (type != "custom") {
    tool.fail(bad_value(tool.location("type"),
                        fmt::format("{}: tools of type {} are not supported; give the tool a name "
                                    "and an input_schema.",
                                    tool.location("type"), json_string(type))));
    return;
  }
  Json function = {{"name", tool.required_string("name")}};
  if (const auto description = tool.string("description")) function["description"] = *description;
  const Json* schema = tool.object("input_schema");
  if (schema == nullptr) {
    tool.fail(invalid_field(tool.location("input_schema"), "Field required"));
  } else {
    function["parameters"] = *schema;
  }
  names.emplace_back(fmt::format("tools.{}.function", tools.size()), location);
  tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

void read_tools(Fields& fields, const std::string& id, Json& chat, FieldNames& names) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return;
  Json read = Json::array();
  for (size_t i = 0; i < tools->size() && !fields.failed(); ++i) {
    const std::string location = fmt::format("tools.{}", i);
    if (!(*tools)[i].is_object()) {
      fields.fail(invalid_field(location, "Input should be an object."));
      return;
    }
    Fields tool((*tools)[i], location);
    read_tool(tool, id, read, names, location);
    if (tool.failed()) fields.fail(tool.error());
  }
  if (!read.empty()) chat["tools"] = std::move(read);
}

void read_tool_choice(Fields& fields, Json& chat) {
  const Json* json = fields.object("tool_choice");
  if (json == nullptr) return;
  Fields choice(*json, "tool_choice");
  const std::string type = choice.required_string("type");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.required_string("name")}}}};
  } else if (!choice.failed()) {
    choice.fail(
        invalid_field("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none'."));
  }
  if (choice.boolean("disable_parallel_tool_use").value_or(false)) {
    chat["parallel_tool_calls"] = false;
  }
  if (choice.failed()) fields.fail(choice.error());
}

// {"type":"enabled","budget_tokens":N}, "adaptive" or "disabled"; the model knows no budgets.
void read_thinking(Fields& fields, Json& chat) {
  const Json* json = fields.object("thinking");
  if (json == nullptr) return;
  Fields thinking(*json, "thinking");
  const std::string type = thinking.required_string("type");
  if (type == "enabled" || type == "adaptive") {
    chat["reasoning_effort"] = "high";
  } else if (type == "disabled") {
    chat["reasoning_effort"] = "none";
  } else if (!thinking.failed()) {
    thinking.fail(
        invalid_field("thinking.type", "Input should be 'enabled', 'disabled' or 'adaptive'."));
  }
  if (thinking.failed()) fields.fail(thinking.error());
}

// A format asked for under either of the two names it has had.
void read_output_format(Fields& fields, Json& chat) {
  const Json* format = fields.object("output_format");
  if (const Json* config = fields.object("output_config")) {
    Fields inner(*config, "output_config");
    inner.string("effort");  // of an answer whose thinking has no degrees
    if (const Json* newer = inner.object("format")) format = newer;
    if (inner.failed()) fields.fail(inner.error());
  }
  if (format == nullptr) return;
  Fields inner(*format, "output_config.format");
  const std::string type = inner.required_string("type");
  const Json* schema = inner.object("schema");
  if (type != "json_schema") {
    inner.fail(invalid_field("output_config.format.type", "Input should be 'json_schema'."));
  } else if (schema == nullptr) {
    inner.fail(invalid_field("output_config.format.schema", "Field required"));
  } else {
    chat["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "answer"}, {"schema", *schema}, {"strict", true}}}};
  }
  if (inner.failed()) fields.fail(inner.error());
}

void read_stop_sequences(Fields& fields, Json& chat) {
  const Json* stops = fields.array("stop_sequences");
  if (stops == nullptr || stops->empty()) return;
  for (size_t i = 0; i < stops->size(); ++i) {
    const Json& stop = (*stops)[i];
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) {
      fields.fail(invalid_field(fmt::format("stop_sequences.{}", i),
                                "Input should be a string that is not empty."));
    }
  }
  chat["stop"] = *stops;
}

// What a server of Anthropic's would keep or do between requests.
void refuse_state(Fields& fields) {
  if (const Json* servers = fields.array("mcp_servers"); servers != nullptr && !servers->empty()) {
    fields.fail(bad_value("mcp_servers",
                          "`mcp_servers` are not supported by this version of Lagoon; only [] is "
                          "accepted. Let the client connect to them."));
  }
  if (fields.any("thread") == nullptr) return;
  ApiError error = bad_value("thread",
                             "`thread` is not supported by this version of Lagoon: conversations "
                             "are not kept here. Send all messages.");
  // Anthropic's SDK, whose tool runner asks for a thread, then goes on without one.
  error.anthropic_details =
      R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})";
  fields.fail(std::move(error));
}

}  // namespace

Json chat_of_messages(Fields& fields, const std::string& id, bool only_counted, FieldNames& names) {
  Json chat = Json::object();
  ChatTurns turns;
  read_system(fields, turns);
  read_messages(fields, turns);
  copy_common_fields(fields, chat);
  const auto max_tokens = fields.integer("max_tokens");
  if (max_tokens) chat["max_tokens"] = *max_tokens;
  if (!max_tokens && !only_counted) fields.fail(invalid_field("max_tokens", "Field required"));
  read_stop_sequences(fields, chat);
  read_tools(fields, id, chat, names);
  read_tool_choice(fields, chat);
  read_thinking(fields, chat);
  read_output_format(fields, chat);
  names.emplace_back("stop", "stop_sequences");
  names.emplace_back("response_format", "output_config.format");
  refuse_state(fields);
  for (const char* name : {"metadata", "service_tier", "inference_geo", "context_management",
                           "betas", "cache_control", "container"}) {
    fields.any(name);
  }
  // The answer goes on where the last message ends.
  if (turns.ends_with_text()) {
    chat["add_generation_prompt"] = false;
    chat["continue_final_message"] = true;
  }
  if (!fields.failed()) chat["messages"] = turns.to_json();
  return chat;
}

}  // namespace lagoon::api
