#include "api/fields.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace lagoon::api {

Fields::Fields(const Json& object, std::string location)
    : object_(object), location_(std::move(location)) {}

const Json* Fields::any(std::string_view name) {
  read_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return {};
  if (value->is_boolean()) return value->get<bool>();
  fail_type(name, "true or false");
  return {};
}

std::optional<int64_t> Fields::integer(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return {};
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  if (value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(kMax)) {
    return static_cast<int64_t>(value->get<uint64_t>());
  }
  if (value->is_number_integer() && !value->is_number_unsigned()) return value->get<int64_t>();
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (number == std::trunc(number) && std::abs(number) < 0x1p53) {
      return static_cast<int64_t>(number);
    }
  }
  fail_type(name, "an integer of 64 bits");
  return {};
}

std::optional<double> Fields::number(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return {};
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  fail_type(name, "a number");
  return {};
}

std::optional<std::string> Fields::string(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  fail_type(name, "a string");
  return {};
}

std::string Fields::required_string(std::string_view name) {
  auto text = string(name);
  if (!text) fail(invalid_field(location(name), "Field required"));
  return text.value_or("");
}

const Json* Fields::array(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr || value->is_array()) return value;
  fail_type(name, "a list");
  return nullptr;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = any(name);
  if (value == nullptr || value->is_object()) return value;
  fail_type(name, "an object");
  return nullptr;
}

std::string Fields::location(std::string_view name) const {
  return location_.empty() ? std::string(name) : fmt::format("{}.{}", location_, name);
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail_type(std::string_view name, std::string_view expected) {
  fail(invalid_field(location(name), fmt::format("Input should be {}.", expected)));
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) {
    if (!read_.contains(item.key())) names.push_back(item.key());
  }
  return names;
}

}  // namespace lagoon::api
