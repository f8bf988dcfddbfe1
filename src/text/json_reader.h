// Strict reading of JSON settings: what is not known is an error that names it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

// simdjson.h takes long to compile, so only .cpp files include it.
// NOLINTBEGIN(readability-identifier-naming)
namespace simdjson::dom {
class array;
class element;
class object;
}  // namespace simdjson::dom
// NOLINTEND(readability-identifier-naming)

namespace lagoon::text {

// A key of an object and the values, as minified JSON, that it may have. No values: any, or none at
// all (other code reads it, or nothing depends on it).
struct Setting {
  std::string_view key;
  std::vector<std::string_view> values;
};

// Stands in a Setting's list for "the key may be missing".
inline constexpr std::string_view kMissing;

// Values of a Setting.
inline std::vector<std::string_view> flag_values() {
  return {"true", "false"};
}
inline std::vector<std::string_view> optional_flag_values() {
  return {kMissing, "true", "false"};
}
inline std::vector<std::string_view> no_text_values() {
  return {kMissing, "null", R"("")"};
}

// `where` is the path of an object in the file with its last dot, such as "model.", or "".
class JsonReader {
 public:
  // `path` stands in the errors.
  explicit JsonReader(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  Error invalid(std::string_view what) const;
  Error unsupported(std::string_view what) const;
  // "`where` is `value`, which Lagoon does not support."
  Error unsupported(std::string_view where, const simdjson::dom::element& value) const;

  // Every key of the object must be listed, with a value that is, and none be there twice.
  Result<void> check_settings(const simdjson::dom::object& object, std::string_view where,
                              std::initializer_list<Setting> settings) const;

  bool has(const simdjson::dom::object& object, std::string_view key) const;
  Result<simdjson::dom::element> get(const simdjson::dom::object& object, std::string_view where,
                                     std::string_view key) const;
  Result<simdjson::dom::object> get_object(const simdjson::dom::object& object,
                                           std::string_view where, std::string_view key) const;
  Result<simdjson::dom::array> get_array(const simdjson::dom::object& object,
                                         std::string_view where, std::string_view key) const;
  Result<std::string_view> get_string(const simdjson::dom::object& object, std::string_view where,
                                      std::string_view key) const;
  Result<bool> get_flag(const simdjson::dom::object& object, std::string_view where,
                        std::string_view key) const;
  // The id of a token, in [0, Vocabulary::kMaxIds).
  Result<int32_t> get_id(const simdjson::dom::element& value, std::string_view token) const;

 private:
  std::string path_;
};

// At most some 120 bytes of `json`, for error messages.
std::string shortened(std::string json);

}  // namespace lagoon::text
