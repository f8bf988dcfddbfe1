// What turns tokens back into text, as the decoder of a tokenizer.json says: ByteLevel, or
// ByteFallback or neither, with Replace and Strip before and after, Fuse between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace lagoon::text {

struct StripStep {
  std::string content;  // one character
  size_t start = 0;     // at most so many of it are cut at the start of a text,
  size_t stop = 0;      // and so many at its end
};

using DecoderStep = std::variant<ReplaceStep, StripStep>;

struct DecoderRules {
  enum class Bytes {
    kNone,      // tokens are text
    kLevel,     // ByteLevel: tokens are bytes, written in its alphabet
    kFallback,  // ByteFallback: a run of tokens <0x..> is text if it is UTF-8, else a U+FFFD each
  };
  Bytes bytes = Bytes::kNone;
  std::vector<DecoderStep> on_tokens;  // each token by itself, before it becomes bytes
  std::vector<DecoderStep> on_pieces;  // kFallback: each token, and each run of bytes, after that
  std::vector<DecoderStep> on_text;    // all of it, joined
};

// The rules, and what they make of each token of a vocabulary.
class Decoder {
 public:
  Decoder(DecoderRules rules, const Vocabulary& vocabulary);

  const DecoderRules& rules() const { return rules_; }
  // What the token stands for before on_text; "" where no token has the id.
  std::string_view bytes(int32_t id) const;
  bool has(int32_t id) const { return kind(id) != Kind::kNoToken; }
  // kFallback: whether it is one byte of a character.
  bool is_byte(int32_t id) const { return kind(id) == Kind::kByte; }

 private:
  enum class Kind : uint8_t { kNoToken, kText, kByte };
  Kind kind(int32_t id) const {
    return id < 0 || static_cast<size_t>(id) >= kinds_.size() ? Kind::kNoToken
                                                              : kinds_[static_cast<size_t>(id)];
  }

  DecoderRules rules_;
  std::vector<std::string> bytes_;
  std::vector<Kind> kinds_;
};

// `text` after the steps, as one piece.
std::string apply_steps(std::string text, const std::vector<DecoderStep>& steps);

// One step on a text that comes in pieces: what it gives out joined is the step's result for the
// whole. The pieces are valid UTF-8.
class SteppedText {
 public:
  explicit SteppedText(const DecoderStep& step) : step_(&step) {}

  std::string push(std::string_view piece);
  std::string finish();

 private:
  std::string replace(const ReplaceStep& step, std::string_view piece);
  std::string strip(const StripStep& step, std::string_view piece);

  const DecoderStep* step_;
  std::string held_;      // Replace: what may be the start of a match
  size_t cut_ = 0;        // Strip: cut at the start so far
  bool in_text_ = false;  // Strip: the start is over
  size_t waiting_ = 0;    // Strip: of its character at the end so far, at most `stop`
};

}  // namespace lagoon::text
