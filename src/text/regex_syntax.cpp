#include "text/regex_syntax.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/utf8.h"

namespace lagoon::text {
namespace {

using Kind = RegexNode::Kind;

constexpr int kMostNesting = 16;
constexpr size_t kMostRepetitions = 1000;

bool is_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

Error unknown(std::string_view what) {
  return {ErrorCode::kUnsupported, fmt::format("has {}", what)};
}

RegexNode make(Kind kind, std::vector<RegexNode> children = {}) {
  RegexNode node;
  node.kind = kind;
  node.children = std::move(children);
  return node;
}

RegexNode make_set(CharSet set) {
  RegexNode node;
  node.kind = Kind::kSet;
  node.set = std::move(set);
  return node;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<RegexNode> parse() {
    LAGOON_ASSIGN(RegexNode node, alternatives(0, false));
    if (!at_end()) return unknown("a ) without its (");
    return node;
  }

 private:
  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view part) const { return pattern_.substr(at_).starts_with(part); }
  bool take(std::string_view part) {
    if (!next_is(part)) return false;
    at_ += part.size();
    return true;
  }
  char32_t take_char() {
    const ValidChar c = valid_char(pattern_, at_);
    at_ += c.length;
    return c.code_point;
  }

  Result<RegexNode> alternatives(int depth, bool folded) {
    if (depth > kMostNesting) return unknown("groups nested too deep");
    RegexNode node = make(Kind::kAlternatives);
    do {
      LAGOON_ASSIGN(RegexNode one, sequence(depth, folded));
      node.children.push_back(std::move(one));
    } while (take("|"));
    if (node.children.size() > 1) return node;
    RegexNode only = std::move(node.children[0]);
    return only;
  }

  Result<RegexNode> sequence(int depth, bool folded) {
    RegexNode node = make(Kind::kSequence);
    char32_t folded_before = 0;
    while (!at_end() && !next_is("|") && !next_is(")")) {
      const char32_t first = valid_char(pattern_, at_).code_point;
      if (folded) LAGOON_RETURN_IF_ERROR(check_folding(folded_before, first));
      folded_before = first;
      LAGOON_ASSIGN(RegexNode one, atom(depth, folded));
      LAGOON_ASSIGN(RegexNode repeated, repetition(std::move(one)));
      if (folded && repeated.kind == Kind::kRepeat) return unknown("a repetition in (?i:...)");
      node.children.push_back(std::move(repeated));
    }
    return node;
  }

  // Case folding may take two letters for one character: those pairs are refused.
  static Result<void> check_folding(char32_t before, char32_t c) {
    if (c >= 0x80 || (!is_letter(c) && !is_digit(c) && c != '\'' && c != ' ')) {
      return unknown("more than ASCII letters, digits, ' and spaces in (?i:...)");
    }
    const std::string pair = {static_cast<char>(before | 0x20), static_cast<char>(c | 0x20)};
    for (const std::string_view folding : {"ss", "st", "ff", "fi", "fl"}) {
      if (pair == folding) return unknown(fmt::format("{} in (?i:...)", pair));
    }
    return {};
  }

  Result<RegexNode> atom(int depth, bool folded) {
    if (take("(?:")) return group(depth, folded, Kind::kSequence);
    if (take("(?i:")) return group(depth, true, Kind::kSequence);
    if (take("(?=")) return group(depth, folded, Kind::kLookahead);
    if (take("(?!")) return group(depth, folded, Kind::kNegativeLookahead);
    if (next_is("(")) {
      return unknown(fmt::format("{}", utf8_prefix(pattern_.substr(at_), 3)));
    }
    if (take("[")) return char_class();
    CharSet set;
    if (take("\\")) {
      if (!escape(set).ok()) return escape_error();
      return make_set(std::move(set));
    }
    const char32_t c = take_char();
    if (c < 0x80 &&
        std::string_view(".^$*+?{}]").find(static_cast<char>(c)) != std::string_view::npos) {
      return unknown(fmt::format("{}", static_cast<char>(c)));
    }
    set.add(c);
    if (folded && is_letter(c)) add_other_cases(set, c | 0x20);
    return make_set(std::move(set));
  }

  static void add_other_cases(CharSet& set, char32_t lower) {
    set.add(lower);
    set.add(lower - 'a' + 'A');
    if (lower == 's') set.add(0x17F);   // long s
    if (lower == 'k') set.add(0x212A);  // the kelvin sign
  }

  Result<RegexNode> group(int depth, bool folded, Kind kind) {
    LAGOON_ASSIGN(RegexNode inside, alternatives(depth + 1, folded));
    if (!take(")")) return unknown("a ( without its )");
    if (kind == Kind::kSequence) return inside;
    std::vector<RegexNode> children;
    children.push_back(std::move(inside));
    return make(kind, std::move(children));
  }

  Error escape_error() const { return unknown(fmt::format("\\{}", escaped_)); }

  // Adds what stands behind a backslash; the character where it is a single one, else nothing.
  Result<char32_t> escape(CharSet& set) {
    constexpr char32_t kSeveral = 0x110000;
    const size_t begin = at_;
    const auto refuse = [&] {
      const size_t close = pattern_.find('}', begin);
      const bool property = pattern_.substr(begin).starts_with("p{") && close < begin + 40;
      escaped_ = property ? pattern_.substr(begin, close + 1 - begin)
                 : begin == pattern_.size()
                     ? std::string_view()
                     : pattern_.substr(begin, valid_char(pattern_, begin).length);
      return Error{ErrorCode::kUnsupported, {}};
    };
    if (at_end()) return refuse();
    if (take("p{")) {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) return refuse();
      if (!set.add_category(pattern_.substr(at_, close - at_))) return refuse();
      at_ = close + 1;
      return kSeveral;
    }
    char32_t c = take_char();
    if (c == 's' || c == 'S') {
      c == 's' ? set.add_space() : set.add_non_space();
      return kSeveral;
    }
    if (c == 'r') c = '\r';
    if (c == 'n') c = '\n';
    if (c == 't') c = '\t';
    // Other letters and digits mean something else; punctuation stands for itself.
    if (c >= 0x80 || is_letter(c) || is_digit(c) || c == '_') return refuse();
    set.add(c);
    return c;
  }

  Result<RegexNode> char_class() {
    CharSet set;
    const bool negated = take("^");
    bool empty = true;
    while (!take("]")) {
      if (at_end()) return unknown("a [ without its ]");
      if (next_is("[") || next_is("&&")) return unknown("a class in a class");
      char32_t first = 0;
      bool single = true;
      if (take("\\")) {
        const auto escaped = escape(set);
        if (!escaped.ok()) return escape_error();
        first = *escaped;
        single = first <= 0x10FFFF;
      } else {
        first = take_char();
        // Elsewhere than at an end a hyphen is part of a range.
        if (first == '-' && !empty && !next_is("]")) return unknown("a bare - in a class");
        set.add(first);
      }
      empty = false;
      if (!next_is("-") || next_is("-]")) continue;
      LAGOON_RETURN_IF_ERROR(range_from(single ? first : 0x110000, set));
    }
    if (empty) return unknown("an empty class");
    if (negated) set.negate();
    return make_set(std::move(set));
  }

  // The rest of a range that begins with `first`, at its hyphen.
  Result<void> range_from(char32_t first, CharSet& set) {
    take("-");
    CharSet ignored;
    char32_t last = 0x110000;
    if (at_end()) return unknown("a [ without its ]");
    if (take("\\")) {
      const auto escaped = escape(ignored);
      if (!escaped.ok()) return escape_error();
      last = *escaped;
    } else if (!next_is("[")) {
      last = take_char();
    }
    if (last > 0x10FFFF || first > last) return unknown("a range in a class that is none");
    set.add_range(first, last);
    return {};
  }

  Result<size_t> number() {
    size_t value = 0;
    const size_t begin = at_;
    while (!at_end() && is_digit(static_cast<unsigned char>(pattern_[at_]))) {
      value = value * 10 + static_cast<size_t>(pattern_[at_++] - '0');
      if (value > kMostRepetitions) return unknown("a repetition of more than 1000");
    }
    if (at_ == begin) return unknown("a { that begins no repetition");
    return value;
  }

  Result<RegexNode> repetition(RegexNode one) {
    size_t min = 1;
    size_t max = 1;
    if (take("?")) {
      min = 0;
    } else if (take("*")) {
      min = 0;
      max = RegexNode::kUnbounded;
    } else if (take("+")) {
      max = RegexNode::kUnbounded;
    } else if (take("{")) {
      LAGOON_ASSIGN(min, number());
      max = min;
      if (take(",")) {
        LAGOON_ASSIGN(max, number());
      }
      if (!take("}") || max < min || max == 0) return unknown("a { that begins no repetition");
    } else {
      return one;
    }
    if (next_is("?") || next_is("+") || next_is("*") || next_is("{")) {
      return unknown("a repetition that is lazy, possessive or doubled");
    }
    if (one.kind == Kind::kLookahead || one.kind == Kind::kNegativeLookahead) {
      return unknown("a repeated look-ahead");
    }
    std::vector<RegexNode> children;
    children.push_back(std::move(one));
    RegexNode node = make(Kind::kRepeat, std::move(children));
    node.min = min;
    node.max = max;
    return node;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string_view escaped_;  // the last escape that was refused
};

}  // namespace

Result<RegexNode> parse_regex(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace lagoon::text
