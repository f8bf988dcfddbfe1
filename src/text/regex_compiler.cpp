#include <fmt/core.h>

#include <algorithm>

#include "text/regex.h"

namespace lagoon::text {
namespace {

using Kind = RegexNode::Kind;

constexpr std::ptrdiff_t kMostSets = 32;
constexpr size_t kMostInstructions = 4096;
constexpr size_t kMostSteps = 1'000'000;

bool may_be_empty(const RegexNode& node) {
  const auto empty = [](const RegexNode& child) { return may_be_empty(child); };
  const auto& children = node.children;
  switch (node.kind) {
    case Kind::kSet:
      return false;
    case Kind::kSequence:
      return std::all_of(children.begin(), children.end(), empty);
    case Kind::kAlternatives:
      return std::any_of(children.begin(), children.end(), empty);
    case Kind::kRepeat:
      return node.min == 0 || empty(children[0]);
    default:
      return true;
  }
}

bool is_unbounded(const RegexNode& node) {
  if (node.kind == Kind::kRepeat && node.max == RegexNode::kUnbounded) return true;
  return std::any_of(node.children.begin(), node.children.end(), is_unbounded);
}

}  // namespace

class RegexCompiler {
 public:
  Result<Regex> compile(const RegexNode& root) {
    if (may_be_empty(root)) return refuse("a match of the empty text");
    const std::vector<RegexNode> one = {root};
    const auto& alternatives = root.kind == Kind::kAlternatives ? root.children : one;
    if (alternatives.size() > 32) return refuse("more than 32 alternatives");
    for (size_t i = 0; i < alternatives.size(); ++i) {
      regex_.alternatives_.push_back(next());
      give_back_ = 0;
      LAGOON_RETURN_IF_ERROR(add(alternatives[i], true));
      emit({.op = Regex::Op::kMatch});
    }
    note_ascii();
    note_possible();
    return std::move(regex_);
  }

 private:
  static Error refuse(std::string_view what) {
    return {ErrorCode::kUnsupported, fmt::format("has {}", what)};
  }

  uint32_t next() const { return static_cast<uint32_t>(regex_.program_.size()); }
  uint32_t emit(const Regex::Instruction& instruction) {
    regex_.program_.push_back(instruction);
    return next() - 1;
  }
  void aim(uint32_t instruction) { regex_.program_[instruction].target = next(); }

  // What may begin a match of the node, and whether it may take nothing.
  struct Beginning {
    Regex::Start start;
    bool may_be_empty;
  };
  static void unite(Regex::Start& into, const Regex::Start& other) {
    into.ascii[0] |= other.ascii[0];
    into.ascii[1] |= other.ascii[1];
    into.wide |= other.wide;
  }
  static Beginning start_of(const RegexNode& node) {
    Beginning all{.start = {}, .may_be_empty = false};
    switch (node.kind) {
      case Kind::kSet:
        for (char32_t c = 0; c < 128; ++c) {
          if (node.set.contains(c)) all.start.ascii[c >> 6] |= uint64_t{1} << (c & 63);
        }
        all.start.wide = node.set.may_have_wide();
        return all;
      case Kind::kSequence:
        for (const RegexNode& child : node.children) {
          const Beginning one = start_of(child);
          unite(all.start, one.start);
          if (!one.may_be_empty) return all;
        }
        all.may_be_empty = true;
        return all;
      case Kind::kAlternatives:
        for (const RegexNode& child : node.children) {
          const Beginning one = start_of(child);
          unite(all.start, one.start);
          all.may_be_empty |= one.may_be_empty;
        }
        return all;
      case Kind::kRepeat:
        all = start_of(node.children[0]);
        all.may_be_empty |= node.min == 0;
        return all;
      default:
        all.may_be_empty = true;
        return all;
    }
  }

  // `last`: what comes after the node cannot fail, or not because of what a repetition took.
  Result<void> add(const RegexNode& node, bool last) {
    if (regex_.program_.size() > kMostInstructions) return refuse("too many repetitions");
    switch (node.kind) {
      case Kind::kSet:
        return add_set(node.set, 1, 1, last);
      case Kind::kSequence:
        return add_sequence(node.children, last);
      case Kind::kAlternatives:
        return add_alternatives(node.children, last);
      case Kind::kRepeat:
        return add_repeat(node, last);
      default:
        return add_look(node);
    }
  }

  static bool cannot_fail(const RegexNode& node) {
    switch (node.kind) {
      case Kind::kSequence:
        return std::all_of(node.children.begin(), node.children.end(), cannot_fail);
      case Kind::kAlternatives:
        return std::any_of(node.children.begin(), node.children.end(), cannot_fail);
      case Kind::kRepeat:
        return node.min == 0 || cannot_fail(node.children[0]);
      default:
        return false;
    }
  }

  // Whether it would be in vain for a repetition to give back characters to what comes next, since
  // that begins with none of them.
  static bool gives_nothing_back(const RegexNode& node, const RegexNode& next) {
    const bool takes_set = node.kind == Kind::kSet ||
                           (node.kind == Kind::kRepeat && node.children[0].kind == Kind::kSet);
    const bool wants_set = next.kind == Kind::kSet || (next.kind == Kind::kRepeat && next.min > 0 &&
                                                       next.children[0].kind == Kind::kSet);
    if (!takes_set || !wants_set) return false;
    const CharSet& taken = node.kind == Kind::kSet ? node.set : node.children[0].set;
    const CharSet& wanted = next.kind == Kind::kSet ? next.set : next.children[0].set;
    return !taken.may_share(wanted);
  }

  Result<void> note_unbounded(bool last) {
    if (!last && ++give_back_ > 1) {
      return refuse("more than one unbounded repetition that may have to give back");
    }
    return {};
  }

  Result<uint8_t> index_of(const CharSet& set) {
    auto& sets = regex_.sets_;
    const auto index = std::find(sets.begin(), sets.end(), set) - sets.begin();
    if (index == kMostSets) return refuse("more than 32 classes");
    if (static_cast<size_t>(index) == sets.size()) sets.push_back(set);
    return static_cast<uint8_t>(index);
  }

  Result<void> add_set(const CharSet& set, size_t min, size_t max, bool last) {
    if (max == RegexNode::kUnbounded) LAGOON_RETURN_IF_ERROR(note_unbounded(last));
    LAGOON_ASSIGN(const uint8_t index, index_of(set));
    const bool one = max == 1 && min <= 1;
    const bool run = max == RegexNode::kUnbounded && min <= 1;
    emit({.op = one   ? Regex::Op::kChar
                : run ? Regex::Op::kRun
                      : Regex::Op::kCounted,
          .keeps = last,
          .set = index,
          .min = min,
          .max = max});
    return {};
  }

  Result<void> add_sequence(const std::vector<RegexNode>& children, bool last) {
    for (size_t i = 0; i < children.size(); ++i) {
      const bool rest_holds =
          last && std::all_of(children.begin() + static_cast<std::ptrdiff_t>(i) + 1, children.end(),
                              cannot_fail);
      const bool apart =
          i + 1 < children.size() && gives_nothing_back(children[i], children[i + 1]);
      LAGOON_RETURN_IF_ERROR(add(children[i], rest_holds || apart));
    }
    return {};
  }

  // Skips what follows, which is optional, where the next character cannot begin it.
  uint32_t add_guard(const RegexNode& node) {
    regex_.starts_.push_back(start_of(node).start);
    return emit({.op = Regex::Op::kGuard, .set = static_cast<uint8_t>(regex_.starts_.size() - 1)});
  }

  Result<void> add_alternatives(const std::vector<RegexNode>& children, bool last) {
    std::vector<uint32_t> jumps;
    for (size_t i = 0; i < children.size(); ++i) {
      const bool is_last = i + 1 == children.size();
      const uint32_t split = is_last ? 0 : emit({.op = Regex::Op::kSplit});
      LAGOON_RETURN_IF_ERROR(add(children[i], last));
      if (is_last) break;
      jumps.push_back(emit({.op = Regex::Op::kJump}));
      aim(split);
    }
    for (const uint32_t jump : jumps) aim(jump);
    return {};
  }

  Result<void> add_repeat(const RegexNode& node, bool last) {
    const RegexNode& child = node.children[0];
    if (child.kind == Kind::kSet) return add_set(child.set, node.min, node.max, last);
    const bool unbounded = node.max == RegexNode::kUnbounded;
    if (may_be_empty(child)) return refuse("a repetition of what may be empty");
    if (unbounded && is_unbounded(child)) return refuse("an unbounded repetition in another");
    if (unbounded) LAGOON_RETURN_IF_ERROR(note_unbounded(last));
    for (size_t i = 0; i < node.min; ++i) LAGOON_RETURN_IF_ERROR(add(child, false));
    if (unbounded) {
      const uint32_t split = emit({.op = Regex::Op::kSplit});
      LAGOON_RETURN_IF_ERROR(add(child, false));
      emit({.op = Regex::Op::kJump, .target = split});
      aim(split);
      return {};
    }
    std::vector<uint32_t> skips;
    for (size_t i = node.min; i < node.max; ++i) {
      if (regex_.starts_.size() < 200 && !may_be_empty(child)) skips.push_back(add_guard(child));
      skips.push_back(emit({.op = Regex::Op::kSplit}));
      LAGOON_RETURN_IF_ERROR(add(child, false));
    }
    for (const uint32_t skip : skips) aim(skip);
    return {};
  }

  Result<void> add_look(const RegexNode& node) {
    const bool negative = node.kind == Kind::kNegativeLookahead;
    if (node.children[0].kind == Kind::kSet) {
      LAGOON_ASSIGN(const uint8_t set, index_of(node.children[0].set));
      emit({.op = negative ? Regex::Op::kNextIsNot : Regex::Op::kNextIs, .set = set});
      return {};
    }
    const uint32_t look = emit({.op = negative ? Regex::Op::kLookNot : Regex::Op::kLook});
    LAGOON_RETURN_IF_ERROR(add(node.children[0], true));
    emit({.op = Regex::Op::kMatch});
    aim(look);
    return {};
  }

  void note_ascii() {
    for (size_t set = 0; set < regex_.sets_.size(); ++set) {
      for (char32_t c = 0; c < 128; ++c) {
        if (regex_.sets_[set].contains(c)) regex_.ascii_sets_[c] |= 1U << set;
      }
    }
    regex_.classes_.fill(Regex::kWideClass);
    for (size_t c = 0; c < 128; ++c) {
      const auto same = std::find_if(
          representatives_.begin() + Regex::kWideClass + 1, representatives_.end(), [&](int other) {
            return regex_.ascii_sets_[static_cast<size_t>(other)] == regex_.ascii_sets_[c];
          });
      regex_.classes_[c] = static_cast<uint8_t>(same - representatives_.begin());
      if (same == representatives_.end()) representatives_.push_back(static_cast<int>(c));
    }
    regex_.class_count_ = representatives_.size();
  }

  // Fills possible_. The second byte is left out of it where trying all pairs would take long.
  void note_possible() {
    const size_t count = regex_.class_count_;
    const size_t pairs = count * count;
    const bool knows_second =
        pairs * regex_.alternatives_.size() * regex_.program_.size() <= kMostSteps;
    regex_.possible_.resize(pairs);
    for (size_t i = 0; i < pairs; ++i) {
      if (i / count == Regex::kEndClass) continue;
      if (!knows_second && i % count > 0) {
        regex_.possible_[i] = regex_.possible_[i - 1];
        continue;
      }
      std::vector<int> next = {representatives_[i / count]};
      if (knows_second) next.push_back(representatives_[i % count]);
      for (size_t k = 0; k < regex_.alternatives_.size(); ++k) {
        if (may_match(regex_.alternatives_[k], next)) regex_.possible_[i] |= 1U << k;
      }
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto* row = regex_.possible_.data() + regex_.classes_[byte] * count;
      regex_.begins_[byte] = std::any_of(row, row + count, [](uint32_t mask) { return mask != 0; });
    }
  }

  // Whether the program from `pc` on may match a text that begins with characters like these,
  // whatever comes after them. True also where that would be hard to tell.
  bool may_match(uint32_t pc, const std::vector<int>& next) {
    using Op = Regex::Op;
    struct State {
      uint32_t pc;
      size_t at;
    };
    std::vector<State> untried = {{.pc = pc, .at = 0}};
    std::vector<bool> seen(next.size() * regex_.program_.size());
    while (!untried.empty()) {
      const State state = untried.back();
      untried.pop_back();
      if (state.at == next.size()) return true;
      const size_t index = state.at * regex_.program_.size() + state.pc;
      if (seen[index]) continue;
      seen[index] = true;
      const Regex::Instruction& i = regex_.program_[state.pc];
      const auto go_on = [&](uint32_t to, size_t taken) {
        untried.push_back({.pc = to, .at = state.at + taken});
      };
      switch (i.op) {
        case Op::kChar:
        case Op::kRun:
        case Op::kCounted:
          for (size_t count = 0;; ++count) {
            if (count >= i.min) go_on(state.pc + 1, count);
            if (count == i.max) break;
            if (state.at + count == next.size()) return true;
            const int c = next[state.at + count];
            if (c == kWide && regex_.sets_[i.set].may_have_wide()) return true;
            if (c < 0 || !regex_.is_ascii_in(i.set, static_cast<unsigned char>(c))) break;
          }
          break;
        case Op::kGuard:
        case Op::kSplit:
          go_on(state.pc + 1, 0);
          go_on(i.target, 0);
          break;
        case Op::kJump:
        case Op::kLook:
        case Op::kLookNot:
          go_on(i.target, 0);
          break;
        case Op::kNextIs:
        case Op::kNextIsNot:
          go_on(state.pc + 1, 0);
          break;
        case Op::kMatch:
          return true;
      }
    }
    return false;
  }

  static constexpr int kEnd = -1;
  static constexpr int kWide = -2;
  // By class: an ASCII character of it, or the text's end, or all other characters.
  std::vector<int> representatives_ = {kEnd, kWide};
  Regex regex_;
  int give_back_ = 0;  // unbounded repetitions of this alternative that may have to give back
};

Result<Regex> Regex::compile(std::string_view pattern) {
  LAGOON_ASSIGN(const RegexNode root, parse_regex(pattern));
  return RegexCompiler().compile(root);
}

}  // namespace lagoon::text
