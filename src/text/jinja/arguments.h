// The arguments of a call to a built-in, matched to its parameters as Python matches them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/object.h"

namespace lagoon::text::jinja {

class BoundArguments {
 public:
  // `function` names it in errors. The first `required` parameters must be given. Throws Failure
  // for too many, unknown, doubled or missing arguments.
  BoundArguments(std::string_view function, std::initializer_list<const char*> parameters,
                 Arguments& arguments, size_t required = 0);

  // Null where parameter `index` was not given.
  const Value* find(size_t index) const { return values_[index] ? &*values_[index] : nullptr; }
  // As find, but None counts as not given.
  const Value* find_set(size_t index) const;
  Value get(size_t index, const Value& otherwise = {}) const;
  bool truth(size_t index, bool otherwise) const;
  // Throws Failure where it is not an int.
  int64_t integer(size_t index, int64_t otherwise) const;
  // Throws Failure where it is not a string; the view lives as long as this object.
  std::string_view string(size_t index, std::string_view otherwise) const;

 private:
  std::string function_;
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace lagoon::text::jinja
