// The output parser for tokens as an engine gives them out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/parse/output_parser.h"
#include "text/tokenizer.h"

namespace lagoon::text::parse {

// Whether an answer to `prompt` begins inside reasoning: the last <think> or </think> after the
// last <assistant> says so. Tags are looked for as tokens, or, where the vocabulary lacks one of
// these three, in the prompt's text.
bool begins_in_reasoning(const Tokenizer& tokenizer, std::span<const int32_t> prompt);

// Tags that the vocabulary has as tokens count as tokens alone, the others are found in the text. A
// token's text may come with a later token or at the end, where an engine holds back what may
// become a character or a stop string; where a stop string cut the text off, all that it cut is not
// there.
class TokenParser {
 public:
  // `tokenizer` outlives the parser. `tools`: see OutputParser. `skip_special_tokens`: whether
  // special tokens have no text in what is pushed.
  TokenParser(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
              std::shared_ptr<const ToolTypes> tools, bool skip_special_tokens);

  // Adds a token and the text that came with it. Events as of OutputParser::text().
  void push(int32_t token, std::string_view text, std::vector<Event>& events);
  // The end, and the text that came without a token.
  Ending finish(std::string_view tail, std::vector<Event>& events);

  // Tokens so far whose text was reasoning, tags not counted. (Those of a name after a <tool_call>
  // in reasoning count.)
  int reasoning_tokens() const { return reasoning_tokens_; }

 private:
  // What one token adds to the text: bytes, and whether the last of them are a tag.
  struct Share {
    uint64_t bytes = 0;
    std::optional<Tag> tag;
    bool counts = true;  // a token's last share
  };

  std::optional<Tag> tag_of(int32_t token) const;
  void divide(std::string_view text, std::vector<Event>& events);
  void take(const Share& share, std::string_view text, std::vector<Event>& events);

  const Tokenizer* tokenizer_;
  const bool skip_special_tokens_;
  std::vector<std::pair<int32_t, Tag>> tag_tokens_;
  OutputParser parser_;
  Detokenizer detokenizer_;
  std::deque<Share> shares_;  // of text that has not come
  std::string begun_;         // what has come of the first share, where that is a tag
  int reasoning_tokens_ = 0;
};

}  // namespace lagoon::text::parse
