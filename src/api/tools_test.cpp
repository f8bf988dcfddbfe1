#include "api/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lagoon::api {
namespace {

using ::testing::HasSubstr;

// The parameter that is complained of, or "".
ApiError problem(const std::string& body) {
  const Json json = *parse_json(body);
  Fields fields(json);
  read_tools(fields);
  return fields.failed() ? fields.error() : ApiError{};
}

Tools read(const std::string& body) {
  const Json json = *parse_json(body);
  Fields fields(json);
  Tools tools = read_tools(fields);
  EXPECT_FALSE(fields.failed()) << body;
  return tools;
}

constexpr const char* kTool =
    R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object",)"
    R"("properties":{"a":{"type":"string"}}}}}])";

TEST(Tools, GoToTheTemplateAsTheyCame) {
  const Tools tools = read(std::string("{") + kTool + "}");
  EXPECT_EQ(text::jinja::to_json(tools.shown),
            R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters": )"
            R"({"type": "object", "properties": {"a": {"type": "string"}}}}}])");
  ASSERT_NE(tools.types, nullptr);
  EXPECT_TRUE(tools.types->knows("f"));
  EXPECT_EQ(tools.types->type_of("f", "a"), text::parse::TypeSet(text::parse::TypeSet::kString));
  EXPECT_TRUE(tools.parallel);
}

TEST(Tools, ChoiceAndParallelCalls) {
  EXPECT_NE(read(std::string("{\"tool_choice\":\"auto\",") + kTool + "}").types, nullptr);
  EXPECT_NE(read(std::string("{\"tool_choice\":null,") + kTool + "}").types, nullptr);
  const Tools none = read(std::string("{\"tool_choice\":\"none\",") + kTool + "}");
  EXPECT_EQ(none.types, nullptr);
  EXPECT_TRUE(none.shown.is_null());
  EXPECT_FALSE(read(std::string("{\"parallel_tool_calls\":false,") + kTool + "}").parallel);
  EXPECT_EQ(read(R"({"tools":[],"tool_choice":"auto"})").types, nullptr);
  EXPECT_EQ(read(R"({"tools":null})").types, nullptr);
}

TEST(Tools, ChoicesThatNeedGrammarsAreRefused) {
  for (const char* choice :
       {R"("required")", R"({"type":"function","function":{"name":"f"}})", R"({})"}) {
    const auto error = problem(std::string("{\"tool_choice\":") + choice + "," + kTool + "}");
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "tool_choice");
    EXPECT_THAT(error.message, HasSubstr("not supported by this version of Lagoon")) << choice;
  }
  EXPECT_EQ(problem(R"({"tool_choice":"any"})").param, "tool_choice");
  EXPECT_EQ(problem(R"({"tool_choice":5})").param, "tool_choice");
}

TEST(Tools, ProblemsNameTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tools":{}})", "tools"},
      {R"({"tools":[5]})", "tools.0"},
      {R"({"tools":[{"type":"function"}]})", "tools.0.function"},
      {R"({"tools":[{"type":"web_search"}]})", "tools.0.type"},
      {R"({"tools":[{"type":5}]})", "tools.0.type"},
      {R"({"tools":[{"function":{"name":"a"}},{"function":{}}]})", "tools.1.function.name"},
      {R"({"tools":[{"function":{"name":5}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a","parameters":"x"}}]})", "tools.0.function.parameters"},
      {R"({"tools":[{"function":{"name":""}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a b"}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a\n"}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a\u0000"}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a<b"}}]})", "tools.0.function.name"},
      {R"({"tools":[{"function":{"name":"a"}},{"function":{"name":"a"}}]})",
       "tools.1.function.name"},
      {R"({"parallel_tool_calls":"no"})", "parallel_tool_calls"},
  };
  for (const auto& [body, param] : cases) {
    EXPECT_EQ(problem(body).param, param) << body;
    EXPECT_EQ(problem(body).status, 400) << body;
  }
}

}  // namespace
}  // namespace lagoon::api
