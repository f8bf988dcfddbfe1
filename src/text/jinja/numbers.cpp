#include "text/jinja/numbers.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

// Removes single underscores between digits; nothing where one stands elsewhere.
std::optional<std::string> without_underscores(View text) {
  std::string out;
  const auto is_digit_like = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !is_digit_like(text[i - 1]) ||
        !is_digit_like(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

int base_of_prefix(View digits) {
  if (digits.size() < 2 || digits[0] != '0') return 0;
  switch (digits[1] | 0x20) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 0;
  }
}

char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

}  // namespace

std::optional<int64_t> parse_integer(View text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) {
    throw Failure("int() base must be >= 2 and <= 36, or 0");
  }
  text = strip_right(strip_left(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const int prefix_base = base_of_prefix(text);
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    base = prefix_base;
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != View::npos) {
      return std::nullopt;
    }
  }
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return std::nullopt;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  int64_t number = 0;
  const char* const end = signed_digits.data() + signed_digits.size();
  const auto parsed = std::from_chars(signed_digits.data(), end, number, static_cast<int>(base));
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  if (parsed.ec != std::errc()) {
    throw Failure("the number is beyond the 64 bits that integers have here");
  }
  return number;
}

std::optional<double> parse_float(View text) {
  text = strip_right(strip_left(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  for (char& c : *digits) c = lower_ascii(c);
  double number = 0;
  if (*digits == "inf" || *digits == "infinity") {
    number = INFINITY;
  } else if (*digits == "nan") {
    number = NAN;
  } else {
    if (digits->find_first_not_of("0123456789.e+-") != View::npos || (*digits)[0] == '-' ||
        (*digits)[0] == '+') {
      return std::nullopt;
    }
    const char* const end = digits->data() + digits->size();
    const auto parsed = std::from_chars(digits->data(), end, number);
    if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return std::nullopt;
    // Out of range: inf or 0, as Python has it.
    if (parsed.ec != std::errc()) number = std::strtod(digits->c_str(), nullptr);
  }
  return negative ? -number : number;
}

std::optional<int64_t> truncate_float(double number) {
  if (std::isnan(number)) return std::nullopt;
  if (std::isinf(number)) throw Failure("cannot convert float infinity to integer");
  const double whole = std::trunc(number);
  // 2^63 is a double, 2^63 - 1 is not.
  constexpr double kLimit = 9223372036854775808.0;
  if (whole < -kLimit || whole >= kLimit) {
    throw Failure("the number is beyond the 64 bits that integers have here");
  }
  return static_cast<int64_t>(whole);
}

double round_to_digits(double number, int64_t digits) {
  constexpr int64_t kAllDigits = 400;  // more than any double has
  if (!std::isfinite(number) || digits > kAllDigits) return number;
  if (digits < -kAllDigits) return std::copysign(0.0, number);
  if (digits >= 0) {
    // The decimal printed is the exact value's, rounded half to even.
    return std::strtod(fmt::format("{:.{}f}", number, static_cast<int>(digits)).c_str(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(number / scale) * scale;
}

}  // namespace lagoon::text::jinja
