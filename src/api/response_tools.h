// Tools as /v1/responses has them: functions, functions in a namespace, custom tools that take
// plain text, and the local shell. The model is shown a function for each of them; its calls are
// told in the tool's own form.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "api/chat_request.h"
#include "api/fields.h"

namespace lagoon::api {

struct ResponseTool {
  enum class Kind { kFunction, kCustom, kLocalShell };
  Kind kind = Kind::kFunction;
  std::string name;             // as the client calls it
  std::string name_space = {};  // "" for none
};

// By the name that the model is shown.
using ResponseTools = std::map<std::string, ResponseTool, std::less<>>;

inline constexpr std::string_view kLocalShell = "local_shell";

// NAMESPACE__NAME; with one underscore less each where the namespace ends in them already.
std::string shown_tool_name(std::string_view name_space, std::string_view name);

// Reads `tools`, `tool_choice` and `parallel_tool_calls` into the chat request's. Problems are left
// in `fields`, also for a type of tool that is not known, by its name; `names` are for those that
// the chat request turns out to have.
ResponseTools read_response_tools(Fields& fields, Json& chat, FieldNames& names);

// What a custom tool was given: the text in its function's arguments (JSON).
std::string custom_input(const std::string& arguments);
// The same the other way round.
std::string custom_arguments(std::string_view input);

// The action of a local_shell_call, JSON, from its function's arguments.
std::string local_shell_action(const std::string& arguments);

}  // namespace lagoon::api
