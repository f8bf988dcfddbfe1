#include "api/tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace lagoon::api {
namespace {

// Whether a name in a call can be told from the tags and the white space around it.
bool fits_a_call(std::string_view name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '<' || c == '>';
  });
}

void check_name(Fields& function, std::set<std::string>& names) {
  const auto name = function.string("name");
  if (!name) {
    function.fail(invalid_field(function.location("name"), "Field required"));
  } else if (!fits_a_call(*name)) {
    function.fail(bad_value(function.location("name"),
                            fmt::format("{} must not be empty, nor have white space, control "
                                        "characters, '<' or '>'.",
                                        function.location("name"))));
  } else if (!names.insert(*name).second) {
    function.fail(bad_value(
        function.location("name"),
        fmt::format("{}: another tool has this name already.", function.location("name"))));
  }
}

// `names`: of the tools before it.
void check_tool(Fields& fields, const Json& tool, const std::string& location,
                std::set<std::string>& names) {
  if (!tool.is_object()) {
    fields.fail(invalid_field(location, "Input should be an object."));
    return;
  }
  Fields outer(tool, location);
  const auto type = outer.string("type").value_or("function");
  const Json* function = outer.object("function");
  if (!outer.failed() && type != "function") {
    outer.fail(bad_value(outer.location("type"),
                         fmt::format("Tools of type {} are not supported; only \"function\" is "
                                     "accepted.",
                                     json_string(type))));
  }
  if (function != nullptr) {
    Fields inner(*function, outer.location("function"));
    check_name(inner, names);
    inner.string("description");
    inner.object("parameters");
    if (inner.failed()) outer.fail(inner.error());
  } else {
    outer.fail(invalid_field(outer.location("function"), "Field required"));
  }
  if (outer.failed()) fields.fail(outer.error());
}

// Whether the model may call tools.
bool read_choice(Fields& fields) {
  const Json* choice = fields.any("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  if (*choice == "required" || choice->is_object()) {
    fields.fail(bad_value("tool_choice",
                          "`tool_choice` that makes the model call a tool is not supported by this "
                          "version of Lagoon; only \"none\" or \"auto\" is accepted."));
  } else {
    fields.fail(
        invalid_field("tool_choice", "Input should be 'none', 'auto', 'required' or an object."));
  }
  return false;
}

}  // namespace

Tools read_tools(Fields& fields) {
  Tools result;
  const bool may_call = read_choice(fields);
  result.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* tools = fields.array("tools");
  if (tools == nullptr || tools->empty()) return result;
  std::set<std::string> names;
  for (size_t i = 0; i < tools->size(); ++i) {
    check_tool(fields, (*tools)[i], fmt::format("tools.{}", i), names);
  }
  if (fields.failed() || !may_call) return result;
  result.shown = to_value(*tools);
  result.types =
      std::make_shared<const text::parse::ToolTypes>(text::parse::ToolTypes::from(result.shown));
  return result;
}

}  // namespace lagoon::api
