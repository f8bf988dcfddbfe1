// A set of characters, as a class of a regular expression names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace lagoon::text {

class CharSet {
 public:
  void add_range(char32_t first, char32_t last);
  void add(char32_t c) { add_range(c, c); }
  void add_space();      // \s
  void add_non_space();  // \S
  // "L", "Lu" and so on, as in \p{Lu}; false where there is no such category.
  bool add_category(std::string_view name);
  void negate() { negated_ = !negated_; }
  bool operator==(const CharSet&) const = default;
  // False only where no character is in both. It is not told by all characters one by one, so it
  // may be true without reason.
  bool may_share(const CharSet& other) const;
  // The same for the characters that are not ASCII.
  bool may_have_wide() const;

  bool contains(char32_t c) const {
    return (in_ranges(c) || (categories_ >> static_cast<int>(category(c)) & 1) != 0) != negated_;
  }

 private:
  bool in_ranges(char32_t c) const;
  // As contains() for a character of the category that is in the same ranges as `c`.
  bool would_contain(char32_t c, int kind) const {
    return (in_ranges(c) || (categories_ >> kind & 1) != 0) != negated_;
  }

  uint32_t categories_ = 0;  // a bit each
  std::vector<std::pair<char32_t, char32_t>> ranges_;
  bool negated_ = false;
};

}  // namespace lagoon::text
