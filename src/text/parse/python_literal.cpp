#include <algorithm>
#include <charconv>

#include "base/json_escape.h"
#include "base/utf8.h"
#include "text/parse/literal.h"
#include "text/parse/scanner.h"

namespace lagoon::text::parse {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || Scanner::is_digit(c) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Appends a code point; false for what is none.
bool append_character(std::string& out, int64_t c) {
  if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
  append_utf8(out, static_cast<char32_t>(c));
  return true;
}

class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : in_(text) {}

  // A value, or a tuple without parentheses.
  std::optional<Literal> run() {
    TypeSet type;
    if (!value(type)) return {};
    space();
    if (in_.peek() == ',') {
      type = TypeSet::kArray;
      out_.insert(0, 1, '[');
      while (in_.take(',')) {
        space();
        if (in_.done()) break;
        TypeSet ignored;
        out_ += ", ";
        if (!value(ignored)) return {};
        space();
      }
      out_ += ']';
    }
    if (!in_.done()) return {};
    return Literal{std::move(out_), type};
  }

 private:
  // A line ends an expression that is in no bracket.
  void space() { in_.skip(depth_ > 0 ? " \t\f\n\r" : " \t\f"); }

  // Each reads one thing and appends its JSON; false where it is not there.
  bool value(TypeSet& type) {
    switch (in_.peek()) {
      case '(':
        return parenthesis(type);
      case '[':
        type = TypeSet::kArray;
        return list();
      case '{':
        type = TypeSet::kObject;
        return dict();
      default:
        break;
    }
    const char c = in_.peek();
    if (Scanner::is_digit(c) || c == '.' || c == '-' || c == '+') return number(type);
    if (const char* word = constant(type)) {
      out_ += word;
      return true;
    }
    type = TypeSet::kString;
    std::string text;
    if (!strings(text)) return false;
    append_string(text);
    return true;
  }

  void append_string(std::string_view text) {
    out_ += '"';
    append_json_escaped(out_, text);
    out_ += '"';
  }

  // The JSON of None, True and False, or null.
  const char* constant(TypeSet& type) {
    struct Constant {
      const char* name;
      const char* json;
      TypeSet type;
    };
    static constexpr Constant kConstants[] = {{"None", "null", TypeSet::kNull},
                                              {"True", "true", TypeSet::kBoolean},
                                              {"False", "false", TypeSet::kBoolean}};
    for (const Constant& constant : kConstants) {
      if (!in_.take(constant.name)) continue;
      type = constant.type;
      return is_name_character(in_.peek()) ? nullptr : constant.json;
    }
    return nullptr;
  }

  bool open(char bracket) {
    if (++depth_ > kMaxLiteralDepth || !in_.take(bracket)) return false;
    space();
    return true;
  }

  bool close(char bracket) {
    if (!in_.take(bracket)) return false;
    --depth_;
    return true;
  }

  // After an item: a comma, or the bracket next.
  bool after_item(char bracket, bool& comma) {
    space();
    comma = in_.take(',');
    space();
    return comma || in_.peek() == bracket;
  }

  bool list() {
    if (!open('[')) return false;
    out_ += '[';
    if (!items(']')) return false;
    out_ += ']';
    return true;
  }

  bool items(char bracket) {
    for (bool first = true; !close(bracket); first = false) {
      TypeSet ignored;
      bool comma = false;
      if (!first) out_ += ", ";
      if (!value(ignored) || !after_item(bracket, comma)) return false;
    }
    return true;
  }

  // (1) is 1, (1,) and () are tuples.
  bool parenthesis(TypeSet& type) {
    if (!open('(')) return false;
    const size_t begin = out_.size();
    bool comma = true;
    if (in_.peek() != ')' && (!value(type) || !after_item(')', comma))) return false;
    if (!comma) return close(')');
    type = TypeSet::kArray;
    out_.insert(begin, 1, '[');
    if (in_.peek() != ')') out_ += ", ";
    if (!items(')')) return false;
    out_ += ']';
    return true;
  }

  bool dict() {
    if (!open('{')) return false;
    out_ += '{';
    for (bool first = true; !close('}'); first = false) {
      TypeSet ignored;
      bool comma = false;
      if (!first) out_ += ", ";
      if (!key()) return false;
      space();
      if (!in_.take(':')) return false;
      out_ += ": ";
      space();
      if (!value(ignored) || !after_item('}', comma)) return false;
    }
    out_ += '}';
    return true;
  }

  // JSON has strings as keys alone: 1 becomes "1", None "null", as in json.dumps.
  bool key() {
    const char c = in_.peek();
    if (c == '(' || c == '[' || c == '{') return false;
    const size_t begin = out_.size();
    TypeSet type;
    if (!value(type)) return false;
    if (type == TypeSet(TypeSet::kString)) return true;
    out_.insert(begin, 1, '"');
    out_ += '"';
    return true;
  }

  bool number(TypeSet& type) {
    std::string text;
    if (in_.take('-')) {
      text = "-";
    } else {
      in_.take('+');
    }
    space();
    const bool fine = in_.peek() == '0' && based(text) ? true : decimal(text, type);
    if (type.empty()) type = TypeSet::kInteger;
    if (!fine || is_name_character(in_.peek()) || !fits_double(text)) return false;
    out_ += text;
    return true;
  }

  // 0x1F, 0o17, 0b11, of 64 bits.
  bool based(std::string& text) {
    const Scanner before = in_;
    in_.next();
    const char letter = in_.next();
    const int base = letter == 'x' || letter == 'X'   ? 16
                     : letter == 'o' || letter == 'O' ? 8
                     : letter == 'b' || letter == 'B' ? 2
                                                      : 0;
    uint64_t value = 0;
    std::string digits;
    if (base != 0) {
      in_.take('_');
      while (Scanner::hex_value(in_.peek()) >= 0) {
        digits += in_.next();
        if (in_.peek() == '_') in_.next();
      }
    }
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, std::max(base, 2));
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
      in_ = before;
      return false;
    }
    text += std::to_string(value);
    return true;
  }

  // Digits with single underscores between them.
  bool digits(std::string& text) {
    size_t begin = in_.at();
    if (!in_.digits()) return false;
    text += in_.since(begin);
    while (in_.take('_')) {
      begin = in_.at();
      if (!in_.digits()) return false;
      text += in_.since(begin);
    }
    return true;
  }

  bool decimal(std::string& text, TypeSet& type) {
    type = TypeSet::kInteger;
    std::string whole;
    const bool has_whole = Scanner::is_digit(in_.peek());
    if (has_whole && !digits(whole)) return false;
    std::string rest;
    if (in_.take('.')) {
      type = TypeSet::kNumber;
      rest = ".";
      if (Scanner::is_digit(in_.peek())) {
        if (!digits(rest)) return false;
      } else if (has_whole) {
        rest += '0';
      } else {
        return false;
      }
    }
    if ((has_whole || !rest.empty()) && (in_.take('e') || in_.take('E'))) {
      type = TypeSet::kNumber;
      rest += 'e';
      if (in_.take('-')) {
        rest += '-';
      } else {
        in_.take('+');
      }
      if (!digits(rest)) return false;
    }
    if (!has_whole && rest.empty()) return false;
    const size_t zeros = std::min(whole.find_first_not_of('0'), whole.size());
    // 007 is no number in Python; 007.5 and 000 are.
    if (rest.empty() && zeros > 0 && zeros < whole.size()) return false;
    whole.erase(0, zeros);
    text += (whole.empty() ? "0" : whole) + rest;
    return true;
  }

  // Strings one after the other are one.
  bool strings(std::string& text) {
    if (!string(text)) return false;
    while (true) {
      const Scanner before = in_;
      space();
      const char c = in_.peek();
      if (c != '"' && c != '\'' && !is_name_character(c)) {
        in_ = before;
        return true;
      }
      if (!string(text)) return false;
    }
  }

  bool string(std::string& text) {
    const bool raw = in_.take('r') || in_.take('R');
    if (!raw && !in_.take('u')) in_.take('U');
    const char quote = in_.next();
    if (quote != '"' && quote != '\'') return false;
    const std::string_view three = quote == '"' ? R"(""")" : "'''";
    bool tripled = false;
    if (in_.take(quote)) {
      tripled = in_.take(quote);
      if (!tripled) return true;  // an empty string
    }
    while (!(tripled ? in_.take(three) : in_.take(quote))) {
      if (in_.done()) return false;
      const char c = in_.next();
      if (c == '\\') {
        if (raw ? !raw_pair(text, tripled) : !escape(text)) return false;
      } else if (!tripled && (c == '\n' || c == '\r')) {
        return false;
      } else {
        text += c;
      }
    }
    return true;
  }

  bool raw_pair(std::string& text, bool tripled) {
    if (in_.done()) return false;
    const char c = in_.next();
    if (!tripled && (c == '\n' || c == '\r')) return false;
    text += '\\';
    text += c;
    return true;
  }

  bool escape(std::string& text) {
    if (in_.done()) return false;
    const char c = in_.next();
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      text += kMeanings[at];
      return true;
    }
    switch (c) {
      case '\r':
        in_.take('\n');
        return true;
      case '\n':
        return true;
      case 'x':
        return append_character(text, in_.hex(2));
      case 'u':
        return append_character(text, in_.hex(4));
      case 'U':
        return long_escape(text);
      case 'N':
        return false;
      default:
        break;
    }
    if (c >= '0' && c <= '7') return octal(text, c);
    text += '\\';  // Python leaves an escape that it does not know as it is
    text += c;
    return true;
  }

  bool long_escape(std::string& text) {
    const int high = in_.hex(4);
    const int low = in_.hex(4);
    return high >= 0 && low >= 0 && append_character(text, int64_t{high} * 65536 + low);
  }

  bool octal(std::string& text, char first) {
    int value = first - '0';
    for (int i = 0; i < 2 && in_.peek() >= '0' && in_.peek() <= '7'; ++i) {
      value = value * 8 + (in_.next() - '0');
    }
    return append_character(text, value);
  }

  Scanner in_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::optional<Literal> read_python(std::string_view text) {
  return PythonReader(trimmed(text)).run();
}

}  // namespace lagoon::text::parse
