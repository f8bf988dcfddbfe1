// Reads the fields of a JSON object by name and type. The first problem is kept and what is read
// after it is empty, so that a caller reads all fields in a row and checks once.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"
#include "api/json.h"

namespace lagoon::api {

class Fields {
 public:
  // `object` is a JSON object that outlives this; `location` of it in the body, "" for the body.
  explicit Fields(const Json& object, std::string location = "");

  // Absent and null are the same: empty.
  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name);
  std::optional<double> number(std::string_view name);  // finite
  std::optional<std::string> string(std::string_view name);
  std::string required_string(std::string_view name);  // "" where it fails
  const Json* array(std::string_view name);
  const Json* object(std::string_view name);
  const Json* any(std::string_view name);

  // "messages.0.role" for role in messages.0.
  std::string location(std::string_view name) const;

  void fail(ApiError error);
  // That the field is of another type than `expected` ("a string").
  void fail_type(std::string_view name, std::string_view expected);
  bool failed() const { return error_.has_value(); }
  const ApiError& error() const { return *error_; }

  // Names of fields that nobody has asked for.
  std::vector<std::string> unread() const;

 private:
  const Json& object_;
  const std::string location_;
  std::set<std::string, std::less<>> read_;
  std::optional<ApiError> error_;
};

}  // namespace lagoon::api
