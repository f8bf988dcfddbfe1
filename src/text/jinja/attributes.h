// Looking up "a.b.0" in items, as the filters with an attribute argument do.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

class AttributePath {
 public:
  // `path`: a string with dots, whose numbers are indices; or an index.
  explicit AttributePath(const Value& path);

  // The attribute of `item`; `otherwise`, where given, replaces what is not there.
  Value get(Runtime& runtime, Value item, const std::optional<Value>& otherwise = {}) const;

 private:
  List parts_;
};

// Splits "a,b.c" into paths; null gives one empty path, which is the item itself.
std::vector<AttributePath> split_paths(const Value& paths);

// A string in lower case; anything else as it is.
Value ignore_case(const Value& value);

}  // namespace lagoon::text::jinja
