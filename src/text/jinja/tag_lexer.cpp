#include "text/jinja/tag_lexer.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_character(char32_t c) {
  return c == '_' || is_alphabetic(c) || is_numeric(c);
}

size_t name_bytes(View text) {
  size_t at = 0;
  while (at < text.size() && is_name_character(first_character(text.substr(at)))) {
    at += character_bytes(text.substr(at));
  }
  return at;
}

// "12", "1_000": digits with single underscores between them.
size_t digit_bytes(View text, bool (*is_digit_of_base)(char)) {
  size_t at = 0;
  while (at < text.size() && is_digit_of_base(text[at])) {
    ++at;
    if (at + 1 < text.size() && text[at] == '_' && is_digit_of_base(text[at + 1])) ++at;
  }
  return at;
}

// "1.5", "1e9", "1.5e-3"; 0 where no float stands.
size_t float_bytes(View text) {
  const size_t whole = digit_bytes(text, is_ascii_digit);
  if (whole == 0) return 0;
  size_t at = whole;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = digit_bytes(text.substr(at + 1), is_ascii_digit);
    if (fraction > 0) at += 1 + fraction;
  }
  const size_t before_exponent = at;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const size_t exponent = digit_bytes(text.substr(at), is_ascii_digit);
    if (exponent > 0) return at + exponent;
  }
  return before_exponent > whole ? before_exponent : 0;
}

bool is_base_2(char c) {
  return c == '0' || c == '1';
}
bool is_base_8(char c) {
  return c >= '0' && c <= '7';
}
bool is_base_16(char c) {
  return is_ascii_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_zero(char c) {
  return c == '0';
}

struct IntegerForm {
  size_t bytes;
  int base;
  size_t prefix;  // of "0x" and the like
};

IntegerForm integer_form(View text) {
  if (text[0] != '0') return {digit_bytes(text, is_ascii_digit), 10, 0};
  if (text.size() > 2) {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    const size_t underscore = text[2] == '_' ? 1 : 0;
    const View digits = text.substr(2 + underscore);
    const size_t bytes = base == 0 ? 0
                                   : digit_bytes(digits, base == 16  ? is_base_16
                                                         : base == 8 ? is_base_8
                                                                     : is_base_2);
    if (bytes > 0) return {2 + underscore + bytes, base, 2 + underscore};
  }
  return {digit_bytes(text, is_zero), 10, 0};
}

std::string without_underscores(View text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

Token number(View text, bool may_be_float, int line, size_t& bytes) {
  bytes = may_be_float ? float_bytes(text) : 0;
  if (bytes > 0) {
    const std::string digits = without_underscores(text.substr(0, bytes));
    Token token{TokenKind::kFloat, line, digits};
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), token.floating);
    // Out of range: strtod gives inf or 0, as Python does.
    if (end.ec != std::errc()) token.floating = std::strtod(digits.c_str(), nullptr);
    return token;
  }
  const IntegerForm form = integer_form(text);
  bytes = form.bytes;
  const std::string digits = without_underscores(text.substr(form.prefix, bytes - form.prefix));
  Token token{TokenKind::kInteger, line, std::string(text.substr(0, bytes))};
  const auto end =
      std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, form.base);
  if (end.ec != std::errc()) {
    throw Failure(
        fmt::format("the number {} is beyond the 64 bits that integers have here", digits), line);
  }
  return token;
}

Token string_literal(View text, int line, size_t& bytes) {
  const char quote = text[0];
  size_t at = 1;
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  if (at >= text.size())
    throw Failure(fmt::format("the string after {} does not end", quote), line);
  bytes = at + 1;
  return {TokenKind::kString, line, unescape(text.substr(1, at - 1), line)};
}

Token operator_token(View text, int line, size_t& bytes) {
  for (const char* symbol : {"**", "//", "==", "!=", "<=", ">="}) {
    if (text.starts_with(symbol)) {
      bytes = 2;
      return {TokenKind::kOperator, line, symbol};
    }
  }
  if (View("+-/*%~[](){}><=.:|,;").find(text[0]) == View::npos) {
    throw Failure(fmt::format("unexpected character '{}'", text.substr(0, character_bytes(text))),
                  line);
  }
  bytes = 1;
  return {TokenKind::kOperator, line, std::string(1, text[0])};
}

// \x41, \u00e9, \U0001f600: `digits` hexadecimal digits after the letter.
size_t append_hexadecimal(std::string& out, View rest, size_t digits, int line) {
  const View number = rest.substr(2, digits);
  uint32_t code = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), code, 16);
  if (number.size() < digits || end.ptr != number.data() + digits) {
    throw Failure(fmt::format("truncated \\{} escape in a string", rest[1]), line);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    throw Failure(fmt::format("\\{}{} is no character", rest[1], number), line);
  }
  append_character(out, code);
  return 2 + digits;
}

size_t append_octal(std::string& out, View rest) {
  char32_t code = 0;
  size_t at = 1;
  while (at < 4 && at < rest.size() && is_base_8(rest[at])) {
    code = code * 8 + static_cast<char32_t>(rest[at++] - '0');
  }
  append_character(out, code);
  return at;
}

// Resolves the escape at the start of `rest`; returns its length.
size_t append_escape(std::string& out, View rest, int line) {
  constexpr View kLetters = "\n\\'\"abfnrtv";
  constexpr View kMeanings("\0\\'\"\a\b\f\n\r\t\v", kLetters.size());
  const char letter = rest[1];
  const size_t simple = kLetters.find(letter);
  if (simple != View::npos) {
    if (letter != '\n') out += kMeanings[simple];  // a backslash before a newline hides it
    return 2;
  }
  switch (letter) {
    case 'x':
      return append_hexadecimal(out, rest, 2, line);
    case 'u':
      return append_hexadecimal(out, rest, 4, line);
    case 'U':
      return append_hexadecimal(out, rest, 8, line);
    case 'N':
      throw Failure("characters by name (\\N) are not supported in strings", line);
    default:
      break;
  }
  if (is_base_8(letter)) return append_octal(out, rest);
  out += rest.substr(0, 1);  // an unknown escape stays as it is
  return 1;
}

}  // namespace

std::string unescape(View inside, int line) {
  std::string out;
  out.reserve(inside.size());
  while (!inside.empty()) {
    size_t bytes = 1;
    if (inside[0] == '\\' && inside.size() > 1) {
      bytes = append_escape(out, inside, line);
    } else {
      out += inside[0];
    }
    inside.remove_prefix(bytes);
  }
  return out;
}

void balance(const Token& symbol, std::string& open) {
  const char c = symbol.text[0];
  if (c == '(') open += ')';
  if (c == '[') open += ']';
  if (c == '{') open += '}';
  if (c != ')' && c != ']' && c != '}') return;
  if (open.empty()) throw Failure(fmt::format("unexpected '{}'", c), symbol.line);
  if (open.back() != c) {
    throw Failure(fmt::format("unexpected '{}', expected '{}'", c, open.back()), symbol.line);
  }
  open.pop_back();
}

Token lex_in_tag(View source, size_t position, int line, size_t& bytes) {
  const View text = source.substr(position);
  if (is_ascii_digit(text[0])) {
    // "a.0.1" has two indices, not the number 0.1.
    return number(text, position == 0 || source[position - 1] != '.', line, bytes);
  }
  if (text[0] == '\'' || text[0] == '"') return string_literal(text, line, bytes);
  bytes = name_bytes(text);
  if (bytes == 0) return operator_token(text, line, bytes);
  const char32_t first = first_character(text);
  if (first != '_' && !is_alphabetic(first)) {
    throw Failure("a name cannot start with a digit", line);
  }
  return {TokenKind::kName, line, std::string(text.substr(0, bytes))};
}

}  // namespace lagoon::text::jinja
