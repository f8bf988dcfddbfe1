#include "api/chat_turns.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace lagoon::api {
namespace {

void join(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

}  // namespace

void ChatTurns::add(std::string_view role, std::string_view text, bool joins) {
  open_ = false;
  if (joins && !turns_.empty() && turns_.back().role == role) {
    join(turns_.back().text, text);
  } else {
    turns_.push_back({.role = std::string(role), .text = std::string(text)});
  }
}

ChatTurns::Turn& ChatTurns::assistant() {
  if (!std::exchange(open_, true)) turns_.push_back({.role = "assistant"});
  return turns_.back();
}

void ChatTurns::reason(std::string_view text) {
  if (open_ && !(turns_.back().text.empty() && turns_.back().calls.empty())) end_turn();
  join(assistant().reasoning, text);
}

void ChatTurns::say(std::string_view text) {
  if (open_ && !turns_.back().calls.empty()) end_turn();
  join(assistant().text, text);
}

void ChatTurns::call(std::string_view id, std::string_view name, std::string arguments) {
  assistant().calls.push_back({std::string(id), std::string(name), std::move(arguments)});
}

void ChatTurns::result(std::string_view call_id, std::string_view text) {
  open_ = false;
  turns_.push_back({.role = "tool", .text = std::string(text), .call_id = std::string(call_id)});
}

bool ChatTurns::ends_with_text() const {
  if (turns_.empty()) return false;
  const Turn& last = turns_.back();
  return last.role == "assistant" && last.calls.empty() &&
         !(last.text.empty() && last.reasoning.empty());
}

Json ChatTurns::to_json() const {
  Json messages = Json::array();
  for (const Turn& turn : turns_) {
    Json message = {{"role", turn.role}, {"content", turn.text}};
    if (!turn.reasoning.empty()) message["reasoning_content"] = turn.reasoning;
    if (!turn.call_id.empty()) message["tool_call_id"] = turn.call_id;
    for (const Call& call : turn.calls) {
      message["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace lagoon::api
