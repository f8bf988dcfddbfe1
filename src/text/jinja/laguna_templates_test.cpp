// The bytes that Laguna's templates are known to make, from golden token ids and descriptions.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace lagoon::text::jinja {
namespace {

constexpr const char* kDefaultSystem =
    "You are a helpful, conversationally-fluent assistant made by Poolside. You are here to be "
    "helpful to users through natural language conversations.";

std::string render(const std::string& name, const std::string& variables) {
  std::ifstream file(std::filesystem::path(LAGOON_SOURCE_DIR) / "tests/fixtures/templates" / name,
                     std::ios::binary);
  std::ostringstream source;
  source << file.rdbuf();
  const auto parsed = Template::parse(source.str(), name);
  if (!parsed.ok()) return parsed.error().message;
  const auto context = parse_json(variables);
  if (!context.ok()) return context.error().message;
  const auto text = parsed->render(context->dict());
  return text.ok() ? *text : text.error().message;
}

// Published as 49 ids: 2, the tokens of this text, 23 (<assistant>), 18 (<think>).
TEST(LagunaTemplates, DefaultSystemOfS21) {
  EXPECT_EQ(render("laguna_s21.jinja",
                   R"({"messages": [{"role": "user", "content": "Tell me the capital of Italy."}],
                       "add_generation_prompt": true})"),
            std::string("〈|EOS|〉<system>") + kDefaultSystem +
                "</system>\n<user>Tell me the capital of Italy.</user>\n<assistant><think>");
}

// Published as 15 and 9 tokens: with thinking off, an empty system message leaves no block.
TEST(LagunaTemplates, EmptySystemOfS21) {
  const std::string messages =
      R"("messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}])";
  EXPECT_EQ(render("laguna_s21.jinja", "{" + messages + R"(, "add_generation_prompt": true})"),
            "〈|EOS|〉<system></system>\n<user></user>\n<assistant><think>");
  EXPECT_EQ(
      render("laguna_s21.jinja",
             "{" + messages + R"(, "add_generation_prompt": true, "enable_thinking": false})"),
      "〈|EOS|〉<user></user>\n<assistant></think>");
}

constexpr const char* kToolTurn = R"({"messages": [
  {"role": "system", "content": "Sys.\n\n"}, {"role": "user", "content": "u"},
  {"role": "assistant", "content": "", "reasoning": "r", "tool_calls": [{"type": "function",
   "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": [1, 2.0], "é": null}}}]},
  {"role": "tool", "content": "ok"}],
  "tools": [{"type": "function", "function": {"name": "get_weather", "description": "é"}}],
  "add_generation_prompt": true, "enable_thinking": true})";

constexpr const char* kToolText =
    "### Tools\n\nYou may call functions to assist with the user query.\n"
    "All available function signatures are listed below:\n<available_tools>\n"
    "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"é\"}}\n"
    "</available_tools>";

TEST(LagunaTemplates, ToolsOfV8) {
  for (const char* name : {"laguna_s21.jinja", "laguna_xs21.jinja"}) {
    EXPECT_EQ(render(name, kToolTurn),
              std::string("〈|EOS|〉<system>Sys.\n\n") + kToolText +
                  "</system>\n<user>u</user>\n<assistant><think>r</think><tool_call>get_weather"
                  "<arg_key>city</arg_key><arg_value>Paris</arg_value>"
                  "<arg_key>days</arg_key><arg_value>[1, 2.0]</arg_value>"
                  "<arg_key>é</arg_key><arg_value>null</arg_value></tool_call></assistant>\n"
                  "<tool_response>ok</tool_response>\n<assistant><think>")
        << name;
  }
}

TEST(LagunaTemplates, ToolsOfV2) {
  EXPECT_EQ(
      render("laguna_xs2.jinja", kToolTurn),
      std::string("〈|EOS|〉<system>\n\nSys.\n\n") + kToolText +
          "\n\nWrap your thinking in '<think>', '</think>' tags, followed by a function call. "
          "For each function call, return an unescaped XML-like object with function name and "
          "arguments within '<tool_call>' and '</tool_call>' tags, like here:\n"
          "<think> your thoughts here </think>\n<tool_call>function-name\n"
          "<arg_key>argument-key</arg_key>\n<arg_value>value-of-argument-key</arg_value>\n"
          "</tool_call>\n</system>\n<user>\nu\n</user>\n<assistant>\n<think>\nr\n</think>\n"
          "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
          "<arg_key>days</arg_key>\n<arg_value>[1, 2.0]</arg_value>\n"
          "<arg_key>é</arg_key>\n<arg_value>null</arg_value>\n</tool_call>\n</assistant>\n"
          "<tool_response>\nok\n</tool_response>\n<assistant>\n<think>");
}

TEST(LagunaTemplates, ThinkingDefaults) {
  const std::string messages = R"({"add_generation_prompt": true, "messages": []})";
  EXPECT_TRUE(render("laguna_s21.jinja", messages).ends_with("<assistant><think>"));
  EXPECT_TRUE(render("laguna_xs21.jinja", messages).ends_with("<assistant></think>"));
  EXPECT_TRUE(render("laguna_xs2.jinja", messages).ends_with("<assistant>\n</think>"));
}

}  // namespace
}  // namespace lagoon::text::jinja
