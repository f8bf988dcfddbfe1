#include "text/pretokenize.h"

#include <algorithm>

namespace lagoon::text {
namespace {

// The matches of a pattern and what lies between them, in order, without gaps.
class Segments {
 public:
  Segments(const SplitStep& split, std::string_view text) : split_(split), text_(text) {
    match_ = find(0);
  }

  struct Segment {
    std::string_view text;  // empty: no more
    bool is_match;
  };
  Segment next() {
    if (at_ == text_.size()) return {{}, false};
    const size_t begin = at_;
    if (begin < match_.begin) {
      at_ = match_.begin;
      return {text_.substr(begin, at_ - begin), split_.invert};
    }
    at_ = match_.end;
    match_ = find(at_);
    return {text_.substr(begin, at_ - begin), !split_.invert};
  }

 private:
  Regex::Match find(size_t at) const {
    if (const auto* regex = std::get_if<Regex>(&split_.pattern)) return regex->find(text_, at);
    const auto& literal = std::get<std::string>(split_.pattern);
    const size_t begin = text_.find(literal, at);
    if (begin == std::string_view::npos) return {text_.size(), text_.size()};
    return {begin, begin + literal.size()};
  }

  const SplitStep& split_;
  std::string_view text_;
  Regex::Match match_{};
  size_t at_ = 0;
};

bool joins(SplitBehavior behavior, bool before_is_match, bool is_match) {
  switch (behavior) {
    case SplitBehavior::kContiguous:
      return before_is_match == is_match;
    case SplitBehavior::kMergedWithPrevious:
      return !before_is_match && is_match;
    case SplitBehavior::kMergedWithNext:
      return before_is_match && !is_match;
    default:
      return false;
  }
}

}  // namespace

// ByteLevel that changes nothing is left out.
PreTokenizer::PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {
  std::erase_if(steps_, [](const PreTokenizerStep& step) {
    const auto* byte_level = std::get_if<ByteLevelStep>(&step);
    return byte_level != nullptr && !byte_level->add_prefix_space && !byte_level->word_regex;
  });
}

bool PreTokenizer::keeps_text() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const PreTokenizerStep& step) {
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      return split->behavior != SplitBehavior::kRemoved;
    }
    return !std::get<ByteLevelStep>(step).add_prefix_space;
  });
}

void PreTokenizer::split_from(size_t step, std::string_view piece, WordSink& sink) const {
  if (step == steps_.size()) return sink.word(piece);
  if (const auto* split = std::get_if<SplitStep>(&steps_[step])) {
    return split_at(*split, step + 1, piece, sink);
  }
  byte_level(std::get<ByteLevelStep>(steps_[step]), step + 1, piece, sink);
}

void PreTokenizer::split_at(const SplitStep& split, size_t next, std::string_view piece,
                            WordSink& sink) const {
  if (split.behavior == SplitBehavior::kIsolated) {
    if (const auto* regex = std::get_if<Regex>(&split.pattern)) {
      return isolate(*regex, next, piece, sink);
    }
  }
  Segments segments(split, piece);
  std::string_view pending;  // may still grow at its end
  bool pending_is_match = false;
  for (auto segment = segments.next(); !segment.text.empty(); segment = segments.next()) {
    if (split.behavior == SplitBehavior::kRemoved) {
      if (!segment.is_match) split_from(next, segment.text, sink);
      continue;
    }
    if (!pending.empty() && joins(split.behavior, pending_is_match, segment.is_match)) {
      pending = {pending.data(), pending.size() + segment.text.size()};
    } else {
      if (!pending.empty()) split_from(next, pending, sink);
      pending = segment.text;
    }
    pending_is_match = segment.is_match;
  }
  if (!pending.empty()) split_from(next, pending, sink);
}

void PreTokenizer::byte_level(const ByteLevelStep& step, size_t next, std::string_view piece,
                              WordSink& sink) const {
  std::string spaced;
  if (step.add_prefix_space && !piece.starts_with(' ')) {
    spaced = ' ';
    spaced += piece;
    piece = spaced;
  }
  if (!step.word_regex) return split_from(next, piece, sink);
  isolate(*step.word_regex, next, piece, sink);
}

// The matches, and what lies between them, go on to step `next`.
void PreTokenizer::isolate(const Regex& regex, size_t next, std::string_view piece,
                           WordSink& sink) const {
  const auto pass = [&](size_t begin, size_t end) {
    if (begin == end) return;
    const std::string_view part(piece.data() + begin, end - begin);
    if (next == steps_.size()) {
      sink.word(part);
    } else {
      split_from(next, part, sink);
    }
  };
  for (size_t at = 0; at < piece.size();) {
    const Regex::Match match = regex.find(piece, at);
    pass(at, match.begin);
    pass(match.begin, match.end);
    at = match.end;
  }
}

}  // namespace lagoon::text
