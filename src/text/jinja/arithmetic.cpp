#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "text/jinja/error.h"
#include "text/jinja/escape.h"
#include "text/jinja/formatting.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

[[noreturn]] void fail_operands(const char* symbol, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  throw Failure(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol,
                            type_name(left), type_name(right)));
}

[[noreturn]] void fail_overflow() {
  throw Failure("the number is beyond the 64 bits that integers have here");
}

bool is_integral(const Value& value) {
  return value.is_int() || value.is_bool();
}

int64_t as_integer(const Value& value) {
  return value.is_bool() ? (value.boolean() ? 1 : 0) : value.integer();
}

void require_numbers(const char* symbol, const Value& left, const Value& right) {
  if (!left.is_number() || !right.is_number()) fail_operands(symbol, left, right);
  if (left.is_big_integer() || right.is_big_integer()) fail_overflow();
}

Value add_strings(Runtime& runtime, const Value& left, const Value& right) {
  runtime.budget.charge_text(left.string().size() + right.string().size());
  if (!left.is_safe() && !right.is_safe()) return left.string() + right.string();
  // A safe string escapes what is joined to it.
  return Value::safe_string((left.is_safe() ? left.string() : escape_html(left.string())) +
                            (right.is_safe() ? right.string() : escape_html(right.string())));
}

List join_lists(Runtime& runtime, const List& left, const List& right) {
  runtime.budget.charge(left.size() + right.size());
  List joined = left;
  joined.insert(joined.end(), right.begin(), right.end());
  return joined;
}

// Python's sequence * count; a negative count is 0.
Value repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const size_t times = count > 0 ? static_cast<size_t>(count) : 0;
  if (sequence.is_string()) {
    const std::string& text = sequence.string();
    const size_t most = runtime.budget.max_text_bytes();
    if (times > 0 && text.size() > most / times) runtime.budget.charge_text(most + 1);
    runtime.budget.charge_text(text.size() * times);
    std::string out;
    out.reserve(text.size() * times);
    for (size_t i = 0; i < (text.empty() ? 0 : times); ++i) out += text;
    return sequence.is_safe() ? Value::safe_string(std::move(out)) : Value(std::move(out));
  }
  const List& items = sequence.is_list() ? sequence.list() : sequence.tuple();
  List out;
  // The whole first: nothing is made that is too long.
  if (!items.empty() && times > 0) {
    size_t total = 0;
    if (__builtin_mul_overflow(items.size(), times, &total)) total = SIZE_MAX;
    runtime.budget.charge(total);
  }
  for (size_t i = 0; i < (items.empty() ? 0 : times); ++i) {
    out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is_list() ? runtime.make_list(std::move(out))
                            : runtime.make_tuple(std::move(out));
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is_list() || value.is_tuple();
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

}  // namespace

double as_double(const Value& number) {
  if (number.is_big_integer()) return std::strtod(number.big_integer().c_str(), nullptr);
  return number.is_float() ? number.floating() : static_cast<double>(as_integer(number));
}

Value add(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return add_strings(runtime, left, right);
  if (left.is_list() && right.is_list()) {
    return runtime.make_list(join_lists(runtime, left.list(), right.list()));
  }
  if (left.is_tuple() && right.is_tuple()) {
    return runtime.make_tuple(join_lists(runtime, left.tuple(), right.tuple()));
  }
  if (left.is_string() && !right.is_undefined()) {
    throw Failure(fmt::format("can only concatenate str (not \"{}\") to str", type_name(right)));
  }
  require_numbers("+", left, right);
  if (!is_integral(left) || !is_integral(right)) return as_double(left) + as_double(right);
  int64_t sum = 0;
  if (__builtin_add_overflow(as_integer(left), as_integer(right), &sum)) fail_overflow();
  return sum;
}

Value subtract(const Value& left, const Value& right) {
  require_numbers("-", left, right);
  if (!is_integral(left) || !is_integral(right)) return as_double(left) - as_double(right);
  int64_t difference = 0;
  if (__builtin_sub_overflow(as_integer(left), as_integer(right), &difference)) fail_overflow();
  return difference;
}

Value multiply(Runtime& runtime, const Value& left, const Value& right) {
  if (is_sequence(left) && is_integral(right)) return repeat(runtime, left, as_integer(right));
  if (is_sequence(right) && is_integral(left)) return repeat(runtime, right, as_integer(left));
  require_numbers("*", left, right);
  if (!is_integral(left) || !is_integral(right)) return as_double(left) * as_double(right);
  int64_t product = 0;
  if (__builtin_mul_overflow(as_integer(left), as_integer(right), &product)) fail_overflow();
  return product;
}

Value divide(const Value& left, const Value& right) {
  require_numbers("/", left, right);
  if (as_double(right) == 0.0) throw Failure("division by zero");
  return as_double(left) / as_double(right);
}

Value floor_divide(const Value& left, const Value& right) {
  require_numbers("//", left, right);
  if (as_double(right) == 0.0) throw Failure("division by zero");
  if (!is_integral(left) || !is_integral(right)) {
    const double x = as_double(left);
    const double y = as_double(right);
    // As CPython: from the exact remainder, so that (x // y) * y + x % y is x.
    double remainder = std::fmod(x, y);
    double quotient = (x - remainder) / y;
    if (remainder != 0.0 && (y < 0) != (remainder < 0)) quotient -= 1.0;
    if (quotient == 0.0) return std::copysign(0.0, x / y);
    const double floored = std::floor(quotient);
    return quotient - floored > 0.5 ? floored + 1.0 : floored;
  }
  const int64_t x = as_integer(left);
  const int64_t y = as_integer(right);
  if (y == -1) return negate(Value(x));
  const int64_t quotient = x / y;
  return x % y != 0 && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

Value modulo(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) return format_percent(runtime, left, right);
  require_numbers("%", left, right);
  if (as_double(right) == 0.0) throw Failure("integer division or modulo by zero");
  if (!is_integral(left) || !is_integral(right)) {
    const double y = as_double(right);
    const double remainder = std::fmod(as_double(left), y);
    if (remainder == 0.0) return std::copysign(0.0, y);
    return (y < 0) != (remainder < 0) ? remainder + y : remainder;
  }
  const int64_t y = as_integer(right);
  if (y == -1) return 0;
  const int64_t remainder = as_integer(left) % y;
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

Value power(const Value& left, const Value& right) {
  require_numbers("** or pow()", left, right);
  if (is_integral(left) && is_integral(right) && as_integer(right) >= 0) {
    return integer_power(as_integer(left), as_integer(right));
  }
  const double base = as_double(left);
  const double exponent = as_double(right);
  if (base == 0.0 && exponent < 0) throw Failure("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      std::floor(exponent) != exponent) {
    throw Failure("a negative number to a fractional power is complex, which is not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    throw Failure("the result of ** is too large for a float");
  }
  return result;
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is_float()) return -value.floating();
  if (value.is_big_integer()) {
    const std::string& digits = value.big_integer();
    return Value::integer_text(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  if (!is_integral(value)) {
    throw Failure(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
  }
  int64_t negative = 0;
  if (__builtin_sub_overflow(int64_t{0}, as_integer(value), &negative)) fail_overflow();
  return negative;
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is_float() || value.is_big_integer()) return value;
  if (!is_integral(value)) {
    throw Failure(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
  }
  return as_integer(value);
}

}  // namespace lagoon::text::jinja
