// The conversation of a chat request, as templates expect it.
#pragma once

#include "api/errors.h"
#include "api/json.h"
#include "text/jinja/value.h"

namespace lagoon::api {

// A list of dicts. Content becomes a string: null and absent are "", text parts are joined by line
// breaks; other parts are refused, since the model reads text only. Arguments of tool calls become
// dicts; what cannot be read as one is kept under "raw_arguments", so that a history with a broken
// call can go on. Reasoning goes by `reasoning` and `reasoning_content`, whether it came by one of
// its three names, as parts of the content, or as a <think> block that the content begins with; the
// first of these that is there counts. A developer becomes the system. All other keys pass through.
ApiResult<text::jinja::Value> to_template_messages(const Json& messages);

}  // namespace lagoon::api
