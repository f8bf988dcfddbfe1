// Builds the `messages` of a chat request out of what other dialects send in other pieces: blocks
// of a message (Anthropic), or items of which several make one turn (OpenAI responses).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"

namespace lagoon::api {

class ChatTurns {
 public:
  // A message of the system, a developer or the user; one that follows another of the user joins it
  // where `joins`.
  void add(std::string_view role, std::string_view text, bool joins = false);
  // The assistant's turn, which is open until something else is added. In a turn reasoning comes
  // first, then text, then calls; where the order is another, a new one begins. Texts of one kind
  // are joined by line breaks. `arguments`: JSON text, of an object or not.
  void reason(std::string_view text);
  void say(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string arguments);
  // What a call gave.
  void result(std::string_view call_id, std::string_view text);
  // The assistant's turn ends, so that the next begins a new one.
  void end_turn() { open_ = false; }

  bool empty() const { return turns_.empty(); }
  // Whether the last turn is the assistant's and made no calls: an answer may go on with it.
  bool ends_with_text() const;
  // A list of messages.
  Json to_json() const;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  struct Turn {
    std::string role;
    std::string text = {};
    std::string reasoning = {};
    std::vector<Call> calls = {};
    std::string call_id = {};
  };

  Turn& assistant();

  std::vector<Turn> turns_;
  bool open_ = false;  // the last turn is the assistant's, and may go on
};

}  // namespace lagoon::api
