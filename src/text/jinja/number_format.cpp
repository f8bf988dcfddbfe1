#include "text/jinja/number_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

constexpr int64_t kMostDigits = 1'000'000;  // more than any double has, and cheap to write

// snprintf with a precision, as long as it comes out.
std::string printed(double number, char type, bool alternate, int precision) {
  const std::string form = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  // The form is made of checked letters above.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(nullptr, 0, form.c_str(), precision, number);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), form.c_str(), precision, number);
#pragma GCC diagnostic pop
  text.pop_back();
  return text;
}

// No type, but a precision: like g, except that a plain number keeps one digit after its point and
// the exponent comes one digit earlier.
std::string general_digits(double number, const FormatSpec& spec) {
  const int digits = static_cast<int>(std::max<int64_t>(spec.precision, 1));
  std::string scientific = printed(number, 'e', true, digits - 1);
  const size_t mark = scientific.find('e');
  int exponent = 0;
  const char* const start = scientific.data() + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(start, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= digits - 1) {
    if (spec.alternate) return scientific;
    const size_t last = scientific.find_last_not_of('0', mark - 1);
    const size_t kept = scientific[last] == '.' ? last : last + 1;
    return scientific.substr(0, kept) + scientific.substr(mark);
  }
  std::string text = printed(number, 'f', true, digits - 1 - exponent);
  if (spec.alternate) return text;
  const size_t point = text.find('.');
  const size_t last = text.find_last_not_of('0');
  text.resize(std::max(last, point + 1) + 1);
  return text;
}

// The shortest text, with a point in any case where it is to be alternate.
std::string shortest_digits(double number, bool alternate) {
  std::string text = repr_float(number);
  const size_t mark = text.find('e');
  if (alternate && text.find('.') == std::string::npos)
    text.insert(std::min(mark, text.size()), ".");
  return text;
}

std::string group_digits(std::string_view digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

bool is_base_type(char type) {
  return type == 'x' || type == 'X' || type == 'o' || type == 'b';
}

struct SpecReader {
  std::string_view rest;

  bool take(char c) {
    if (rest.empty() || rest[0] != c) return false;
    rest.remove_prefix(1);
    return true;
  }
  int64_t number() {
    int64_t value = 0;
    const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (end.ptr == rest.data()) return FormatSpec::kNone;
    if (end.ec != std::errc()) throw Failure("Too many decimal digits in format string");
    rest.remove_prefix(static_cast<size_t>(end.ptr - rest.data()));
    return value;
  }
  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }
};

FormatSpec read_spec(std::string_view text, const Value& value) {
  FormatSpec spec;
  SpecReader reader{text};
  if (!text.empty()) {
    const size_t first = character_bytes(text);
    if (text.size() > first && SpecReader::is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      reader.rest.remove_prefix(first + 1);
    } else if (SpecReader::is_align(text[0])) {
      spec.align = text[0];
      reader.rest.remove_prefix(1);
    }
  }
  for (const char sign : {'+', '-', ' '}) {
    if (reader.take(sign)) {
      spec.sign = sign;
      if (value.is_string()) throw Failure("Sign not allowed in string format specifier");
      break;
    }
  }
  spec.no_negative_zero = reader.take('z');
  if (spec.no_negative_zero && !value.is_float()) {
    throw Failure("Negative zero coercion (z) not allowed in format specifier with this type");
  }
  spec.alternate = reader.take('#');
  if (spec.align == 0 && reader.take('0')) {
    spec.fill = "0";
    spec.align = value.is_string() ? '<' : '=';
  }
  spec.width = reader.number();
  if (reader.take(',')) spec.grouping = ',';
  if (reader.take('_')) {
    if (spec.grouping != 0) throw Failure("Cannot specify both ',' and '_'.");
    spec.grouping = '_';
  }
  if (reader.take('.')) {
    spec.precision = reader.number();
    if (spec.precision == FormatSpec::kNone) throw Failure("Format specifier missing precision");
  }
  if (reader.rest.size() > 1) {
    throw Failure(fmt::format("Invalid format specifier '{}' for object of type '{}'", text,
                              type_name(value)));
  }
  if (!reader.rest.empty()) spec.type = reader.rest[0];
  return spec;
}

[[noreturn]] void fail_type(char type, const Value& value) {
  throw Failure(
      fmt::format("Unknown format code '{}' for object of type '{}'", type, type_name(value)));
}

std::string format_text(Budget& budget, const Value& value, const FormatSpec& spec) {
  if (spec.type != 0 && spec.type != 's') fail_type(spec.type, value);
  if (spec.alternate) throw Failure("Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != 0)
    throw Failure(fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  if (spec.align == '=') {
    throw Failure("'=' alignment not allowed in string format specifier");
  }
  return lay_out_text(budget, value.string(), spec);
}

std::string format_float(Budget& budget, const Value& value, const FormatSpec& spec) {
  const double number = as_double(value);
  const std::string digits = float_digits(budget, number, spec);
  const std::string_view mantissa = std::string_view(digits).substr(0, digits.find_first_of("eE"));
  const bool is_zero = mantissa.find_first_not_of("0.") == std::string_view::npos;
  const bool negative = std::signbit(number) && !(spec.no_negative_zero && is_zero);
  return lay_out_number(budget, sign_of(negative, spec.sign), "", digits, spec);
}

std::string format_integer(Budget& budget, const Value& value, FormatSpec spec) {
  const int64_t number = value.is_bool() ? (value.boolean() ? 1 : 0) : value.integer();
  if (spec.type == 0) spec.type = 'd';
  if (std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos) {
    return format_float(budget, value, spec);
  }
  if (spec.precision != FormatSpec::kNone) {
    throw Failure("Precision not allowed in integer format specifier");
  }
  if (spec.type == 'c') {
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) {
      throw Failure("%c arg not in range(0x110000)");
    }
    std::string character;
    append_character(character, static_cast<char32_t>(number));
    if (spec.align == 0) spec.align = '>';
    return lay_out_text(budget, character, spec);
  }
  if (spec.type == 'n') spec.type = 'd';
  if (spec.type != 'd' && !is_base_type(spec.type)) fail_type(spec.type, value);
  if (spec.grouping == ',' && spec.type != 'd') {
    throw Failure(fmt::format("Cannot specify ',' with '{}'.", spec.type));
  }
  const std::string prefix =
      spec.alternate && spec.type != 'd' ? std::string("0") + spec.type : std::string();
  return lay_out_number(budget, sign_of(number < 0, spec.sign), prefix,
                        integer_digits(number, spec.type), spec);
}

}  // namespace

std::string integer_digits(int64_t number, char type) {
  const uint64_t size =
      number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  switch (type) {
    case 'x':
      return fmt::format("{:x}", size);
    case 'X':
      return fmt::format("{:X}", size);
    case 'o':
      return fmt::format("{:o}", size);
    case 'b':
      return fmt::format("{:b}", size);
    default:
      return fmt::format("{}", size);
  }
}

std::string float_digits(Budget& budget, double number, const FormatSpec& spec) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (std::isnan(number) || std::isinf(number)) {
    std::string word = std::isnan(number) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return spec.type == '%' ? word + "%" : word;
  }
  if (spec.precision > kMostDigits) {
    throw Failure(fmt::format("a precision is above {} digits", kMostDigits));
  }
  budget.charge_text(static_cast<size_t>(std::max<int64_t>(spec.precision, 0)) + 310);
  number = std::fabs(number);
  if (spec.type == 0) {
    return spec.precision == FormatSpec::kNone ? shortest_digits(number, spec.alternate)
                                               : general_digits(number, spec);
  }
  const int precision = spec.precision == FormatSpec::kNone ? 6 : static_cast<int>(spec.precision);
  if (spec.type == '%') return printed(number * 100.0, 'f', spec.alternate, precision) + "%";
  return printed(number, spec.type == 'n' ? 'g' : spec.type, spec.alternate, precision);
}

std::string lay_out_number(Budget& budget, std::string_view sign, std::string_view prefix,
                           std::string digits, const FormatSpec& spec) {
  const auto width = static_cast<size_t>(std::max<int64_t>(spec.width, 0));
  budget.charge_text(width);
  const size_t around = sign.size() + prefix.size();
  if (spec.grouping != 0) {
    const size_t whole =
        std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    const bool is_number =
        spec.type == 'd' || is_base_type(spec.type) || (digits[0] >= '0' && digits[0] <= '9');
    const size_t end = is_base_type(spec.type)
                           ? whole
                           : std::min(digits.find_first_not_of("0123456789"), digits.size());
    const size_t size = is_base_type(spec.type) ? 4 : 3;
    std::string head = digits.substr(0, end);
    const std::string tail = digits.substr(end);
    // Zeros that fill up the width are grouped with the number.
    if (is_number && spec.align == '=' && spec.fill == "0") {
      const auto grouped = [&](size_t count) { return count + (count - 1) / size; };
      const size_t taken = tail.size() + around;
      const size_t wanted = width > taken ? width - taken : 0;
      size_t count = std::max(head.size(), wanted - wanted / (size + 1));
      while (count > head.size() && grouped(count - 1) >= wanted) --count;
      while (grouped(count) < wanted) ++count;
      head.insert(0, count - head.size(), '0');
    }
    digits = is_number ? group_digits(head, spec.grouping, size) + tail : digits;
  }
  const size_t size = around + digits.size();
  const size_t missing = width > size ? width - size : 0;
  budget.charge_text(missing * spec.fill.size());
  const auto filled = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  const std::string number = fmt::format("{}{}", sign, prefix);
  switch (spec.align) {
    case '<':
      return number + digits + filled(missing);
    case '^':
      return filled(missing / 2) + number + digits + filled(missing - missing / 2);
    case '=':
      return number + filled(missing) + digits;
    default:
      return filled(missing) + number + digits;
  }
}

std::string lay_out_text(Budget& budget, std::string_view text, const FormatSpec& spec) {
  budget.charge_text(text.size());
  if (spec.precision != FormatSpec::kNone) {
    text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  }
  const auto width = static_cast<size_t>(std::max<int64_t>(spec.width, 0));
  if (width > budget.max_text_bytes()) budget.charge_text(width);
  const size_t size = count_characters(text);
  const size_t missing = width > size ? width - size : 0;
  budget.charge_text(missing * spec.fill.size());
  const size_t left = spec.align == '>' ? missing : spec.align == '^' ? missing / 2 : 0;
  std::string out;
  for (size_t i = 0; i < left; ++i) out += spec.fill;
  out += text;
  for (size_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string_view sign_of(bool negative, char sign) {
  if (negative) return "-";
  if (sign == '+') return "+";
  return sign == ' ' ? " " : "";
}

std::string format_value(Budget& budget, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(budget, value);
  if (value.is_string()) return format_text(budget, value, read_spec(spec, value));
  if (value.is_int() || value.is_bool()) {
    return format_integer(budget, value, read_spec(spec, value));
  }
  if (value.is_big_integer()) {
    throw Failure("the number is beyond the 64 bits that integers have here");
  }
  if (!value.is_float()) {
    throw Failure(
        fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  }
  const FormatSpec read = read_spec(spec, value);
  if (read.type != 0 && std::string_view("eEfFgGn%").find(read.type) == std::string_view::npos) {
    fail_type(read.type, value);
  }
  return format_float(budget, value, read);
}

}  // namespace lagoon::text::jinja
