#include "text/jinja/repr.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/error.h"
#include "text/jinja/object.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

// \x, \u or \U and the character's number.
void append_number(std::string& out, char32_t c) {
  constexpr char32_t kBadByte = 0xDC00;
  if (c < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
  } else if (c >= kBadByte && c < kBadByte + 0x100) {
    out += fmt::format("\\udc{:02x}", static_cast<unsigned>(c - kBadByte));
  } else if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
  }
}

void append_escaped(std::string& out, std::string_view piece) {
  const char32_t c = first_character(piece);
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (is_printable(c)) {
    out += piece;
  } else {
    append_number(out, c);
  }
}

// Appends within the limits: each copy of a long piece is paid for.
void append(Budget& budget, std::string& out, std::string_view piece) {
  if (out.size() + piece.size() > budget.max_text_bytes())
    budget.charge_text(out.size() + piece.size());
  budget.charge_text(piece.size());
  out += piece;
}

std::string repr_items(Budget& budget, const List& items, char open, char close) {
  std::string out(1, open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append(budget, out, repr(budget, items[i]));
  }
  out += close;
  return out;
}

std::string repr_dict(Budget& budget, const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.items()) {
    if (out.size() > 1) out += ", ";
    append(budget, out, repr_string(key));
    out += ": ";
    append(budget, out, repr(budget, value));
  }
  out += '}';
  return out;
}

}  // namespace

std::string repr_string(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const std::string_view piece = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if (piece[0] == quote || piece[0] == '\\') {
      out += '\\';
      out += piece[0];
    } else {
      append_escaped(out, piece);
    }
  }
  out += quote;
  return out;
}

std::string ascii_only(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const char32_t c = first_character(text);
    if (c < 0x80) {
      out += text[0];
    } else {
      append_number(out, c);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string repr_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // "d.ddde+xx": the shortest digits; Python writes them plainly for exponents -4 to 15.
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::abs(number),
                                 std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  const char* const sign = text.data() + mark + 1;  // from_chars takes no "+"
  std::from_chars(*sign == '+' ? sign + 1 : sign, end.ptr, exponent);
  std::string digits(1, text[0]);
  if (mark > 1) digits += text.substr(2, mark - 2);

  const std::string_view minus = std::signbit(number) ? "-" : "";
  if (exponent < -4 || exponent >= 16) return fmt::format("{}{}", minus, text);
  if (exponent < 0) return fmt::format("{}0.{:0>{}}", minus, digits, digits.size() - 1 - exponent);
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return fmt::format("{}{:0<{}}.0", minus, digits, whole);
  const std::string_view view = digits;
  return fmt::format("{}{}.{}", minus, view.substr(0, whole), view.substr(whole));
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  if (value.is_object()) return value.object()->text(budget);
  return repr(budget, value);
}

std::string repr(Budget& budget, const Value& value) {
  const Nested nested(budget);
  budget.charge(1);
  if (value.is_null()) return "None";
  if (value.is_undefined()) return "Undefined";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return fmt::format("{}", value.integer());
  if (value.is_big_integer()) return value.big_integer();
  if (value.is_float()) return repr_float(value.floating());
  if (value.is_string()) {
    budget.charge_text(value.string().size());
    const std::string quoted = repr_string(value.string());
    return value.is_safe() ? fmt::format("Markup({})", quoted) : quoted;
  }
  if (value.is_list()) return repr_items(budget, value.list(), '[', ']');
  if (value.is_tuple()) {
    const List& items = value.tuple();
    if (items.size() == 1) return fmt::format("({},)", repr(budget, items[0]));
    return repr_items(budget, items, '(', ')');
  }
  if (value.is_dict()) return repr_dict(budget, value.dict());
  return value.object()->repr(budget);
}

std::string type_name(const Value& value) {
  if (value.is_null()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.is_bool()) return "bool";
  if (value.is_int() || value.is_big_integer()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return value.is_safe() ? "Markup" : "str";
  if (value.is_list()) return "list";
  if (value.is_tuple()) return "tuple";
  if (value.is_dict()) return "dict";
  return value.object()->type_name();
}

std::string described_type(const Value& value) {
  if (value.is_null()) return "None";
  if (value.is_object()) return value.object()->described_type();
  if (value.is_safe()) return "markupsafe.Markup object";
  return type_name(value) + " object";
}

void require_defined(const Value& value) {
  if (value.is_undefined()) throw Failure(value.undefined().message);
}

}  // namespace lagoon::text::jinja
