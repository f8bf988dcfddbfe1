// The body of a request to /v1/messages, as the chat request that it comes to.
#pragma once

#include <memory>
#include <string>

#include "api/chat_request.h"
#include "api/fields.h"

namespace lagoon::api {

// Problems are left in `fields`, under the names that the body has for them; `names` are for those
// that the chat request turns out to have. `id` is for the log.
// Where only tokens are counted, max_tokens may be missing. What a chat request has no word for and
// changes nothing about the answer is read and left out: cache_control, metadata, budgets of
// thinking, efforts, signatures. Tools that Anthropic's own servers would run are left out with a
// warning.
Json chat_of_messages(Fields& fields, const std::string& id, bool only_counted, FieldNames& names);

}  // namespace lagoon::api
