// Input items of /v1/responses to the turns of a conversation.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/chat_turns.h"
#include "api/fields.h"

namespace lagoon::api {

// Adds the items of a list, which is called `location` in the body. Messages, reasoning, calls of
// all kinds and their outputs; another type is an error that names it, and so is a part of a
// message that is no text. Problems are left in `fields`.
void read_response_items(Fields& fields, const Json& items, const std::string& location,
                         ChatTurns& turns);

// Reasoning as clients send it back that keep nothing but `encrypted_content`: the text, behind a
// mark that tells it from what other servers have encrypted. Empty for what these have.
std::string seal_reasoning(std::string_view text);
std::optional<std::string> open_reasoning(std::string_view sealed);

}  // namespace lagoon::api
