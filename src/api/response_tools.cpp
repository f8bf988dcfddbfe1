#include "api/response_tools.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace lagoon::api {
namespace {

Json function_json(const std::string& name, const std::string& description, Json parameters) {
  Json function = {{"name", name}};
  if (!description.empty()) function["description"] = description;
  if (!parameters.is_null()) function["parameters"] = std::move(parameters);
  return {{"type", "function"}, {"function", std::move(function)}};
}

// What the model is told of the form of a custom tool's text. Nothing holds it to that.
std::string format_note(Fields& tool) {
  const Json* json = tool.object("format");
  if (json == nullptr) return "";
  Fields format(*json, tool.location("format"));
  std::string note;
  if (format.string("type").value_or("text") != "text") {
    note =
        fmt::format("\n\nThe input follows this {} grammar:\n{}",
                    format.string("syntax").value_or(""), format.string("definition").value_or(""));
  }
  if (format.failed()) tool.fail(format.error());
  return note;
}

class Reader {
 public:
  void read(Fields& tool, const std::string& name_space) {
    const auto type = tool.string("type").value_or(name_space.empty() ? "" : "function");
    if (type == "function") {
      read_function(tool, name_space);
    } else if (type == "custom") {
      read_custom(tool, name_space);
    } else if (type == kLocalShell && name_space.empty()) {
      read_local_shell(tool);
    } else if (type == "namespace" && name_space.empty()) {
      read_namespace(tool);
    } else {
      refuse(tool, type);
    }
  }

  ResponseTools tools;
  Json shown = Json::array();
  FieldNames names;  // of `shown`

 private:
  // Where the body has the function that is shown next.
  void remember(const Fields& tool) {
    const std::string name = tool.location("name");
    names.emplace_back(fmt::format("tools.{}.function", shown.size()),
                       name.substr(0, name.rfind('.')));
  }

  void read_function(Fields& tool, const std::string& name_space) {
    const std::string name = tool.required_string("name");
    const Json* parameters = tool.object("parameters");
    tool.boolean("strict");
    add(tool, {.name = name, .name_space = name_space}, tool.string("description").value_or(""),
        parameters == nullptr ? Json() : *parameters);
  }

  void read_custom(Fields& tool, const std::string& name_space) {
    const std::string name = tool.required_string("name");
    const std::string description = tool.string("description").value_or("") + format_note(tool);
    add(tool, {.kind = ResponseTool::Kind::kCustom, .name = name, .name_space = name_space},
        description,
        {{"type", "object"},
         {"properties", {{"input", {{"type", "string"}}}}},
         {"required", {"input"}}});
  }

  void read_local_shell(Fields& tool) {
    const std::string name(kLocalShell);
    remember(tool);
    tools[name] = {.kind = ResponseTool::Kind::kLocalShell, .name = name};
    shown.push_back(function_json(name,
                                  "Run a command on the user's machine and return its output.",
                                  {{"type", "object"},
                                   {"properties",
                                    {{"command",
                                      {{"type", "array"},
                                       {"items", {{"type", "string"}}},
                                       {"description", "The program and its arguments"}}},
                                     {"working_directory", {{"type", "string"}}},
                                     {"timeout_ms", {{"type", "integer"}}}}},
                                   {"required", {"command"}}}));
  }

  void read_namespace(Fields& tool) {
    const std::string name = tool.required_string("name");
    const Json* inside = tool.array("tools");
    tool.string("description");
    if (inside == nullptr) tool.fail(invalid_field(tool.location("tools"), "Field required"));
    if (tool.failed()) return;
    for (size_t i = 0; i < inside->size() && !tool.failed(); ++i) {
      const std::string location = fmt::format("{}.{}", tool.location("tools"), i);
      if (!(*inside)[i].is_object()) {
        tool.fail(invalid_field(location, "Input should be an object."));
        return;
      }
      Fields one((*inside)[i], location);
      read(one, name);
      if (one.failed()) tool.fail(one.error());
    }
  }

  static void refuse(Fields& tool, const std::string& type) {
    const std::string at = tool.location("type");
    if (type.empty()) {
      tool.fail(invalid_field(at, "Field required"));
    } else if (type.starts_with("web_search")) {
      tool.fail(bad_value(
          at, fmt::format("{}: tools of type {} are not supported: this server does not search the "
                          "web. Turn it off in the client (Codex: web_search = \"disabled\").",
                          at, type)));
    } else {
      tool.fail(bad_value(
          at, fmt::format("{}: tools of type {} are not supported; those of type function, custom, "
                          "namespace and local_shell are.",
                          at, dump(Json(type)))));
    }
  }

  void add(Fields& tool, ResponseTool read, const std::string& description, Json parameters) {
    if (tool.failed()) return;
    const std::string name = shown_tool_name(read.name_space, read.name);
    remember(tool);
    shown.push_back(function_json(name, description, std::move(parameters)));
    tools[name] = std::move(read);
  }
};

// "auto", "none", "required", or {"type":"function" or "custom","name"}.
void read_choice(Fields& fields, Json& chat) {
  const Json* json = fields.any("tool_choice");
  if (json == nullptr) return;
  if (!json->is_object()) {
    chat["tool_choice"] = *json;
    return;
  }
  Fields choice(*json, "tool_choice");
  const std::string type = choice.required_string("type");
  if (type == "function" || type == "custom") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.required_string("name")}}}};
  } else if (!choice.failed()) {
    choice.fail(bad_value("tool_choice.type",
                          fmt::format("`tool_choice` of type {} is not supported by this version "
                                      "of Lagoon; only \"none\" or \"auto\" is accepted.",
                                      dump(Json(type)))));
  }
  if (choice.failed()) fields.fail(choice.error());
}

}  // namespace

std::string shown_tool_name(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  std::string shown(name_space);
  while (!shown.ends_with("__")) shown += '_';
  return shown + std::string(name);
}

ResponseTools read_response_tools(Fields& fields, Json& chat, FieldNames& names) {
  Reader reader;
  const Json* tools = fields.array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size() && !fields.failed(); ++i) {
    const std::string location = fmt::format("tools.{}", i);
    if (!(*tools)[i].is_object()) {
      fields.fail(invalid_field(location, "Input should be an object."));
      break;
    }
    Fields tool((*tools)[i], location);
    reader.read(tool, "");
    if (tool.failed()) fields.fail(tool.error());
  }
  names.insert(names.end(), reader.names.begin(), reader.names.end());
  if (!reader.shown.empty()) chat["tools"] = std::move(reader.shown);
  read_choice(fields, chat);
  if (const auto parallel = fields.boolean("parallel_tool_calls")) {
    chat["parallel_tool_calls"] = *parallel;
  }
  return std::move(reader.tools);
}

std::string custom_input(const std::string& arguments) {
  const auto parsed = parse_json(arguments);
  if (!parsed.ok() || !parsed->is_object()) return arguments;
  const auto input = parsed->find("input");
  if (input == parsed->end()) return parsed->empty() ? "" : arguments;
  return input->is_string() ? input->get<std::string>() : dump(*input);
}

std::string custom_arguments(std::string_view input) {
  return "{\"input\":" + json_string(input) + "}";
}

std::string local_shell_action(const std::string& arguments) {
  Json command = Json::array();
  Json folder;
  Json timeout;
  const auto parsed = parse_json(arguments);
  if (parsed.ok() && parsed->is_object()) {
    const Json given = parsed->value("command", Json());
    // A line for a shell, where the model does not split it.
    if (given.is_string()) {
      command = {"bash", "-lc", given};
    } else if (given.is_array()) {
      for (const Json& word : given) {
        command.push_back(word.is_string() ? word.get<std::string>() : dump(word));
      }
    }
    if (const Json value = parsed->value("working_directory", Json()); value.is_string()) {
      folder = value;
    }
    if (const Json value = parsed->value("timeout_ms", Json()); value.is_number_integer()) {
      timeout = value;
    }
  }
  return dump({{"type", "exec"},
               {"command", command},
               {"env", Json::object()},
               {"timeout_ms", timeout},
               {"user", nullptr},
               {"working_directory", folder}});
}

}  // namespace lagoon::api
