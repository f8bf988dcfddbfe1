#include "text/parse/argument_writer.h"

#include <optional>

#include "base/json_escape.h"
#include "text/parse/literal.h"
#include "text/parse/scanner.h"

namespace lagoon::text::parse {
namespace {

constexpr std::string_view kNull = "null";

bool allows(TypeSet types, TypeSet found) {
  if (types.has(TypeSet::kNumber)) types = types | TypeSet::kInteger;
  return (types | found) == types;
}

// The JSON of a value that is not a plain string, if it has one.
std::optional<std::string> literal_json(std::string_view text, TypeSet types) {
  auto json = read_json(text);
  const bool open = types == TypeSet::any();
  if (types.has(TypeSet::kString) && !open) {
    // A string is written as it is, so what reads as JSON of no other type is one.
    if (!json || json->type == TypeSet(TypeSet::kString) || !allows(types, json->type)) return {};
    return std::move(json->json);
  }
  if (!json) json = read_python(text);
  if (!json) return {};
  return std::move(json->json);
}

}  // namespace

void ArgumentWriter::begin_value(std::string_view key, std::string& out) {
  key = trimmed(key);
  if (key.empty() || !keys_.emplace(key).second) {
    value_ = Value::kSkipped;
    return;
  }
  out += keys_.size() == 1 ? "{\"" : ", \"";
  append_json_escaped(out, key);
  out += "\": ";
  held_.clear();
  type_ = types_->type_of(tool_, key);
  if (type_ == TypeSet(TypeSet::kString)) {
    open_string(out);
  } else if (type_ == (TypeSet(TypeSet::kString) | TypeSet::kNull)) {
    value_ = Value::kMaybeNull;
  } else {
    value_ = Value::kWhole;
  }
}

void ArgumentWriter::open_string(std::string& out) {
  value_ = Value::kString;
  out += '"';
  append_json_escaped(out, held_);
  held_.clear();
}

void ArgumentWriter::add(std::string_view text, std::string& out) {
  switch (value_) {
    case Value::kSkipped:
      return;
    case Value::kString:
      append_json_escaped(out, text);
      return;
    case Value::kWhole:
      held_ += text;
      return;
    case Value::kMaybeNull:
      held_ += text;
      if (!kNull.starts_with(held_)) open_string(out);
  }
}

void ArgumentWriter::end_value(std::string& out) {
  if (value_ == Value::kMaybeNull && held_ == kNull) {
    out += kNull;
  } else if (value_ == Value::kWhole) {
    if (const auto json = literal_json(held_, type_)) {
      out += *json;
    } else {
      open_string(out);
      out += '"';
    }
  } else if (value_ != Value::kSkipped) {
    if (value_ == Value::kMaybeNull) open_string(out);
    out += '"';
  }
  value_ = Value::kSkipped;
  held_.clear();
}

void ArgumentWriter::end(std::string& out) {
  out += keys_.empty() ? "{}" : "}";
}

}  // namespace lagoon::text::parse
