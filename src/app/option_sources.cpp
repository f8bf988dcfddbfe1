#include "app/option_sources.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "app/option_parts.h"

namespace lagoon::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOurs = "LAGOON_";
constexpr std::string_view kTheirs = "VLLM_";
constexpr std::string_view kTheirKey = "VLLM_API_KEY";
constexpr std::array<std::string_view, 3> kJsonOptions = {
    "--speculative-config", "--default-chat-template-kwargs", "--override-generation-config"};
// Variables that are read elsewhere: the instruction set of the kernels.
constexpr std::array<std::string_view, 1> kOtherVariables = {"LAGOON_CPU"};

template <typename List>
bool contains(const List& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

const CLI::Option* find_option(const CLI::App& command, std::string_view name) {
  return name.starts_with("--") ? command.get_option_no_throw(std::string(name)) : nullptr;
}

bool is_flag(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}
bool is_list(const CLI::Option& option) {
  return option.get_expected_max() > 1;
}

std::vector<std::string> split(const std::string& text) {
  if (text.starts_with('[')) return {text};  // JSON
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string option_of_variable(std::string_view variable) {
  std::string name = "--";
  for (const char c : variable.substr(kOurs.size())) {
    name += c == '_' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  return name;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Error usage_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

std::string name_of(const std::string& argument) {
  return argument.substr(0, argument.find('='));
}

// The option that a dotted name belongs to, or "".
std::string json_option_of(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || !contains(kJsonOptions, name.substr(0, dot))) return "";
  return std::string(name.substr(0, dot));
}

// Sets object.a.b for the path "a.b". A value that is JSON is that, else it is a string.
Result<void> set_by_path(Json& object, std::string_view option, std::string_view path,
                         const std::string& text) {
  Json* place = &object;
  for (const std::string& key : [&] {
         std::vector<std::string> keys;
         for (size_t begin = 0; begin <= path.size();) {
           const size_t end = std::min(path.find('.', begin), path.size());
           keys.emplace_back(path.substr(begin, end - begin));
           begin = end + 1;
         }
         return keys;
       }()) {
    if (key.empty() || !(place->is_object() || place->is_null())) {
      return usage_error(
          fmt::format("{}.{} does not name a value of {}'s JSON object", option, path, option));
    }
    place = &(*place)[key];
  }
  Json value = Json::parse(text, nullptr, false);
  *place = value.is_discarded() ? Json(text) : std::move(value);
  return {};
}

// The command line, taken apart as far as the other sources need it.
class Merger {
 public:
  Merger(const CLI::App& command, std::vector<std::string> arguments)
      : command_(command), arguments_(std::move(arguments)) {}

  Result<void> add(const std::vector<std::vector<Setting>>& sources) {
    std::set<const CLI::Option*> given;
    for (const std::string& argument : before_end()) {
      if (const CLI::Option* option = find_option(command_, name_of(argument))) {
        given.insert(option);
      }
    }
    for (auto source = sources.rbegin(); source != sources.rend(); ++source) {
      std::set<const CLI::Option*> here;
      for (const Setting& setting : *source) {
        const CLI::Option* option = find_option(command_, setting.name);
        if (option == nullptr) {
          return usage_error(fmt::format("lagoon {} has no option {} (--config); the nearest is {}",
                                         command_.get_name(), setting.name,
                                         nearest_option(command_, setting.name)));
        }
        if (setting.values.size() > 1 && !is_list(*option)) {
          return usage_error(
              fmt::format("{} takes one value, and --config gives several", setting.name));
        }
        if (is_flag(*option) && setting.values.front().empty()) {
          return usage_error(
              fmt::format("{} is given an empty value; it takes 1 or 0", setting.name));
        }
        here.insert(option);
        if (given.count(option) == 0) append(*option, setting);
      }
      given.insert(here.begin(), here.end());
    }
    return {};
  }

  // Folds dotted options, wherever their option's whole JSON was given.
  Result<void> fold_dotted() {
    for (const std::string_view option : kJsonOptions) LAGOON_RETURN_IF_ERROR(fold(option));
    return {};
  }

  // Words after "--" are no options; what was added stands before them.
  std::vector<std::string> take() {
    const auto end = std::find(arguments_.begin(), arguments_.end(), "--");
    arguments_.insert(end, added_.begin(), added_.end());
    return std::move(arguments_);
  }

 private:
  std::vector<std::string> before_end() const {
    return {arguments_.begin(), std::find(arguments_.begin(), arguments_.end(), "--")};
  }

  void append(const CLI::Option& option, const Setting& setting) {
    if (is_flag(option)) {
      added_.push_back(setting.name + "=" + setting.values.front());
      return;
    }
    for (const std::string& value : setting.values) {
      added_.push_back(setting.name);
      added_.push_back(value);
    }
  }

  // Takes all words `NAME VALUE` and `NAME=VALUE` of `option` out of the list, dotted ones too.
  Result<void> take_out(std::vector<std::string>& words, std::string_view option,
                        std::string& whole, std::vector<Setting>& dotted) const {
    std::vector<std::string> kept;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string name = name_of(words[i]);
      if (words[i] == "--") {
        kept.insert(kept.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
        break;
      }
      if (name != option && json_option_of(name) != option) {
        kept.push_back(words[i]);
        continue;
      }
      const bool joined_value = name.size() < words[i].size();
      if (!joined_value && i + 1 == words.size()) {
        return usage_error(fmt::format("{} needs a value", name));
      }
      const std::string value = joined_value ? words[i].substr(name.size() + 1) : words[++i];
      if (name == option) {
        whole = value;
      } else {
        dotted.push_back({.name = name.substr(option.size() + 1), .values = {value}});
      }
    }
    words = std::move(kept);
    return {};
  }

  Result<void> fold(std::string_view option) {
    const auto is_dotted = [&](const std::string& word) {
      return json_option_of(name_of(word)) == option;
    };
    const auto words = before_end();
    if (std::none_of(words.begin(), words.end(), is_dotted)) return {};
    std::string whole = "{}";
    std::vector<Setting> dotted;
    LAGOON_RETURN_IF_ERROR(take_out(added_, option, whole, dotted));
    LAGOON_RETURN_IF_ERROR(take_out(arguments_, option, whole, dotted));
    Json json = Json::parse(whole, nullptr, false);
    if (!json.is_object()) {
      return usage_error(fmt::format("{} is not a JSON object: {}", option, whole));
    }
    for (const Setting& setting : dotted) {
      LAGOON_RETURN_IF_ERROR(set_by_path(json, option, setting.name, setting.values.front()));
    }
    added_.emplace_back(option);
    added_.push_back(json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return {};
  }

  const CLI::App& command_;
  std::vector<std::string> arguments_;
  std::vector<std::string> added_;
};

}  // namespace

std::vector<Setting> read_environment(const CLI::App& command, const char* const* environment,
                                      std::vector<std::string>& remarks) {
  std::vector<Setting> settings;
  std::vector<std::string> unknown;
  std::vector<std::string> ignored;
  std::string their_key;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string variable = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    if (variable == kTheirKey) {
      their_key = value;
    } else if (variable.starts_with(kTheirs)) {
      ignored.push_back(variable);
    } else if (variable.starts_with(kOurs) && !contains(kOtherVariables, variable)) {
      const std::string name = option_of_variable(variable);
      const CLI::Option* option = find_option(command, name);
      if (option == nullptr) {
        unknown.push_back(variable);
      } else {
        settings.push_back({name, is_list(*option) ? split(value) : std::vector{value}});
      }
    }
  }
  const bool has_key = std::any_of(settings.begin(), settings.end(), [](const Setting& setting) {
    return setting.name == "--api-key";
  });
  if (!their_key.empty() && !has_key) settings.push_back({"--api-key", {their_key}});
  if (!unknown.empty()) {
    remarks.push_back(
        fmt::format("environment: {} names no option and is ignored", joined(unknown)));
  }
  if (!ignored.empty()) {
    remarks.push_back(fmt::format("environment: vLLM's {} is ignored", joined(ignored)));
  }
  return settings;
}

Result<std::vector<std::string>> merge_sources(const CLI::App& command,
                                               std::vector<std::string> arguments,
                                               const std::vector<std::vector<Setting>>& sources) {
  Merger merger(command, std::move(arguments));
  LAGOON_RETURN_IF_ERROR(merger.add(sources));
  LAGOON_RETURN_IF_ERROR(merger.fold_dotted());
  return merger.take();
}

}  // namespace lagoon::app
