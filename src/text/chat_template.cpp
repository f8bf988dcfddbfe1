#include "text/chat_template.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "text/jinja/json.h"

namespace lagoon::text {
namespace {

using jinja::Dict;
using jinja::Value;

Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Error{ErrorCode::kNotFound, fmt::format("{} does not exist", path.string())};
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::kInternal, fmt::format("{} cannot be read", path.string())};
  return std::move(text).str();
}

Result<Dict> read_config(const std::filesystem::path& path) {
  LAGOON_ASSIGN(const std::string text, read_file(path));
  const Result<Value> parsed = jinja::parse_json(text);
  if (!parsed.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is {}", path.string(), parsed.error().message)};
  }
  if (!parsed->is_dict()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a JSON object", path.string())};
  }
  return parsed->dict();
}

// A special token is a string, or an object whose "content" is one; null stands for none.
Result<Dict> special_tokens(const Dict& config, const std::filesystem::path& path) {
  Dict tokens;
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const Value* token = config.find(name);
    if (token == nullptr || token->is_null()) continue;
    if (token->is_dict()) token = token->dict().find("content");
    if (token == nullptr || !token->is_string()) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("\"{}\" in {} is neither a string nor an object with a string as its "
                      "\"content\"",
                      name, path.string())};
    }
    tokens.set(name, *token);
  }
  return tokens;
}

// "chat_template" in tokenizer_config.json: a string, or a list of named ones.
std::optional<std::string> template_in(const Dict& config) {
  const Value* found = config.find("chat_template");
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->string();
  if (!found->is_list()) return std::nullopt;
  for (const Value& entry : found->list()) {
    if (!entry.is_dict()) continue;
    const Value* name = entry.dict().find("name");
    const Value* source = entry.dict().find("template");
    if (name != nullptr && name->is_string() && name->string() == "default" && source != nullptr &&
        source->is_string()) {
      return source->string();
    }
  }
  return std::nullopt;
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Template parsed, Dict tokens)
    : template_(std::move(parsed)), special_tokens_(std::move(tokens)) {}

Result<ChatTemplate> ChatTemplate::load(const std::string& model_directory) {
  const std::filesystem::path directory(model_directory);
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const std::filesystem::path template_path = directory / "chat_template.jinja";
  LAGOON_ASSIGN(const Dict config, read_config(config_path));
  LAGOON_ASSIGN(Dict tokens, special_tokens(config, config_path));

  std::error_code error;
  if (std::filesystem::exists(template_path, error)) {
    LAGOON_ASSIGN(const std::string source, read_file(template_path));
    LAGOON_ASSIGN(jinja::Template parsed, jinja::Template::parse(source, template_path.string()));
    return ChatTemplate(std::move(parsed), std::move(tokens));
  }
  const std::optional<std::string> source = template_in(config);
  if (!source) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{} has no chat template: neither chat_template.jinja nor a "
                    "\"chat_template\" (a string, or a list with one named \"default\") in "
                    "tokenizer_config.json",
                    directory.string())};
  }
  LAGOON_ASSIGN(jinja::Template parsed,
                jinja::Template::parse(*source, config_path.string() + " (chat_template)"));
  return ChatTemplate(std::move(parsed), std::move(tokens));
}

Result<void> check_template_kwargs(const Dict& kwargs) {
  for (const char* name :
       {"enable_thinking", "preserve_thinking", "thinking", "add_generation_prompt"}) {
    const Value* value = kwargs.find(name);
    if (value == nullptr || value->is_bool()) continue;
    std::string given = jinja::to_json(*value);
    constexpr size_t kMostBytes = 60;
    if (given.size() > kMostBytes) given = value->is_string() ? "a long string" : "a long value";
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("the template variable `{}` has to be true or false, not {}", name, given)};
  }
  return {};
}

Result<std::string> ChatTemplate::render(Value messages, Value tools, const Dict& kwargs,
                                         bool add_generation_prompt) const {
  LAGOON_RETURN_IF_ERROR(check_template_kwargs(kwargs));
  Dict variables = special_tokens_;
  variables.set("add_generation_prompt", add_generation_prompt);
  variables.set("documents", jinja::Null{});
  for (const auto& [name, value] : kwargs.items()) variables.set(name, value);
  // Last, so that no keyword can replace the conversation itself.
  variables.set("messages", std::move(messages));
  variables.set("tools", std::move(tools));
  return template_.render(variables);
}

}  // namespace lagoon::text
