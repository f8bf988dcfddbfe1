// A parsed JSON document as plain values, for files of some kilobytes such as config.json, and
// typed access to an object's fields whose errors name file and field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace lagoon::checkpoint {

struct JsonValue;
using JsonArray = std::vector<JsonValue>;
// Field i is names[i] with values[i], in the file's order; no name is there twice.
struct JsonObject {
  std::vector<std::string> names;
  std::vector<JsonValue> values;
};

struct JsonValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, JsonArray, JsonObject> value;

  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value);
  }
};

// `path` names the file in errors: not valid JSON, an object with a key twice. An integer beyond
// int64 becomes a double.
Result<JsonValue> parse_json(std::string_view text, const std::string& path);

// Short text of a value for an error message: `"gelu"`, `3`, `an array`.
std::string describe(const JsonValue& value);

// Fields of one object of a file. A field that is null counts as absent, as it does for the
// libraries that write these files. `where` is the object's own place ("dflash_config."), empty at
// the top. Cheap to copy; valid while the document lives.
class JsonFields {
 public:
  JsonFields(const JsonObject& object, const std::string& path, std::string where = {})
      : object_(&object), path_(&path), where_(std::move(where)) {}

  // Null if the field is absent.
  const JsonValue* find(std::string_view key) const;
  // Names of the fields that are not null, in the file's order.
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Absent or of another type or range: an error that says what it must be.
  Result<int64_t> integer(std::string_view key, int64_t lowest, int64_t highest) const;
  Result<int64_t> integer_or(std::string_view key, int64_t lowest, int64_t highest,
                             int64_t absent) const;
  Result<double> positive(std::string_view key) const;
  Result<double> positive_or(std::string_view key, double absent) const;
  Result<double> not_negative_or(std::string_view key, double absent) const;
  Result<bool> boolean_or(std::string_view key, bool absent) const;
  Result<std::string> string(std::string_view key) const;
  Result<std::string> string_or(std::string_view key, std::string_view absent) const;
  Result<std::vector<std::string>> strings(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key, int64_t lowest,
                                        int64_t highest) const;
  Result<JsonFields> object(std::string_view key) const;

  // "PATH: dflash_config.causal WHAT".
  Error error(std::string_view key, std::string_view what) const;
  Error unsupported(std::string_view key, std::string_view what) const;
  const std::string& path() const { return *path_; }

 private:
  std::string location(std::string_view key) const;
  Result<double> number(std::string_view key, bool zero_allowed) const;
  Error missing(std::string_view key) const;

  const JsonObject* object_;
  const std::string* path_;
  std::string where_;
};

}  // namespace lagoon::checkpoint
