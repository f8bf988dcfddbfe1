#include "text/jinja/arguments.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {

BoundArguments::BoundArguments(std::string_view function,
                               std::initializer_list<const char*> parameters, Arguments& arguments,
                               size_t required)
    : function_(function), names_(parameters.begin(), parameters.end()), values_(names_.size()) {
  if (arguments.positional.size() > names_.size()) {
    throw Failure(fmt::format("{}() takes at most {} arguments, {} given", function_, names_.size(),
                              arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      throw Failure(fmt::format("{}() got an unexpected keyword argument '{}'", function_, name));
    }
    auto& slot = values_[static_cast<size_t>(found - names_.begin())];
    if (slot) throw Failure(fmt::format("{}() got two values for '{}'", function_, name));
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) {
      throw Failure(fmt::format("{}() lacks its argument '{}'", function_, names_[i]));
    }
  }
}

const Value* BoundArguments::find_set(size_t index) const {
  const Value* value = find(index);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Value BoundArguments::get(size_t index, const Value& otherwise) const {
  const Value* value = find(index);
  return value != nullptr ? *value : otherwise;
}

bool BoundArguments::truth(size_t index, bool otherwise) const {
  const Value* value = find(index);
  return value != nullptr ? value->truthy() : otherwise;
}

int64_t BoundArguments::integer(size_t index, int64_t otherwise) const {
  const Value* value = find(index);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->boolean() ? 1 : 0;
  if (value->is_int()) return value->integer();
  if (value->is_big_integer()) {
    throw Failure("the number is beyond the 64 bits that integers have here");
  }
  require_defined(*value);
  throw Failure(fmt::format("{}() needs an int as '{}', not '{}'", function_, names_[index],
                            type_name(*value)));
}

std::string_view BoundArguments::string(size_t index, std::string_view otherwise) const {
  const Value* value = find(index);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->string();
  require_defined(*value);
  throw Failure(fmt::format("{}() needs a string as '{}', not '{}'", function_, names_[index],
                            type_name(*value)));
}

}  // namespace lagoon::text::jinja
