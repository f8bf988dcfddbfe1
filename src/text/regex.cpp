#include "text/regex.h"

#include "text/unicode.h"

namespace lagoon::text {

// One attempt at one place. What is still to be tried stands on a stack of its own.
class Regex::Matcher {
 public:
  Matcher(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}

  // Whether the program from `pc` on matches at `at`; `at` is its end then.
  bool match(uint32_t pc, size_t& at) {
    const size_t bottom = stack_ == nullptr ? 0 : stack_->size();
    for (;;) {
      const bool matched = advance(pc, at);
      if (stack_ == nullptr) return matched;
      if (matched) {
        stack_->resize(bottom);
        return true;
      }
      if (stack_->size() == bottom) return false;
      pop(pc, at);
    }
  }

 private:
  // To go on at `pc` at text_[at], or, where `least` < at, at each character's border from `at`
  // down to `least`.
  struct Untried {
    uint32_t pc;
    size_t at;
    size_t least;
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  // Most attempts need no stack. It is kept from match to match, and empty between them.
  void push(const Untried& untried) {
    static thread_local std::vector<Untried> stack;
    stack_ = &stack;
    stack.push_back(untried);
  }

  void pop(uint32_t& pc, size_t& at) {
    Untried& top = stack_->back();
    pc = top.pc;
    at = top.at;
    const size_t next = top.at > top.least ? retreat(pc, top.at, top.least) : kNowhere;
    if (next == kNowhere) {
      stack_->pop_back();
    } else {
      top.at = next;
    }
  }

  // The last character's border before `at`, and not before `least`, where `pc` may go on.
  size_t retreat(uint32_t pc, size_t at, size_t least) const {
    const Instruction& next = regex_.program_[pc];
    const bool takes = (next.op == Op::kChar || next.op == Op::kRun) && next.min == 1;
    while (at > least) {
      at = previous_char(text_, at);
      const auto byte = static_cast<unsigned char>(text_[at]);
      if (!takes || byte >= 0x80 || regex_.is_ascii_in(next.set, byte)) return at;
    }
    return kNowhere;
  }

  // Goes on to kMatch (true) or to where it cannot (false).
  bool advance(uint32_t pc, size_t& at) {
    for (;; ++pc) {
      const Instruction& i = regex_.program_[pc];
      switch (i.op) {
        case Op::kChar: {
          const size_t length = char_in(i.set, at);
          if (length < i.min) return false;
          if (length > 0 && i.min == 0 && !i.keeps) push({.pc = pc + 1, .at = at, .least = at});
          at += length;
          break;
        }
        case Op::kRun:
          if (!take_run(i, pc, at)) return false;
          break;
        case Op::kCounted:
          if (!take_counted(i, pc, at)) return false;
          break;
        case Op::kGuard: {
          const bool possible = at < text_.size() &&
                                regex_.starts_[i.set].may_be(static_cast<unsigned char>(text_[at]));
          if (!possible) pc = i.target - 1;
          break;
        }
        case Op::kSplit:
          push({.pc = i.target, .at = at, .least = at});
          break;
        case Op::kJump:
          pc = i.target - 1;
          break;
        case Op::kLook:
        case Op::kLookNot: {
          size_t ahead = at;
          if (match(pc + 1, ahead) != (i.op == Op::kLook)) return false;
          pc = i.target - 1;
          break;
        }
        case Op::kNextIs:
        case Op::kNextIsNot:
          if ((char_in(i.set, at) > 0) != (i.op == Op::kNextIs)) return false;
          break;
        case Op::kMatch:
          return true;
      }
    }
  }

  // The bytes of the next character where it is in the set, else 0.
  size_t char_in(uint8_t set, size_t at) const {
    if (at >= text_.size()) return 0;
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return regex_.is_ascii_in(set, byte) ? 1 : 0;
    const ValidChar c = valid_char(text_, at);
    return regex_.sets_[set].contains(c.code_point) ? c.length : 0;
  }

  bool take_run(const Instruction& i, uint32_t pc, size_t& at) {
    const auto& sets = regex_.ascii_sets_;
    const uint32_t set = 1U << i.set;
    size_t end = at;
    for (;;) {
      while (end < text_.size() && (sets[static_cast<unsigned char>(text_[end])] & set) != 0) ++end;
      if (end == text_.size() || static_cast<unsigned char>(text_[end]) < 0x80) break;
      const size_t length = char_in(i.set, end);
      if (length == 0) break;
      end += length;
    }
    if (end - at < i.min) return false;
    if (!i.keeps && end > at) {
      give_back(pc + 1, end, i.min == 0 ? at : at + valid_char(text_, at).length);
    }
    at = end;
    return true;
  }

  bool take_counted(const Instruction& i, uint32_t pc, size_t& at) {
    size_t end = at;
    size_t least = at;
    size_t count = 0;
    for (; count < i.max; ++count) {
      const size_t length = char_in(i.set, end);
      if (length == 0) break;
      end += length;
      if (count < i.min) least = end;
    }
    if (count < i.min) return false;
    if (!i.keeps) give_back(pc + 1, end, least);
    at = end;
    return true;
  }

  // Notes that `pc` may go on at each character's border before `end`, down to `least`.
  void give_back(uint32_t pc, size_t end, size_t least) {
    const size_t at = retreat(pc, end, least);
    if (at != kNowhere) push({.pc = pc, .at = at, .least = least});
  }

  const Regex& regex_;
  std::string_view text_;
  std::vector<Untried>* stack_ = nullptr;
};

Regex::Match Regex::find(std::string_view text, size_t at) const {
  for (;;) {
    // A character where nothing can begin is passed byte by byte, as all its bytes are alike.
    while (at < text.size() && !begins_[static_cast<unsigned char>(text[at])]) ++at;
    if (at == text.size()) break;
    uint32_t alternatives = possible(text, at);
    for (; alternatives != 0; alternatives &= alternatives - 1) {
      size_t end = at;
      Matcher matcher(*this, text);
      if (matcher.match(alternatives_[static_cast<size_t>(__builtin_ctz(alternatives))], end)) {
        return {.begin = at, .end = end};
      }
    }
    ++at;
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  }
  return {.begin = text.size(), .end = text.size()};
}

}  // namespace lagoon::text
