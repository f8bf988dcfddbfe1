#include "api/block_answer.h"

#include <fmt/core.h>

#include <utility>

#include "api/generation_params.h"

namespace lagoon::api {

using text::parse::Ending;
using text::parse::Event;

std::string BlockAnswer::stream_event(size_t /*choice*/, const engine::Event& event) {
  std::string out;
  take(event, &out);
  return out;
}

void BlockAnswer::add(size_t /*choice*/, const engine::Event& event) {
  take(event, nullptr);
}

void BlockAnswer::take(const engine::Event& event, std::string* out) {
  const std::vector<Event> parts = parts_.take(event);
  const bool at_limit = event.finished && event.reason == engine::FinishReason::kLength;
  // The call that the answer ended in the middle of. Where the model itself ended there, it had
  // said what it wanted to.
  int cut_call = -1;
  if (event.finished && parts_.ending().open == Ending::Open::kCall &&
      (at_limit || !event.stop_string.empty())) {
    cut_call = parts_.ending().calls - 1;
  }
  for (const Event& part : parts) {
    switch (part.kind) {
      case Event::Kind::kReasoning:
        add_text(Block::Kind::kReasoning, part.text, out);
        break;
      case Event::Kind::kContent:
        add_text(Block::Kind::kText, part.text, out);
        break;
      case Event::Kind::kCallBegin:
        begin(Block::Kind::kCall, part.text, out);
        break;
      case Event::Kind::kArguments:
        add_text(Block::Kind::kCall, part.text, out);
        break;
      case Event::Kind::kCallEnd:
        end(part.call == cut_call, out);
        break;
    }
  }
  if (!event.finished) return;
  end(at_limit, out);
  last_ = event;
  last_.pieces.clear();
}

void BlockAnswer::begin(Block::Kind kind, const std::string& name, std::string* out) {
  end(false, out);
  blocks_.push_back({.kind = kind, .id = fmt::format("{:016x}", random_seed()), .name = name});
  if (out != nullptr) *out += begin_block(blocks_.size() - 1, blocks_.back());
}

void BlockAnswer::add_text(Block::Kind kind, const std::string& text, std::string* out) {
  if (text.empty()) return;
  if (blocks_.empty() || blocks_.back().ended || blocks_.back().kind != kind) begin(kind, "", out);
  blocks_.back().text += text;
  if (out != nullptr) *out += block_piece(blocks_.size() - 1, blocks_.back(), text);
}

void BlockAnswer::end(bool cut, std::string* out) {
  if (blocks_.empty() || blocks_.back().ended) return;
  blocks_.back().ended = true;
  blocks_.back().cut = cut;
  if (out != nullptr) *out += end_block(blocks_.size() - 1, blocks_.back());
}

}  // namespace lagoon::api
