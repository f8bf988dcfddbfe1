// JSON to values and back, in the manner of Python's json module.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

// The parameters of json.dumps that the filter tojson takes.
struct JsonFormat {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level's; nothing: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Throws Failure for what JSON has no form for.
std::string dump_json(Budget& budget, const Value& value, const JsonFormat& format);

// Reads one JSON document (json_parser.cpp). Objects keep the order of their keys, and of equal
// keys the last value; integers keep all digits, numbers with a point or exponent become floats.
// Nesting is limited to kMaxValueDepth.
Result<Value> parse_json(std::string_view text);

}  // namespace lagoon::text::jinja
