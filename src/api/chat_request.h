// A conversation to answer: the fields of a chat request, read, and the requests for the engine
// that they come to. Other dialects are turned into a chat request first (chat_turns.h), so that
// all of them mean the same by a field.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/context.h"
#include "api/fields.h"
#include "api/generation_params.h"
#include "text/parse/token_parser.h"

namespace lagoon::api {

struct ChatRequest {
  GenerationParams params;
  bool include_reasoning = true;
  bool parallel_calls = true;             // false: only the first call of an answer is given out
  std::vector<engine::Request> requests;  // one for each choice, of one prompt
  std::shared_ptr<const text::parse::ToolTypes> tool_types;  // null: no calls are looked for

  // Takes an answer to it apart. `tokenizer` outlives the parser.
  text::parse::TokenParser parser(const text::Tokenizer& tokenizer) const;
};

// What max_tokens means where the context has no room for so many.
enum class Overlong {
  kRefuse,  // an error, as in OpenAI's interfaces
  kCut,     // the rest of the context, as in Anthropic's; a prompt that leaves no room is an error
};

// `id` is the answer's. Errors: what cannot be read or does not fit.
ApiResult<ChatRequest> read_chat_request(Fields& fields, const Context& context,
                                         const std::string& id,
                                         Overlong overlong = Overlong::kRefuse);

// Fields of the chat request, and where the body that it was made of has them:
// {"tools.2.function", "tools.3"}, {"stop", "stop_sequences"}.
using FieldNames = std::vector<std::pair<std::string, std::string>>;
// An error about the chat request in the body's own names.
ApiError in_names_of_body(ApiError error, const FieldNames& names);

// Copies the fields of sampling and limits, which all dialects call the same where they have them,
// into the chat request that `fields` become; and `chat_template_kwargs` and `stream`.
void copy_common_fields(Fields& fields, Json& chat);

}  // namespace lagoon::api
