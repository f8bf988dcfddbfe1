// From the fields of a chat request to the tokens of its prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "api/context.h"
#include "api/fields.h"
#include "api/tools.h"
#include "text/jinja/value.h"

namespace lagoon::api {

// The fields that make the prompt.
struct ChatPromptFields {
  const Json* messages = nullptr;
  Tools tools;
  text::jinja::Dict template_kwargs;
  bool add_generation_prompt = true;
  // The last message is not closed: the answer goes on where it ends, in its content, or in its
  // reasoning where it has nothing else.
  bool continue_final_message = false;
};

// Problems are left in `fields`.
ChatPromptFields read_chat_prompt(Fields& fields, const Context& context);

// Renders the messages and encodes the text. Takes `tools.shown`.
ApiResult<std::vector<int32_t>> encode_chat_prompt(const Context& context,
                                                   ChatPromptFields& fields);

}  // namespace lagoon::api
