#include "api/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lagoon::api {
namespace {

using ::testing::HasSubstr;

// What the template sees, as JSON.
std::string converted(const std::string& messages) {
  const auto result = to_template_messages(*parse_json(messages));
  if (const auto* error = std::get_if<ApiError>(&result)) return "ERROR " + error->message;
  return text::jinja::to_json(std::get<text::jinja::Value>(result));
}

ApiError error(const std::string& messages) {
  const auto result = to_template_messages(*parse_json(messages));
  EXPECT_TRUE(std::holds_alternative<ApiError>(result)) << messages;
  return std::get<ApiError>(result);
}

TEST(Messages, ContentBecomesAString) {
  EXPECT_EQ(converted(R"([{"role":"user","content":"hi","name":"n"}])"),
            R"([{"role": "user", "name": "n", "content": "hi"}])");
  EXPECT_EQ(converted(R"([{"role":"assistant","content":null}])"),
            R"([{"role": "assistant", "content": ""}])");
  EXPECT_EQ(converted(R"([{"role":"assistant"}])"), R"([{"role": "assistant", "content": ""}])");
  EXPECT_EQ(converted(R"([{"role":"user","content":[{"type":"text","text":"a"},"b",
                   {"type":"input_text","text":"c"}]}])"),
            R"([{"role": "user", "content": "a\nb\nc"}])");
  EXPECT_EQ(converted(R"([{"role":"developer","content":[]}])"),
            R"([{"role": "system", "content": ""}])");
}

TEST(Messages, ArgumentsOfCallsBecomeDicts) {
  const auto call = [](const std::string& arguments) {
    return converted(
        R"([{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":)" +
        arguments + "}}]}]");
  };
  EXPECT_EQ(call(R"("{\"b\": 1, \"a\": [2]}")"),
            R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": )"
            R"("function", "function": {"name": "f", "arguments": {"b": 1, "a": [2]}}}]}])");
  EXPECT_THAT(call(R"({"b":1})"), HasSubstr(R"("arguments": {"b": 1})"));
  EXPECT_THAT(call(R"("")"), HasSubstr(R"("arguments": {})"));
  EXPECT_THAT(call("null"), HasSubstr(R"("arguments": {})"));
  EXPECT_THAT(call(R"("{\"cut")"), HasSubstr(R"("arguments": {"raw_arguments": "{\"cut"})"));
  EXPECT_THAT(call(R"("[1]")"), HasSubstr(R"("arguments": {"raw_arguments": "[1]"})"));
  EXPECT_THAT(converted(R"([{"role":"assistant","content":"x","tool_calls":null}])"),
              testing::Not(HasSubstr("tool_calls")));
}

TEST(Messages, ReasoningComesByAnyOfItsNames) {
  for (const char* field : {R"("reasoning":"r")", R"("reasoning_content":"r")",
                            R"("reasoning":"r","reasoning_content":null)",
                            R"("reasoning_details":[{"type":"reasoning.text","text":"r"}])"}) {
    EXPECT_EQ(converted(std::string(R"([{"role":"assistant","content":"c",)") + field + "}]"),
              R"([{"role": "assistant", "content": "c", "reasoning_content": "r", )"
              R"("reasoning": "r"}])")
        << field;
  }
  EXPECT_THAT(converted(R"([{"role":"assistant","reasoning":null,"reasoning_content":""}])"),
              testing::Not(HasSubstr("reasoning")));
}

TEST(Messages, ProblemsNameTheirPlace) {
  EXPECT_EQ(error("[]").param, "messages");
  EXPECT_EQ(error("[1]").param, "messages.0");
  EXPECT_EQ(error(R"([{"content":"x"}])").param, "messages.0.role");
  EXPECT_EQ(error(R"([{"role":"user","content":"x"},{"role":"robot"}])").param, "messages.1.role");
  EXPECT_EQ(error(R"([{"role":"user","content":5}])").param, "messages.0.content");
  EXPECT_EQ(error(R"([{"role":"user","content":[5]}])").param, "messages.0.content.0");
  EXPECT_EQ(error(R"([{"role":"user","content":[{"type":"text"}]}])").param,
            "messages.0.content.0.text");
  EXPECT_EQ(error(R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])").param,
            "messages.0.tool_calls.0.function");
  EXPECT_EQ(error(R"([{"role":"assistant","tool_calls":[{"function":{}}]}])").param,
            "messages.0.tool_calls.0.function.name");
}

TEST(Messages, ImagesAreRefused) {
  const auto image =
      error(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}])");
  EXPECT_EQ(image.status, 400);
  EXPECT_THAT(image.message, HasSubstr("Images are not supported"));
  EXPECT_THAT(error(R"([{"role":"user","content":[{"type":"input_audio"}]}])").message,
              HasSubstr("\"input_audio\""));
}

}  // namespace
}  // namespace lagoon::api
