// Tool calls in chat completions, streamed and whole.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "api/service_fixture.h"

namespace lagoon::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"now"}}])";
constexpr const char* kCall =
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";

// What a stream's chunks add up to, as a message; "finish_reason" and "chunks" of calls beside it.
Json add_up(const std::vector<std::string>& events) {
  Json message = {{"content", ""}, {"reasoning", ""}, {"tool_calls", Json::array()}};
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json choice = (*parse_json(event))["choices"][0];
    const Json& delta = choice["delta"];
    for (const char* key : {"content", "reasoning"}) {
      if (delta.contains(key)) {
        message[key] = message[key].get<std::string>() + delta[key].get<std::string>();
      }
    }
    if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    const Json& piece = delta["tool_calls"][0];
    Json& calls = message["tool_calls"];
    if (piece.contains("id")) {
      EXPECT_EQ(piece["index"], calls.size());
      EXPECT_EQ(piece["type"], "function");
      EXPECT_EQ(piece["function"]["arguments"], "");
      calls.push_back(piece);
      calls.back().erase("index");
    } else {
      EXPECT_EQ(piece.size(), 2U) << piece;
      Json& function = calls.at(piece["index"].get<size_t>())["function"];
      function["arguments"] = function["arguments"].get<std::string>() +
                              piece["function"]["arguments"].get<std::string>();
    }
  }
  return message;
}

class ToolCallsTest : public ServiceTest {
 protected:
  // The message of a whole answer in which the model says `steps`.
  Json whole(const std::string& fields, const std::vector<std::string>& steps) {
    const Json choice = answer("{" + fields + "," + kHello + "}", steps)["choices"][0];
    Json message = choice["message"];
    message["finish_reason"] = choice["finish_reason"];
    return message;
  }
  Json streamed(const std::string& fields, const std::vector<std::string>& steps) {
    auto client = connect();
    client.send(post(kChat, "{\"stream\":true," + fields + "," + kHello + "}"));
    say(steps);
    return add_up(events_of(client.read_until("\r\n0\r\n\r\n")));
  }

 private:
  Json answer(const std::string& body, const std::vector<std::string>& steps) {
    auto client = connect();
    client.send(post(kChat, body));
    say(steps);
    return parse_response(client.read_response()).json();
  }
  void say(const std::vector<std::string>& steps) {
    const size_t i = asked_++;
    for (const std::string& step : steps) engine_.say(i, step);
    engine_.end_of_turn(i);
  }
};

TEST_F(ToolCallsTest, TheModelIsShownTheTools) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{},{}}}", kTools, kHello)));
  const auto request = engine_.request(0);
  EXPECT_EQ(request.prompt,
            tokenizer().encode(
                "〈|EOS|〉<system>### Tools\n<available_tools>\n"
                R"({"name": "get_weather", "parameters": {"type": "object", "properties": )"
                R"({"city": {"type": "string"}, "days": {"type": "integer"}}}})"
                "\n{\"name\": \"now\"}\n</available_tools></system>\n<user>Hello</user>\n"
                "<assistant></think>"));
  EXPECT_FALSE(request.skip_special_tokens);
  engine_.end_of_turn(0);
  client.read_response();
  client.send(post(kChat, fmt::format("{{\"tool_choice\":\"none\",{},{}}}", kTools, kHello)));
  EXPECT_EQ(engine_.request(1).prompt,
            tokenizer().encode("〈|EOS|〉<user>Hello</user>\n<assistant></think>"));
  engine_.end_of_turn(1);
  client.read_response();
}

TEST_F(ToolCallsTest, ACall) {
  const Json message = whole(kTools, {kCall});
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_FALSE(message.contains("reasoning"));
  EXPECT_EQ(message["finish_reason"], "tool_calls");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  const Json& call = message["tool_calls"][0];
  EXPECT_THAT(call["id"].get<std::string>(), StartsWith("chatcmpl-tool-"));
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(call["function"]["arguments"], R"({"city": "Paris", "days": 3})");
}

TEST_F(ToolCallsTest, AStreamAddsUpToTheWhole) {
  const std::string thinking = std::string(R"("reasoning_effort":"high",)") + kTools;
  const std::string said = std::string("I look.</think>Wait.\n") + kCall + "\n" + kCall +
                           "<tool_call>now\n</tool_call>\n";
  Json expected = whole(thinking, {said});
  EXPECT_EQ(expected["reasoning"], "I look.");
  EXPECT_EQ(expected["content"], "Wait.\n");
  EXPECT_EQ(expected["tool_calls"].size(), 3U);
  std::vector<std::string> letters;
  for (const int32_t token : tokenizer().encode(said)) {
    letters.emplace_back(tokenizer().token_bytes(token));
  }
  for (const auto& steps : {std::vector<std::string>{said}, letters}) {
    const Json got = streamed(thinking, steps);
    EXPECT_EQ(got["reasoning"], expected["reasoning"]);
    EXPECT_EQ(got["content"], expected["content"]);
    EXPECT_EQ(got["finish_reason"], "tool_calls");
    ASSERT_EQ(got["tool_calls"].size(), 3U);
    std::set<std::string> ids;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got["tool_calls"][i]["function"], expected["tool_calls"][i]["function"]);
      ids.insert(got["tool_calls"][i]["id"].get<std::string>());
    }
    EXPECT_EQ(ids.size(), 3U);
  }
}

TEST_F(ToolCallsTest, OnlyTheFirstWhereParallelCallsAreOff) {
  const std::string fields = std::string(R"("parallel_tool_calls":false,)") + kTools;
  const std::string said = std::string(kCall) + "<tool_call>now</tool_call>";
  for (const Json& message : {whole(fields, {said}), streamed(fields, {said})}) {
    ASSERT_EQ(message["tool_calls"].size(), 1U);
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_weather");
    EXPECT_EQ(message["finish_reason"], "tool_calls");
  }
}

TEST_F(ToolCallsTest, WithoutToolsACallIsText) {
  const std::string fields_of_both[] = {R"("tools":[])",
                                        std::string(R"("tool_choice":"none",)") + kTools};
  for (const std::string& fields : fields_of_both) {
    for (const Json& message : {whole(fields, {kCall}), streamed(fields, {kCall})}) {
      EXPECT_EQ(message["content"], kCall);
      EXPECT_EQ(message["finish_reason"], "stop");
    }
    EXPECT_FALSE(whole(fields, {kCall}).contains("tool_calls"));
  }
}

TEST_F(ToolCallsTest, AnAnswerWithoutACallIsAnAnswer) {
  const Json message = whole(kTools, {"Hi."});
  EXPECT_EQ(message["content"], "Hi.");
  EXPECT_EQ(message["finish_reason"], "stop");
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(whole(kTools, {})["content"], "");
}

TEST_F(ToolCallsTest, ACallThatTheLimitCutsOff) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{\"stream\":true,{},{}}}", kTools, kHello)));
  engine_.say(0, "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par");
  engine::Event last;
  last.reason = engine::FinishReason::kLength;
  engine_.finish(0, last);
  const Json message = add_up(events_of(client.read_until("\r\n0\r\n\r\n")));
  EXPECT_EQ(message["finish_reason"], "length");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"city": "Par"})");
}

TEST_F(ToolCallsTest, HistoryWithCallsAndResultsRenders) {
  const auto prompt_after = [&](const std::string& arguments) {
    auto client = connect();
    const size_t i = asked_++;
    client.send(
        post(kChat, std::string("{") + kTools +
                        R"(,"messages":[{"role":"user","content":"Weather?"},{"role":"assistant",)"
                        R"("content":null,"tool_calls":[{"id":"1","type":"function","function":{)"
                        R"("name":"get_weather","arguments":)" +
                        arguments +
                        R"(}}]},{"role":"tool","tool_call_id":"1","content":[{"type":"text",)"
                        R"("text":"rain"}]}]})"));
    std::string text;
    for (const int32_t token : engine_.request(i).prompt) text += tokenizer().token_bytes(token);
    engine_.end_of_turn(i);
    EXPECT_EQ(parse_response(client.read_response()).status, 200);
    return text;
  };
  const std::string expected =
      "</think><tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "</tool_call></assistant>\n<tool_response>rain</tool_response>\n<assistant></think>";
  EXPECT_THAT(prompt_after(R"({"city":"Paris"})"), HasSubstr(expected));
  EXPECT_THAT(prompt_after(R"("{\"city\":\"Paris\"}")"), HasSubstr(expected));
  for (const char* empty : {"\"\"", "null", "{}", "\"  \"", "\"{}\""}) {
    EXPECT_THAT(prompt_after(empty), HasSubstr("<tool_call>get_weather\n</tool_call>")) << empty;
  }
  for (const char* broken : {R"("{\"city\":\"Par")", R"("[1]")", "5"}) {
    EXPECT_THAT(prompt_after(broken), HasSubstr("<tool_call>get_weather\n<arg_key>")) << broken;
  }
}

TEST_F(ToolCallsTest, WrongShapesAreRefusedByName) {
  const auto after = [](const char* message) {
    return std::string(R"("messages":[{"role":"user","content":"x"},)") + message + "]";
  };
  const std::string hello = std::string(kHello) + ",";
  const std::pair<std::string, const char*> cases[] = {
      {hello + R"("tools":"f")", "tools"},
      {hello + R"("tools":[null])", "tools.0"},
      {hello + R"("tools":[[]])", "tools.0"},
      {hello + R"("tools":[{"type":"function","function":[]}])", "tools.0.function"},
      {hello + R"("tools":[{"function":{"name":null}}])", "tools.0.function.name"},
      {hello + R"("tools":[{"function":{"name":" f"}}])", "tools.0.function.name"},
      {hello + R"("tools":[{"function":{"name":"f","description":5}}])",
       "tools.0.function.description"},
      {hello + R"("tools":[{"function":{"name":"f","parameters":[]}}])",
       "tools.0.function.parameters"},
      {hello + R"("tool_choice":[])", "tool_choice"},
      {hello + R"("tool_choice":{"type":"none"})", "tool_choice"},
      {hello + R"("parallel_tool_calls":1)", "parallel_tool_calls"},
      {hello + kTools + R"(,"n":0)", "n"},
      {after("5"), "messages.1"},
      {after(R"({"role":"function","content":"x"})"), "messages.1.role"},
      {after(R"({"role":"tool","content":{}})"), "messages.1.content"},
      {after(R"({"role":"assistant","tool_calls":"x"})"), "messages.1.tool_calls"},
      {after(R"({"role":"assistant","tool_calls":[null]})"), "messages.1.tool_calls.0"},
      {after(R"({"role":"assistant","tool_calls":[{}]})"), "messages.1.tool_calls.0.function"},
      {after(R"({"role":"assistant","tool_calls":[{"function":{"name":5}}]})"),
       "messages.1.tool_calls.0.function.name"},
  };
  for (const auto& [fields, param] : cases) {
    const auto response = refused(kChat, "{" + fields + "}");
    EXPECT_EQ(response.status, 400) << fields;
    EXPECT_EQ(response.json()["error"]["param"], param) << fields;
    EXPECT_THAT(response.json()["error"]["message"].get<std::string>(), HasSubstr(param)) << fields;
  }
}

TEST_F(ToolCallsTest, RefusedChoices) {
  const auto error =
      refused(kChat, fmt::format("{{\"tool_choice\":\"required\",{},{}}}", kTools, kHello))
          .json()["error"];
  EXPECT_EQ(error["param"], "tool_choice");
  EXPECT_EQ(error["code"], 400);
}

}  // namespace
}  // namespace lagoon::api
