// What is done to text before it is cut into words: NFC, Replace and Prepend of a tokenizer.json,
// one after another.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lagoon::text {

struct NfcStep {};

struct ReplaceStep {
  std::string pattern;  // plain text, not empty
  std::string content;
};

struct PrependStep {
  std::string content;  // in front of a text that is not empty
};

using NormalizerStep = std::variant<NfcStep, ReplaceStep, PrependStep>;

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, and so is the result.
  std::string apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// `text` with each occurrence of the pattern, from the left and apart, replaced.
std::string replace_all(std::string_view text, const ReplaceStep& step);

}  // namespace lagoon::text
