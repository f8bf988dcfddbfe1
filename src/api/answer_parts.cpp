#include "api/answer_parts.h"

#include <string>

namespace lagoon::api {

std::vector<text::parse::Event> AnswerParts::take(const engine::Event& event,
                                                  std::string_view stop) {
  std::vector<text::parse::Event> parts;
  for (const engine::Piece& piece : event.pieces) parser_.push(piece.token, piece.text, parts);
  if (event.finished) ending_ = parser_.finish(event.tail + std::string(stop), parts);
  if (!parallel_calls_) {
    std::erase_if(parts, [](const auto& part) { return part.call > 0; });
  }
  return parts;
}

}  // namespace lagoon::api
