// Filters that make numbers, and `default`.
#include <fmt/core.h>

#include <cmath>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

// Python's float(): nothing where it raises TypeError or ValueError.
std::optional<double> to_float(const Value& value) {
  require_defined(value);
  if (value.is_number()) return as_double(value);
  if (value.is_string()) return parse_float(value.string());
  return std::nullopt;
}

std::optional<int64_t> to_integer(const Value& value, int64_t base) {
  if (value.is_int()) return value.integer();
  if (value.is_bool()) return value.boolean() ? 1 : 0;
  if (value.is_string()) {
    if (const std::optional<int64_t> number = parse_integer(value.string(), base)) return number;
    const std::optional<double> number = parse_float(value.string());
    // Infinity in a string, unlike the number, counts as unreadable.
    return number && std::isfinite(*number) ? truncate_float(*number) : std::nullopt;
  }
  const std::optional<double> number = to_float(value);
  return number ? truncate_float(*number) : std::nullopt;
}

Value integer(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments bound("int", {"default", "base"}, arguments);
  if (input.is_big_integer()) return input;
  const std::optional<int64_t> number = to_integer(input, bound.integer(1, 10));
  return number ? Value(*number) : bound.get(0, Value(0));
}

Value floating(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments bound("float", {"default"}, arguments);
  const std::optional<double> number = to_float(input);
  return number ? Value(*number) : bound.get(0, Value(0.0));
}

Value round(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments bound("round", {"precision", "method"}, arguments);
  const int64_t digits = bound.integer(0, 0);
  const std::string_view method = bound.string(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    throw Failure("method must be common, ceil or floor");
  }
  require_defined(input);
  if (!input.is_number()) {
    throw Failure(fmt::format("round needs a number, not '{}'", type_name(input)));
  }
  if (method == "common") {
    if (input.is_float()) return round_to_digits(input.floating(), digits);
    if (digits >= 0) return plus(input);
    const auto rounded = truncate_float(round_to_digits(as_double(input), digits));
    return rounded ? Value(*rounded) : input;
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = as_double(input) * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value absolute(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments none("abs", {}, arguments);
  require_defined(input);
  if (!input.is_number()) {
    throw Failure(fmt::format("bad operand type for abs(): '{}'", type_name(input)));
  }
  if (input.is_float()) return std::fabs(input.floating());
  const Value number = plus(input);
  if (number.is_big_integer()) return number.big_integer()[0] == '-' ? negate(number) : number;
  return number.integer() < 0 ? negate(number) : number;
}

Value otherwise(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments bound("default", {"default_value", "boolean"}, arguments);
  const bool replaces = input.is_undefined() || (bound.truth(1, false) && !input.truthy());
  return replaces ? bound.get(0, Value("")) : input;
}

}  // namespace

Builtin find_number_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kFilters = {
      {"int", integer},  {"float", floating},    {"round", round},
      {"abs", absolute}, {"default", otherwise}, {"d", otherwise},
  };
  const auto found = kFilters.find(name);
  return found != kFilters.end() ? found->second : nullptr;
}

}  // namespace lagoon::text::jinja
