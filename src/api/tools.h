// The tools of a chat request: what the template shows the model, and what its calls are read by.
#pragma once

#include <memory>

#include "api/fields.h"
#include "text/jinja/value.h"
#include "text/parse/tool_types.h"

namespace lagoon::api {

struct Tools {
  text::jinja::Value shown = text::jinja::Null{};  // the request's list; null: none
  // Types of their parameters; null where no calls are looked for.
  std::shared_ptr<const text::parse::ToolTypes> types;
  bool parallel = true;  // false: of several calls in an answer only the first is given out
};

// Reads `tools`, `tool_choice` ("auto" and "none") and `parallel_tool_calls`. With "none" the model
// is shown no tools and what it writes is text. Problems are left in `fields`, also for what needs
// output that is held to a grammar: other choices.
Tools read_tools(Fields& fields);

}  // namespace lagoon::api
