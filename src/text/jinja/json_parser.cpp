// Reads JSON (RFC 8259) in one pass. Other readers turn integers beyond 64 bits into floats or
// refuse them, and templates print every digit; tokenizer_config.json has one of 31 digits as a
// rule ("model_max_length").
#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

#include "text/jinja/json.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

// Stops the parser; caught in parse_json.
struct BadJson {
  std::string reason;
  size_t at;
};

class JsonParser {
 public:
  explicit JsonParser(View text) : text_(text) {}

  Value run() {
    Value value = parse_value(0);
    skip_space();
    if (at_ < text_.size()) fail("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string reason) const { throw BadJson{std::move(reason), at_}; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  Value parse_value(int depth);
  Value parse_array(int depth);
  Value parse_object(int depth);
  Value parse_number();
  Value parse_word(View word, Value value);
  std::string parse_string();
  void parse_escape(std::string& out);
  uint32_t parse_hexadecimal();
  void skip_digits();

  View text_;
  size_t at_ = 0;
};

Value JsonParser::parse_value(int depth) {
  if (depth >= kMaxValueDepth) {
    fail(fmt::format("values nest more than {} levels deep", kMaxValueDepth));
  }
  skip_space();
  switch (peek()) {
    case '{':
      return parse_object(depth);
    case '[':
      return parse_array(depth);
    case '"':
      return parse_string();
    case 't':
      return parse_word("true", true);
    case 'f':
      return parse_word("false", false);
    case 'n':
      return parse_word("null", Null{});
    default:
      return parse_number();
  }
}

Value JsonParser::parse_word(View word, Value value) {
  if (!text_.substr(at_).starts_with(word)) fail("a value is expected");
  at_ += word.size();
  return value;
}

Value JsonParser::parse_array(int depth) {
  ++at_;
  List items;
  skip_space();
  if (take(']')) return items;
  do {
    items.push_back(parse_value(depth + 1));
    skip_space();
  } while (take(','));
  if (!take(']')) fail("',' or ']' is expected");
  return items;
}

Value JsonParser::parse_object(int depth) {
  ++at_;
  Dict items;
  skip_space();
  if (take('}')) return items;
  do {
    skip_space();
    if (peek() != '"') fail("a key in quotes is expected");
    std::string key = parse_string();
    skip_space();
    if (!take(':')) fail("':' is expected");
    items.set(std::move(key), parse_value(depth + 1));
    skip_space();
  } while (take(','));
  if (!take('}')) fail("',' or '}' is expected");
  return items;
}

void JsonParser::skip_digits() {
  const size_t start = at_;
  at_ = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
  if (at_ == start) fail("a value is expected");
}

Value JsonParser::parse_number() {
  const size_t start = at_;
  take('-');
  if (!take('0')) skip_digits();
  const size_t whole_end = at_;
  if (take('.')) skip_digits();
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (!take('+')) take('-');
    skip_digits();
  }
  const View number = text_.substr(start, at_ - start);
  if (at_ == whole_end) return Value::integer_text(number);
  double value = 0;
  const auto end = std::from_chars(number.data(), number.data() + number.size(), value);
  // Out of range: strtod gives inf or 0, as Python does.
  if (end.ec != std::errc()) value = std::strtod(std::string(number).c_str(), nullptr);
  return value;
}

std::string JsonParser::parse_string() {
  const size_t start = at_++;
  std::string out;
  for (;;) {
    const size_t from = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20) {
      ++at_;
    }
    out += text_.substr(from, at_ - from);
    if (at_ >= text_.size()) {
      at_ = start;
      fail("a string does not end");
    }
    if (take('"')) return out;
    if (text_[at_] != '\\') fail("a control character stands in a string");
    parse_escape(out);
  }
}

void JsonParser::parse_escape(std::string& out) {
  constexpr View kLetters = "\"\\/bfnrt";
  constexpr View kMeanings = "\"\\/\b\f\n\r\t";
  ++at_;
  const size_t simple = at_ < text_.size() ? kLetters.find(text_[at_]) : View::npos;
  if (simple != View::npos) {
    out += kMeanings[simple];
    ++at_;
    return;
  }
  if (!take('u')) fail("a string has an unknown escape");
  uint32_t code = parse_hexadecimal();
  if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
    at_ += 2;
    const uint32_t low = parse_hexadecimal();
    if (low < 0xDC00 || low >= 0xE000) fail("a string has half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xD800 && code < 0xE000) {
    fail("a string has half of a surrogate pair");
  }
  append_character(out, code);
}

uint32_t JsonParser::parse_hexadecimal() {
  const View digits = text_.substr(std::min(at_, text_.size()), 4);
  uint32_t code = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() < 4 || end.ptr != digits.data() + 4) fail("a \\u escape lacks its four digits");
  at_ += 4;
  return code;
}

}  // namespace

Result<Value> parse_json(View text) {
  if (!is_valid_utf8(text)) {
    return Error{ErrorCode::kInvalidArgument, "not valid JSON: it is not UTF-8"};
  }
  try {
    return JsonParser(text).run();
  } catch (const BadJson& bad) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("not valid JSON: {} at byte {}", bad.reason, bad.at)};
  }
}

}  // namespace lagoon::text::jinja
