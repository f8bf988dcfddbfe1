#include "checkpoint/json_value.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checkpoint/file.h"

namespace lagoon::checkpoint {
namespace {

namespace dom = simdjson::dom;

Result<JsonValue> convert(const dom::element& element, const std::string& path);

Result<JsonValue> convert_array(const dom::array& elements, const std::string& path) {
  JsonArray array;
  for (const dom::element element : elements) {
    LAGOON_ASSIGN(JsonValue value, convert(element, path));
    array.push_back(std::move(value));
  }
  return JsonValue{std::move(array)};
}

Result<JsonValue> convert_object(const dom::object& fields, const std::string& path) {
  JsonObject object;
  std::vector<std::string_view> keys;
  for (const dom::key_value_pair field : fields) {
    keys.push_back(field.key);
    LAGOON_ASSIGN(JsonValue value, convert(field.value, path));
    object.names.emplace_back(field.key);
    object.values.push_back(std::move(value));
  }
  // Libraries differ in which of two equal keys they take.
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: the key {} is there twice", path, in_quotes(*twice))};
  return JsonValue{std::move(object)};
}

Result<JsonValue> convert(const dom::element& element, const std::string& path) {
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;
  dom::array array;
  dom::object object;
  if (element.is_null()) return JsonValue{};
  if (element.get(boolean) == simdjson::SUCCESS) return JsonValue{boolean};
  if (element.get(integer) == simdjson::SUCCESS) return JsonValue{integer};
  if (element.get(real) == simdjson::SUCCESS) return JsonValue{real};
  if (element.get(text) == simdjson::SUCCESS) return JsonValue{std::string(text)};
  if (element.get(array) == simdjson::SUCCESS) return convert_array(array, path);
  CHECK(element.get(object) == simdjson::SUCCESS);
  return convert_object(object, path);
}

}  // namespace

Result<JsonValue> parse_json(std::string_view text, const std::string& path) {
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not valid JSON: {}", path, simdjson::error_message(error))};
  return convert(root, path);
}

std::string describe(const JsonValue& value) {
  if (const bool* boolean = value.get_if<bool>()) return *boolean ? "true" : "false";
  if (const int64_t* integer = value.get_if<int64_t>()) return fmt::format("{}", *integer);
  if (const double* real = value.get_if<double>()) return fmt::format("{}", *real);
  if (const std::string* text = value.get_if<std::string>()) return in_quotes(*text);
  if (value.get_if<JsonArray>() != nullptr) return "an array";
  if (value.get_if<JsonObject>() != nullptr) return "an object";
  return "null";
}

const JsonValue* JsonFields::find(std::string_view key) const {
  const auto at = std::find(object_->names.begin(), object_->names.end(), key);
  if (at == object_->names.end()) return nullptr;
  const JsonValue& value = object_->values[static_cast<size_t>(at - object_->names.begin())];
  return value.is_null() ? nullptr : &value;
}

std::vector<std::string> JsonFields::keys() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < object_->names.size(); ++i)
    if (!object_->values[i].is_null()) names.push_back(object_->names[i]);
  return names;
}

std::string JsonFields::location(std::string_view key) const {
  return fmt::format("{}: {}{}", *path_, where_, key);
}

Error JsonFields::error(std::string_view key, std::string_view what) const {
  return {ErrorCode::kInvalidArgument, fmt::format("{} {}", location(key), what)};
}

Error JsonFields::unsupported(std::string_view key, std::string_view what) const {
  return {ErrorCode::kUnsupported, fmt::format("{} {}", location(key), what)};
}

Error JsonFields::missing(std::string_view key) const {
  return error(key, "is missing");
}

Result<int64_t> JsonFields::integer(std::string_view key, int64_t lowest, int64_t highest) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  const int64_t* integer = value->get_if<int64_t>();
  if (integer == nullptr || *integer < lowest || *integer > highest)
    return error(key, fmt::format("is {}; it must be an integer from {} to {}", describe(*value),
                                  lowest, highest));
  return *integer;
}

Result<int64_t> JsonFields::integer_or(std::string_view key, int64_t lowest, int64_t highest,
                                       int64_t absent) const {
  if (!has(key)) return absent;
  return integer(key, lowest, highest);
}

Result<double> JsonFields::number(std::string_view key, bool zero_allowed) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  double number = -1;
  if (const int64_t* integer = value->get_if<int64_t>()) number = static_cast<double>(*integer);
  if (const double* real = value->get_if<double>()) number = *real;
  if (!std::isfinite(number) || number < 0 || (number == 0 && !zero_allowed))
    return error(key, fmt::format("is {}; it must be a number {}", describe(*value),
                                  zero_allowed ? "that is not negative" : "greater than 0"));
  return number;
}

Result<double> JsonFields::positive(std::string_view key) const {
  return number(key, false);
}

Result<double> JsonFields::positive_or(std::string_view key, double absent) const {
  if (!has(key)) return absent;
  return number(key, false);
}

Result<double> JsonFields::not_negative_or(std::string_view key, double absent) const {
  if (!has(key)) return absent;
  return number(key, true);
}

Result<bool> JsonFields::boolean_or(std::string_view key, bool absent) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return absent;
  const bool* boolean = value->get_if<bool>();
  if (boolean == nullptr)
    return error(key, fmt::format("is {}; it must be true or false", describe(*value)));
  return *boolean;
}

Result<std::string> JsonFields::string(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  const std::string* text = value->get_if<std::string>();
  if (text == nullptr) return error(key, fmt::format("is {}, not a string", describe(*value)));
  return *text;
}

Result<std::string> JsonFields::string_or(std::string_view key, std::string_view absent) const {
  if (!has(key)) return std::string(absent);
  return string(key);
}

Result<std::vector<std::string>> JsonFields::strings(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  const JsonArray* array = value->get_if<JsonArray>();
  if (array == nullptr)
    return error(key, fmt::format("is {}, not an array of strings", describe(*value)));
  std::vector<std::string> result;
  for (const JsonValue& entry : *array) {
    const std::string* text = entry.get_if<std::string>();
    if (text == nullptr)
      return error(key, fmt::format("holds {}; it must hold strings", describe(entry)));
    result.push_back(*text);
  }
  return result;
}

Result<std::vector<int64_t>> JsonFields::integers(std::string_view key, int64_t lowest,
                                                  int64_t highest) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  const JsonArray* array = value->get_if<JsonArray>();
  if (array == nullptr)
    return error(key, fmt::format("is {}, not an array of integers", describe(*value)));
  std::vector<int64_t> result;
  for (const JsonValue& entry : *array) {
    const int64_t* integer = entry.get_if<int64_t>();
    if (integer == nullptr || *integer < lowest || *integer > highest)
      return error(key, fmt::format("holds {}; it must hold integers from {} to {}",
                                    describe(entry), lowest, highest));
    result.push_back(*integer);
  }
  return result;
}

Result<JsonFields> JsonFields::object(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr) return missing(key);
  const JsonObject* object = value->get_if<JsonObject>();
  if (object == nullptr) return error(key, fmt::format("is {}, not an object", describe(*value)));
  return JsonFields(*object, *path_, fmt::format("{}{}.", where_, key));
}

}  // namespace lagoon::checkpoint
