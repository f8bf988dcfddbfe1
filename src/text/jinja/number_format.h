// Numbers and texts laid out as Python's format() and its operator % do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

// [[fill]align][sign][z][#][0][width][grouping][.precision][type], as format() reads it.
struct FormatSpec {
  static constexpr int64_t kNone = -1;

  std::string fill = " ";         // one character
  char align = 0;                 // < > ^ =, or 0: the default of what is formatted
  char sign = '-';                // - + or a space
  bool alternate = false;         // "#"
  bool no_negative_zero = false;  // "z"
  char grouping = 0;              // , or _
  int64_t width = kNone;
  int64_t precision = kNone;
  char type = 0;  // 0: none given
};

// The digits of an integer in the base of type d, x, X, o or b, without a sign.
std::string integer_digits(int64_t number, char type);

// A finite or other number without its sign, of type e, E, f, F, g, G, % or 0 (none: the shortest
// text, or as g but with a fraction where a precision is given). Charges for its length.
std::string float_digits(Budget& budget, double number, const FormatSpec& spec);

// Puts `sign`, `prefix` (0x) and `digits` into the width: fill goes left of them by default, after
// the prefix for "=". Grouping separates thousands (fours for the bases 2, 8 and 16).
std::string lay_out_number(Budget& budget, std::string_view sign, std::string_view prefix,
                           std::string digits, const FormatSpec& spec);

// Cuts to the precision and fills up to the width, in characters, on the right by default.
std::string lay_out_text(Budget& budget, std::string_view text, const FormatSpec& spec);

// "-", "+", " " or "" for a number that is negative or not.
std::string_view sign_of(bool negative, char sign);

// format(value, spec); throws Failure with Python's message where it raises.
std::string format_value(Budget& budget, const Value& value, std::string_view spec);

}  // namespace lagoon::text::jinja
