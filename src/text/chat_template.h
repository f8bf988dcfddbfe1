// The chat template of a model directory: conversations to prompt text.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "text/jinja/template.h"
#include "text/jinja/value.h"

namespace lagoon::text {

// Whether keywords for a template, a server's defaults or a request's, have the types they need:
// the switches enable_thinking, preserve_thinking, thinking and add_generation_prompt are true or
// false. (A template would take the string "false" for true.) render() checks it as well.
Result<void> check_template_kwargs(const jinja::Dict& kwargs);

class ChatTemplate {
 public:
  // Reads chat_template.jinja of `model_directory`, else "chat_template" in its
  // tokenizer_config.json (a string, or of a list of named ones the one named "default"). An error
  // names the file, and for a template its line.
  static Result<ChatTemplate> load(const std::string& model_directory);

  // `messages`: list of dicts (role, content as a string, reasoning_content, tool_calls with
  // arguments as dicts ...); `tools`: a list, or null; `kwargs`: further variables (enable_thinking
  // ...), which win over the model's own defaults and over add_generation_prompt, not over messages
  // and tools. bos_token, eos_token, pad_token and unk_token are set from tokenizer_config.json.
  // May run on any thread. An error is fit for the client: what the template says in
  // raise_exception(), or "chat template line N: " and the reason.
  Result<std::string> render(jinja::Value messages, jinja::Value tools, const jinja::Dict& kwargs,
                             bool add_generation_prompt) const;

 private:
  ChatTemplate(jinja::Template parsed, jinja::Dict tokens);
  jinja::Template template_;
  jinja::Dict special_tokens_;
};

}  // namespace lagoon::text
