// Values that a model wrote as plain text: JSON, or a Python literal, to JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/parse/tool_types.h"

namespace lagoon::text::parse {

struct Literal {
  std::string json;  // with ", " and ": " between items, as Python's json.dumps
  TypeSet type;
};

// The whole of `text` but for white space around it, as JSON (RFC 8259). Numbers keep their digits,
// strings their escapes. Not JSON here: lone surrogates, and values nested more than
// kMaxLiteralDepth deep. `text` is valid UTF-8. Linear time.
std::optional<Literal> read_json(std::string_view text);

// The same as a Python literal (ast.literal_eval) that JSON has a form for: None, True, False,
// numbers, strings, tuples, lists and dicts. Not bytes, sets, complex numbers, f-strings, \N{...}
// escapes and comments; a backslash and the end of a line join lines inside strings only.
std::optional<Literal> read_python(std::string_view text);

inline constexpr int kMaxLiteralDepth = 100;

}  // namespace lagoon::text::parse
