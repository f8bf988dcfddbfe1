// TOML is read here and nowhere else.
#define TOML_EXCEPTIONS 0
#include <fmt/core.h>
#include <toml++/toml.h>

#include <sstream>
#include <utility>

#include "app/option_sources.h"

namespace lagoon::app {
namespace {

Error wrong(const std::string& path, const std::string& what) {
  return {ErrorCode::kInvalidArgument, fmt::format("--config {}: {}", path, what)};
}

std::string as_json(const toml::node& node) {
  std::ostringstream text;
  if (const toml::table* table = node.as_table()) text << toml::json_formatter(*table);
  return text.str();
}

// A string, a number or a boolean as an option's value; false for all else.
bool append_scalar(const toml::node& node, std::vector<std::string>& values) {
  if (const auto* text = node.as_string()) {
    values.push_back(text->get());
  } else if (const auto* integer = node.as_integer()) {
    values.push_back(fmt::format("{}", integer->get()));
  } else if (const auto* number = node.as_floating_point()) {
    values.push_back(fmt::format("{}", number->get()));
  } else if (const auto* boolean = node.as_boolean()) {
    values.emplace_back(boolean->get() ? "true" : "false");
  } else {
    return false;
  }
  return true;
}

bool append_values(const toml::node& node, std::vector<std::string>& values) {
  if (node.is_table()) {
    values.push_back(as_json(node));
    return true;
  }
  const toml::array* list = node.as_array();
  if (list == nullptr) return append_scalar(node, values);
  for (const toml::node& item : *list) {
    if (!append_scalar(item, values)) return false;
  }
  return !values.empty();
}

}  // namespace

Result<std::vector<Setting>> read_config_file(const std::string& path) {
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    const auto& error = parsed.error();
    const auto line = error.source().begin.line;
    if (line == 0) return wrong(path, std::string(error.description()));
    return wrong(path, fmt::format("line {}: {}", line, error.description()));
  }
  std::vector<Setting> settings;
  for (const auto& [key, node] : parsed.table()) {
    Setting setting{.name = "--" + std::string(key.str()), .values = {}};
    for (char& c : setting.name) c = c == '_' ? '-' : c;
    if (setting.name == "--config") return wrong(path, "a file cannot name another one");
    if (!append_values(node, setting.values)) {
      return wrong(path, fmt::format("the value of {} is no text, number, list of them, or table",
                                     key.str()));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace lagoon::app
