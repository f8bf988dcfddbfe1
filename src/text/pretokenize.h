// Cuts text into the words that BPE works on, as the pre-tokenizers of a tokenizer.json do that
// Lagoon knows: Split at a regular expression or a string, Digits, ByteLevel, one after another.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"

namespace lagoon::text {

// What becomes of the matches of a Split.
enum class SplitBehavior {
  kRemoved,
  kIsolated,            // each a word
  kMergedWithPrevious,  // with what is before it, unless that is a match
  kMergedWithNext,      // with what comes after it, unless that is a match
  kContiguous,          // neighbouring matches are one word
};

struct SplitStep {
  std::variant<Regex, std::string> pattern;  // the string is not empty
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what lies between matches is the match
};

struct ByteLevelStep {
  bool add_prefix_space = false;    // in front of each piece that does not begin with a space
  std::optional<Regex> word_regex;  // use_regex
};

using PreTokenizerStep = std::variant<SplitStep, ByteLevelStep>;

// What takes the words one by one.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view word) = 0;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);

  // `text` is valid UTF-8. No word is empty; words are parts of `text`, or of a copy that lives
  // during the call.
  void split(std::string_view text, WordSink& sink) const { split_from(0, text, sink); }

  // Whether the words joined are the text.
  bool keeps_text() const;

 private:
  void split_from(size_t step, std::string_view piece, WordSink& sink) const;
  void split_at(const SplitStep& split, size_t next, std::string_view piece, WordSink& sink) const;
  void isolate(const Regex& regex, size_t next, std::string_view piece, WordSink& sink) const;
  void byte_level(const ByteLevelStep& step, size_t next, std::string_view piece,
                  WordSink& sink) const;

  std::vector<PreTokenizerStep> steps_;
};

}  // namespace lagoon::text
