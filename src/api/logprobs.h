// Log probabilities of tokens in the shapes of the OpenAI interfaces, as JSON text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lagoon::api {

using TokenLogprobs = std::vector<engine::TokenLogprob>;

// What a token is called: its text, or for part of a character "bytes:\xNN...", as OpenAI's
// completions write it.
std::string token_name(const text::Tokenizer& tokenizer, int32_t token);

// Chat: {"token","logprob","bytes","top_logprobs":[...]} of a token and the likeliest of its place.
std::string chat_logprob_json(const text::Tokenizer& tokenizer, const engine::TokenLogprob& token,
                              const TokenLogprobs& top);

// The field `prompt_logprobs` of vLLM: null for the first token, then for each {"ID":{"logprob",
// "rank","decoded_token"}...}. Entries of `prompt` are as in engine::Event; of the likeliest those
// with a rank up to `count` are told.
std::string prompt_logprobs_json(const text::Tokenizer& tokenizer,
                                 const std::vector<TokenLogprobs>& prompt, int count);

// Completions: {"text_offset","token_logprobs","tokens","top_logprobs"}, four lists of a text's
// tokens. Offsets count Unicode characters, as in Python.
class CompletionLogprobs {
 public:
  // `skip_special`: special tokens have no text, so they do not move the offset.
  CompletionLogprobs(const text::Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  void add(const engine::TokenLogprob& token, const TokenLogprobs& top);
  // A prompt's tokens, `ids`, with the engine's entries; the first `hidden` have no text.
  void add_prompt(const std::vector<int32_t>& ids, const std::vector<TokenLogprobs>& entries,
                  int count, size_t hidden);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last call.
  std::string take_json();

 private:
  void add_token(int32_t token, bool has_text, const std::string& logprob, const std::string& top);
  std::string top_json(const engine::TokenLogprob& token, const TokenLogprobs& top) const;

  const text::Tokenizer* tokenizer_;
  const bool skip_special_;
  int64_t offset_ = 0;
  std::string offsets_, logprobs_, tokens_, tops_;  // lists without brackets
};

}  // namespace lagoon::api
