// Matching of the regular expressions of text/regex_syntax.h: backtracking, leftmost, the first
// alternative that matches, each repetition as long as it can be. Immutable; any thread may match.
//
// Time: at most one unbounded repetition of an alternative may have to give back what it took (a
// pattern with more is refused), so trying one place of a text takes time linear in what follows.
// No memory of the program's stack is used by how long a text is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex_syntax.h"

namespace lagoon::text {

class Regex {
 public:
  // The error is a part of a sentence that says what in the pattern is not understood. A pattern
  // that matches the empty text is refused.
  static Result<Regex> compile(std::string_view pattern);

  struct Match {
    size_t begin;  // text.size() where there is none
    size_t end;
  };
  // The leftmost match that begins at or after `at`, which is at a character's border. `text` is
  // valid UTF-8.
  Match find(std::string_view text, size_t at) const;

 private:
  friend class RegexCompiler;
  enum class Op : uint8_t {
    kChar,     // a character of set `set`; where min is 0, or none
    kRun,      // as many characters of set `set` as there are, at least min, which is 0 or 1
    kCounted,  // characters of set `set`, min to max of them
    kGuard,    // where the next character cannot begin what follows, go on at `target`
    kSplit,    // go on; if that fails, go on at `target`
    kJump,     // go on at `target`
    kLook,     // what follows up to its kMatch must match here, then go on at `target`
    kLookNot,  // the same, must not match
    kNextIs,   // the next character is of set `set`; takes nothing
    kNextIsNot,
    kMatch,
  };
  struct Instruction {
    Op op;
    bool keeps = false;  // giving back what it took would be in vain
    uint8_t set = 0;     // an index of sets_; kGuard: of starts_
    uint32_t target = 0;
    size_t min = 1;
    size_t max = 1;
  };
  // Which characters something may begin with.
  struct Start {
    std::array<uint64_t, 2> ascii{};
    bool wide = false;  // any that is not ASCII
    bool may_be(unsigned char byte) const {
      return byte >= 0x80 ? wide : (ascii[byte >> 6] >> (byte & 63) & 1) != 0;
    }
  };
  class Matcher;

  // Which alternatives may match at text[at], as far as this byte and the next tell.
  uint32_t possible(std::string_view text, size_t at) const {
    const size_t first = classes_[static_cast<unsigned char>(text[at])];
    const size_t second =
        at + 1 < text.size() ? classes_[static_cast<unsigned char>(text[at + 1])] : kEndClass;
    return possible_[first * class_count_ + second];
  }

  bool is_ascii_in(uint8_t set, unsigned char byte) const {
    return (ascii_sets_[byte] >> set & 1) != 0;
  }

  static constexpr size_t kEndClass = 0;
  static constexpr uint8_t kWideClass = 1;

  std::vector<Instruction> program_;
  std::vector<uint32_t> alternatives_;  // where in the program each begins
  std::vector<CharSet> sets_;
  std::array<uint32_t, 256> ascii_sets_{};  // by byte: the sets an ASCII character is in, else 0
  std::array<uint8_t, 256> classes_{};      // by byte: ASCII characters of one class are in the
                                            // same sets, and all bytes of others are in one class
  std::array<bool, 256> begins_{};          // by byte: whether any alternative may begin with it
  size_t class_count_ = 0;
  std::vector<uint32_t> possible_;  // by class of a byte and of the next: a bit an alternative
  std::vector<Start> starts_;
};

}  // namespace lagoon::text
