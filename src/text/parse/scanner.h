// What the readers of literals share: a place in a text.
#pragma once

#include <string_view>

namespace lagoon::text::parse {

inline constexpr std::string_view kSpace = " \t\n\r\f\v";

// `text` without white space at both ends.
inline std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }
  // The next character, or 0 at the end.
  char peek() const { return done() ? '\0' : text_[at_]; }
  char next() { return done() ? '\0' : text_[at_++]; }
  bool take(char c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void skip(std::string_view characters) {
    while (!done() && characters.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  // Takes digits; false where there are none.
  bool digits() {
    const size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return at_ > begin;
  }

  size_t at() const { return at_; }
  std::string_view since(size_t begin) const { return text_.substr(begin, at_ - begin); }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  // The value of a digit of base 16, or -1.
  static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  // Takes `count` digits of base 16; -1 where they are not there.
  int hex(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      const int digit = hex_value(next());
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// Whether the digits of a JSON number are within a double's range, as readers of JSON expect.
bool fits_double(std::string_view number);

}  // namespace lagoon::text::parse
