#include "text/json_reader.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "text/vocabulary.h"

namespace lagoon::text {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Error JsonReader::invalid(std::string_view what) const {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}.", path_, what)};
}

Error JsonReader::unsupported(std::string_view what) const {
  return {ErrorCode::kUnsupported,
          fmt::format("{}: {}, which Lagoon does not support.", path_, what)};
}

std::string shortened(std::string text) {
  constexpr size_t kLongest = 120;
  if (text.size() <= kLongest) return text;
  return std::string(utf8_prefix(text, kLongest)) + "...";
}

Error JsonReader::unsupported(std::string_view where, const element& value) const {
  return unsupported(fmt::format("{} is {}", where, shortened(simdjson::minify(value))));
}

Result<void> JsonReader::check_settings(const object& o, std::string_view where,
                                        std::initializer_list<Setting> settings) const {
  std::vector<bool> seen(settings.size());
  for (const auto field : o) {
    const auto* known = std::find_if(settings.begin(), settings.end(), [&](const Setting& setting) {
      return setting.key == field.key;
    });
    const std::string name = fmt::format("{}{}", where, field.key);
    if (known == settings.end()) return unsupported(name, field.value);
    const auto index = static_cast<size_t>(known - settings.begin());
    if (seen[index]) return invalid(name + " is there twice");
    seen[index] = true;
    if (known->values.empty()) continue;
    const std::string value = simdjson::minify(field.value);
    if (std::find(known->values.begin(), known->values.end(), value) == known->values.end()) {
      return unsupported(name, field.value);
    }
  }
  for (const Setting& setting : settings) {
    bool required = !setting.values.empty();
    for (const std::string_view candidate : setting.values) required &= candidate != kMissing;
    if (required && o[setting.key].error() != simdjson::SUCCESS) {
      return invalid(fmt::format("{}{} is missing", where, setting.key));
    }
  }
  return {};
}

bool JsonReader::has(const object& o, std::string_view key) const {
  return o[key].error() == simdjson::SUCCESS;
}

Result<element> JsonReader::get(const object& o, std::string_view where,
                                std::string_view key) const {
  element value;
  if (o[key].get(value) == simdjson::SUCCESS) return value;
  return invalid(fmt::format("{}{} is missing", where, key));
}

Result<object> JsonReader::get_object(const object& o, std::string_view where,
                                      std::string_view key) const {
  LAGOON_ASSIGN(const element value, get(o, where, key));
  object typed;
  if (value.get(typed) == simdjson::SUCCESS) return typed;
  return invalid(fmt::format("{}{} is not an object", where, key));
}

Result<array> JsonReader::get_array(const object& o, std::string_view where,
                                    std::string_view key) const {
  LAGOON_ASSIGN(const element value, get(o, where, key));
  array typed;
  if (value.get(typed) == simdjson::SUCCESS) return typed;
  return invalid(fmt::format("{}{} is not an array", where, key));
}

Result<std::string_view> JsonReader::get_string(const object& o, std::string_view where,
                                                std::string_view key) const {
  LAGOON_ASSIGN(const element value, get(o, where, key));
  std::string_view typed;
  if (value.get(typed) == simdjson::SUCCESS) return typed;
  return invalid(fmt::format("{}{} is not a string", where, key));
}

Result<bool> JsonReader::get_flag(const object& o, std::string_view where,
                                  std::string_view key) const {
  LAGOON_ASSIGN(const element value, get(o, where, key));
  bool typed = false;
  if (value.get(typed) == simdjson::SUCCESS) return typed;
  return invalid(fmt::format("{}{} is neither true nor false", where, key));
}

Result<int32_t> JsonReader::get_id(const element& value, std::string_view token) const {
  int64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS) {
    return invalid(fmt::format("the id of token {:?} is not a whole number", token));
  }
  if (id < 0 || id >= Vocabulary::kMaxIds) {
    return invalid(fmt::format("the id {} of token {:?} is outside 0 to {}", id, token,
                               Vocabulary::kMaxIds - 1));
  }
  return static_cast<int32_t>(id);
}

}  // namespace lagoon::text
