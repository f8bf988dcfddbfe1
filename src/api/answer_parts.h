// What the client is to see of an answer's tokens: reasoning, content, calls.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "text/parse/token_parser.h"

namespace lagoon::api {

class AnswerParts {
 public:
  // `parallel_calls` false: only the first call is given out.
  AnswerParts(text::parse::TokenParser parser, bool parallel_calls)
      : parser_(std::move(parser)), parallel_calls_(parallel_calls) {}

  // The parts that an event of the engine brings, of its last event all that was open too. `stop`:
  // text of what ended the answer, where that belongs to it.
  std::vector<text::parse::Event> take(const engine::Event& event, std::string_view stop = "");

  // After the last event: how many calls there were, and what it ended in the middle of.
  const text::parse::Ending& ending() const { return ending_; }
  int reasoning_tokens() const { return parser_.reasoning_tokens(); }

 private:
  text::parse::TokenParser parser_;
  bool parallel_calls_;
  text::parse::Ending ending_;
};

}  // namespace lagoon::api
