// Strings to numbers, as Python's int() and float() read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lagoon::text::jinja {

// int(text, base): whitespace around it, a sign and underscores are allowed. Nothing for what is no
// integer; throws Failure for one beyond 64 bits and for a base that is not 0 or 2 to 36.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
// float(text), "inf" and "nan" included.
std::optional<double> parse_float(std::string_view text);
// int(number): the fraction is cut off. Nothing for nan; throws Failure beyond 64 bits.
std::optional<int64_t> truncate_float(double number);
// round(number, digits): half to even on the exact binary value.
double round_to_digits(double number, int64_t digits);

}  // namespace lagoon::text::jinja
