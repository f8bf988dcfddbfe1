#include <charconv>
#include <system_error>

#include "text/parse/literal.h"
#include "text/parse/scanner.h"

namespace lagoon::text::parse {

bool fits_double(std::string_view number) {
  double value = 0;
  return std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc();
}

namespace {

constexpr std::string_view kJsonSpace = " \t\n\r";

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : in_(text) {}

  std::optional<Literal> run() {
    TypeSet type;
    if (!value(type, 0) || !in_.done()) return {};
    return Literal{std::move(out_), type};
  }

 private:
  // Each reads one thing and appends its JSON; false where it is not there.
  bool value(TypeSet& type, int depth) {
    switch (in_.peek()) {
      case '{':
        type = TypeSet::kObject;
        return object(depth + 1);
      case '[':
        type = TypeSet::kArray;
        return array(depth + 1);
      case '"':
        type = TypeSet::kString;
        return string();
      case 't':
        type = TypeSet::kBoolean;
        return word("true");
      case 'f':
        type = TypeSet::kBoolean;
        return word("false");
      case 'n':
        type = TypeSet::kNull;
        return word("null");
      default:
        return number(type);
    }
  }

  bool word(std::string_view name) {
    out_ += name;
    return in_.take(name);
  }

  bool object(int depth) {
    if (depth > kMaxLiteralDepth || !in_.take('{')) return false;
    out_ += '{';
    in_.skip(kJsonSpace);
    for (bool first = true; !in_.take('}'); first = false) {
      if (!first && !separator()) return false;
      TypeSet ignored;
      if (in_.peek() != '"' || !string()) return false;
      in_.skip(kJsonSpace);
      if (!in_.take(':')) return false;
      out_ += ": ";
      in_.skip(kJsonSpace);
      if (!value(ignored, depth)) return false;
      in_.skip(kJsonSpace);
    }
    out_ += '}';
    return true;
  }

  bool array(int depth) {
    if (depth > kMaxLiteralDepth || !in_.take('[')) return false;
    out_ += '[';
    in_.skip(kJsonSpace);
    for (bool first = true; !in_.take(']'); first = false) {
      if (!first && !separator()) return false;
      TypeSet ignored;
      if (!value(ignored, depth)) return false;
      in_.skip(kJsonSpace);
    }
    out_ += ']';
    return true;
  }

  bool separator() {
    if (!in_.take(',')) return false;
    out_ += ", ";
    in_.skip(kJsonSpace);
    return true;
  }

  bool string() {
    const size_t begin = in_.at();
    in_.next();  // the quote
    while (!in_.take('"')) {
      if (in_.done()) return false;
      const char c = in_.next();
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    out_ += in_.since(begin);
    return true;
  }

  bool escape() {
    const char c = in_.next();
    if (c != 'u') return c != '\0' && std::string_view("\"\\/bfnrt").find(c) != std::string::npos;
    const int unit = in_.hex(4);
    if (unit >= 0xD800 && unit < 0xDC00) {
      if (!in_.take("\\u")) return false;
      const int low = in_.hex(4);
      return low >= 0xDC00 && low < 0xE000;
    }
    return unit >= 0 && (unit < 0xDC00 || unit >= 0xE000);
  }

  bool number(TypeSet& type) {
    const size_t begin = in_.at();
    type = TypeSet::kInteger;
    in_.take('-');
    if (!in_.take('0') && !in_.digits()) return false;
    if (in_.take('.')) {
      type = TypeSet::kNumber;
      if (!in_.digits()) return false;
    }
    if (in_.take('e') || in_.take('E')) {
      type = TypeSet::kNumber;
      if (!in_.take('+')) in_.take('-');
      if (!in_.digits()) return false;
    }
    out_ += in_.since(begin);
    return fits_double(in_.since(begin));
  }

  Scanner in_;
  std::string out_;
};

}  // namespace

std::optional<Literal> read_json(std::string_view text) {
  return JsonReader(trimmed(text)).run();
}

}  // namespace lagoon::text::parse
