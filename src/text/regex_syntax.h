// The syntax of the regular expressions that pre-tokenizers use, as a tree. What is read here means
// the same in Oniguruma, the engine of the Rust tokenizers library; anything else is refused.
//
//   a|b  ab  (?:a)  (?i:a)  (?=a)  (?!a)  a?  a*  a+  a{m}  a{m,n}
//   characters, \r \n \t and escaped punctuation, [...] with ranges, [^...], \s \S \p{L} \p{Lu} ...
//
// Repetition takes as much as it can. (?i:...) holds ASCII only, and no letters that fold to one
// character together (ss, st, ff, fi, fl).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/char_set.h"

namespace lagoon::text {

struct RegexNode {
  enum class Kind {
    kSet,           // one character of `set`
    kSequence,      // the children one after another; none: the empty text
    kAlternatives,  // the first of the children that lets the whole match
    kRepeat,        // the one child, `min` to `max` times
    kLookahead,     // the one child matches here; takes nothing
    kNegativeLookahead,
  };
  static constexpr size_t kUnbounded = SIZE_MAX;

  Kind kind = Kind::kSequence;
  CharSet set;
  std::vector<RegexNode> children;
  size_t min = 1;
  size_t max = 1;
};

// The error is a part of a sentence, such as "has \w, which ...", for the caller to complete.
Result<RegexNode> parse_regex(std::string_view pattern);

}  // namespace lagoon::text
