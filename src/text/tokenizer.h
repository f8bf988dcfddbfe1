// BPE tokenizer of a tokenizer.json, byte-level or of characters, exact with the Rust `tokenizers`
// library for the kinds it accepts (others are refused by name). Immutable after load; all methods
// may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/decoder.h"
#include "text/utf8_repair.h"

namespace lagoon::text {

class Tokenizer {
 public:
  // Reads tokenizer.json; errors name the file and what in it is wrong or not understood.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);
  // The same from the file's content; `name` stands in errors.
  static Result<std::unique_ptr<Tokenizer>> parse(std::string_view json, const std::string& name);
  ~Tokenizer();

  // Token ids of UTF-8 text; added tokens (special and not) are recognised in it, and nothing is
  // put in front. Invalid UTF-8 is read as U+FFFD, as a Rust string conversion would.
  std::vector<int32_t> encode(std::string_view text) const;

  // Bytes a token stands for ("" for an id outside the vocabulary). May be part of a character.
  // A few decoders change the text as a whole (white space at its start): a Detokenizer does that.
  std::string_view token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view content) const;
  int32_t vocab_size() const;  // highest id + 1
  // No token stands for more bytes of text than this, so a text of n bytes has at least n / this
  // tokens; 0 where no such bound is known (see is_lossless()).
  size_t most_bytes_of_a_token() const;
  // The tokens that the file's post-processor puts in front of a plain text (real Laguna files:
  // 〈|EOS|〉; a rendered chat has it already). encode() leaves them out.
  std::span<const int32_t> prefix() const;
  // Puts prefix() in front of the tokens of a plain text, unless they begin with it already.
  void add_prefix(std::vector<int32_t>& ids) const;
  const Decoder& decoder() const;
  // Whether the ids of a text always decode to the text: nothing is normalized, removed, stripped
  // or put in front.
  bool is_lossless() const;

 private:
  Tokenizer();
  struct Impl;
  static std::unique_ptr<Tokenizer> make(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns tokens back into text piece by piece: the pieces joined are what the whole decodes to. A
// piece never ends inside a UTF-8 character: bytes that may still become one are held back. Bytes
// that never will are given out as U+FFFD. Where the decoder knows single bytes as tokens <0x..>,
// a run of them is held back up to its end, since it is text only as a whole.
class Detokenizer {
 public:
  // Special tokens yield no text where skip_special. The tokenizer outlives this.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);
  std::string push(int32_t id);
  // What is still held back (an unfinished character becomes U+FFFD).
  std::string finish();

 private:
  std::string push_fallback(int32_t id);
  std::string end_run();
  std::string replacement() const;

  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Repair utf8_;  // of tokens that are bytes
  // A run of byte tokens; up to where it is UTF-8; whether it can never be.
  std::string run_;
  size_t checked_ = 0;
  bool broken_ = false;
  std::vector<SteppedText> on_text_;
};

}  // namespace lagoon::text
