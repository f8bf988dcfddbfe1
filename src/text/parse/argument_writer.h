// The arguments of one tool call, from keys and values in plain text to the text of a JSON object.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>

#include "text/parse/tool_types.h"

namespace lagoon::text::parse {

// Pieces of JSON are appended to `out` as early as they are certain; together they are one object,
// whatever comes. How a value is read follows from its parameter's type:
//   string                 as it is, in pieces as it comes
//   string or null         the same, but null for exactly `null`, as templates write it
//   string or other types  JSON where that is of one of these, else as it is
//   no string              JSON, else a Python literal, else as it is
// Of a key that comes twice the first value stands, since it may have been sent; an empty key is
// left out.
class ArgumentWriter {
 public:
  // `types` outlives the writer.
  ArgumentWriter(const ToolTypes& types, std::string_view tool) : types_(&types), tool_(tool) {}

  // A value is begin_value(), any number of add() of whole characters, end_value().
  void begin_value(std::string_view key, std::string& out);
  void add(std::string_view text, std::string& out);
  void end_value(std::string& out);
  void end(std::string& out);

 private:
  enum class Value { kSkipped, kString, kMaybeNull, kWhole };

  void open_string(std::string& out);

  const ToolTypes* types_;
  std::string tool_;
  std::unordered_set<std::string> keys_;
  Value value_ = Value::kSkipped;
  TypeSet type_;
  std::string held_;  // kMaybeNull, kWhole: the value so far
};

}  // namespace lagoon::text::parse
