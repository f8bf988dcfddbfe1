// /v1/messages over real sockets, with an engine that says what the test tells it to.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "api/service_fixture.h"

namespace lagoon::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kAsk = R"("max_tokens":50,"messages":[{"role":"user","content":"Hello"}])";
constexpr const char* kTools =
    R"("tools":[{"name":"get_weather","description":"d","input_schema":{"type":"object",)"
    R"("properties":{"city":{"type":"string"}}}}])";
const std::string kCall =
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";

class MessagesTest : public ServiceTest {
 protected:
  Json whole(const std::string& body, const std::vector<std::string>& steps,
             engine::Event last = end_of_turn()) {
    const auto response = parse_response(answered(kMessages, body, steps, false, std::move(last)));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json();
  }
  std::vector<Json> events(const std::string& body, const std::vector<std::string>& steps,
                           engine::Event last = end_of_turn()) {
    std::vector<Json> parsed;
    for (const auto& event : events_of(answered(kMessages, body, steps, true, std::move(last)))) {
      parsed.push_back(*parse_json(event));
    }
    return parsed;
  }
  // The prompt's text of a request that is not computed.
  std::string prompt_of(const std::string& body) {
    const auto rendered = send(post("/v1/messages/render", body));
    EXPECT_EQ(rendered.status, 200) << rendered.body;
    return rendered.status == 200 ? rendered.json()["prompt"].get<std::string>() : "";
  }
  std::string message_of(const std::string& body) {
    const auto response = refused(kMessages, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(response.json()["type"], "error");
    EXPECT_EQ(response.json()["error"]["type"], "invalid_request_error");
    return response.json()["error"]["message"];
  }
  static engine::Event end_of_turn() {
    engine::Event last;
    last.stop_token = 5;
    return last;
  }
};

// What the events of a stream add up to, as Anthropic's SDK does it. Checks their order.
Json joined(const std::vector<Json>& events) {
  EXPECT_EQ(events.at(0)["type"], "message_start");
  Json message = events.at(0)["message"];
  EXPECT_EQ(message["content"], Json::array());
  std::vector<std::string> inputs;
  bool open = false;
  for (size_t i = 1; i < events.size(); ++i) {
    const Json& event = events[i];
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_FALSE(open);
      open = true;
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      inputs.emplace_back();
    } else if (type == "content_block_delta") {
      EXPECT_TRUE(open);
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = event["delta"];
      if (delta["type"] == "input_json_delta") {
        EXPECT_EQ(block["type"], "tool_use");
        inputs.back() += delta["partial_json"].get<std::string>();
      } else {
        const std::string field = delta["type"] == "text_delta"       ? "text"
                                  : delta["type"] == "thinking_delta" ? "thinking"
                                                                      : "signature";
        EXPECT_EQ(block["type"], field == "text" ? "text" : "thinking");
        block[field] = block[field].get<std::string>() + delta[field].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      EXPECT_TRUE(open);
      open = false;
      if (!inputs.back().empty()) message["content"].back()["input"] = *parse_json(inputs.back());
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
      EXPECT_EQ(events.at(i + 1)["type"], "message_stop");
      EXPECT_EQ(i + 2, events.size());
    }
  }
  EXPECT_FALSE(open);
  return message;
}

// Without what differs from answer to answer.
Json comparable(Json message) {
  message.erase("id");
  for (Json& block : message["content"]) {
    if (block["type"] == "tool_use") block.erase("id");
  }
  return message;
}

TEST_F(MessagesTest, Whole) {
  const Json json = whole(
      std::string(R"({"model":"claude-x","temperature":0,"system":"Be short.",)") + kAsk + "}",
      {"Good ", "day."});
  EXPECT_EQ(engine_.request(0).prompt,
            tokenizer().encode("〈|EOS|〉<system>Be short.</system>\n<user>Hello</user>\n"
                               "<assistant></think>"));
  EXPECT_EQ(engine_.request(0).max_tokens, 50);
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("msg_"));
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["model"], "claude-x");
  EXPECT_EQ(json["content"], *parse_json(R"([{"type":"text","text":"Good day."}])"));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  EXPECT_EQ(json["usage"]["input_tokens"], engine_.request(0).prompt.size());
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], 0);
  EXPECT_EQ(json["usage"]["cache_creation_input_tokens"], 0);
  EXPECT_GT(json["usage"]["output_tokens"], 2);
}

TEST_F(MessagesTest, AStreamIsTheWholeInPieces) {
  const std::string thinking = R"("thinking":{"type":"enabled","budget_tokens":1024},)";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"Just text."}},
      {thinking, {"I see", ".</think>It is", " 4."}},
      {thinking, {"I look.</think>Looking.", kCall}},
      {"", {kCall + kCall, "And more."}},
      {"", {""}},
  };
  for (const auto& [fields, steps] : cases) {
    const std::string body = "{" + fields + kTools + "," + kAsk + "}";
    const Json expected = whole(body, steps);
    EXPECT_EQ(comparable(joined(events(body, steps))), comparable(expected)) << body;
  }
  const Json last = whole("{" + thinking + kTools + "," + kAsk + "}", {"I look.</think>", kCall});
  ASSERT_EQ(last["content"].size(), 2U);
  EXPECT_EQ(last["content"][0]["thinking"], "I look.");
  EXPECT_NE(last["content"][0]["signature"], "");
  EXPECT_EQ(last["content"][1]["name"], "get_weather");
  EXPECT_EQ(last["content"][1]["input"], *parse_json(R"({"city":"Paris"})"));
  EXPECT_THAT(last["content"][1]["id"].get<std::string>(), StartsWith("toolu_"));
  EXPECT_EQ(last["stop_reason"], "tool_use");
}

TEST_F(MessagesTest, WhyAnAnswerEnds) {
  engine::Event length = end_of_turn();
  length.reason = engine::FinishReason::kLength;
  length.stop_token = -1;
  EXPECT_EQ(whole(std::string("{") + kAsk + "}", {"x"}, length)["stop_reason"], "max_tokens");
  // A limit beyond the context is the rest of the context.
  const Json beyond =
      whole(R"({"max_tokens":32000,"messages":[{"role":"user","content":"x"}]})", {"x"}, length);
  EXPECT_EQ(beyond["stop_reason"], "model_context_window_exceeded");
  const auto request = engine_.request(1);
  EXPECT_EQ(request.max_tokens, 1000 - static_cast<int>(request.prompt.size()));
  engine::Event stop;
  stop.stop_string = "END";
  const Json stopped =
      whole(std::string(R"({"stop_sequences":["END"],)") + kAsk + "}", {"x"}, stop);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "END");
  EXPECT_THAT(engine_.request(2).stop, ElementsAre("END"));
  // A call that the limit cut is there, with arguments that are JSON, and the reason says so.
  const Json cut = whole("{" + std::string(kTools) + "," + kAsk + "}",
                         {kCall.substr(0, kCall.find("ris"))}, length);
  EXPECT_EQ(cut["content"][0]["input"], *parse_json(R"({"city":"Pa"})"));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
}

TEST_F(MessagesTest, OneCallWhereSeveralAreNotWanted) {
  const std::string choice = R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true},)";
  EXPECT_EQ(whole("{" + choice + kTools + "," + kAsk + "}", {kCall + kCall})["content"].size(), 1U);
  const Json none =
      whole(std::string(R"({"tool_choice":{"type":"none"},)") + kTools + "," + kAsk + "}", {kCall});
  EXPECT_EQ(none["content"][0]["type"], "text");
  EXPECT_EQ(none["stop_reason"], "end_turn");
}

// The histories that clients send: thinking before and after text, or none; results as text, parts
// and nothing; null content; text beside results.
TEST_F(MessagesTest, Histories) {
  const std::string history = R"({"max_tokens":5,"messages":[
      {"role":"user","content":[{"type":"text","text":"One"},
                                {"type":"text","text":"two","cache_control":{"type":"ephemeral"}}]},
      {"role":"assistant","content":[
          {"type":"text","text":"Looking."},
          {"type":"thinking","thinking":"Hm.","signature":"made up"},
          {"type":"redacted_thinking","data":"xyz"},
          {"type":"tool_use","id":"a","name":"read","input":{"path":"x.py","n":2}},
          {"type":"tool_use","id":"b","name":"list","input":{}}]},
      {"role":"user","content":[
          {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"p"},
                                                             {"type":"text","text":"q"}]},
          {"type":"tool_result","tool_use_id":"b","content":null,"is_error":true},
          {"type":"text","text":"Go on."}]},
      {"role":"assistant","content":null},
      {"role":"system","content":"Note."},
      {"role":"user","content":"?"}]})";
  EXPECT_EQ(prompt_of(history),
            "〈|EOS|〉<user>One\ntwo</user>\n<assistant><think>Hm.</think>Looking."
            "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>x.py</arg_value>\n"
            "<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
            "<tool_call>list\n</tool_call></assistant>\n"
            "<tool_response>p\nq</tool_response>\n<tool_response></tool_response>\n"
            "<user>Go on.</user>\n<assistant></think></assistant>\n<system>Note.</system>\n"
            "<user>?</user>\n<assistant></think>");
}

TEST_F(MessagesTest, AnAnswerGoesOnWhereTheLastMessageEnds) {
  EXPECT_EQ(prompt_of(R"({"max_tokens":5,"messages":[{"role":"user","content":"x"},
                          {"role":"assistant","content":"{\"name\":"}]})"),
            "〈|EOS|〉<user>x</user>\n<assistant></think>{\"name\":");
}

// Or no two prompts would begin alike.
TEST_F(MessagesTest, ClaudeCodesBillingHeaderIsDropped) {
  const auto body = [](const char* number) {
    return fmt::format(
        R"({{"max_tokens":5,"system":[{{"type":"text",)"
        R"("text":"x-anthropic-billing-header: cc_version=2; cch={};"}},)"
        R"({{"type":"text","text":"You are an agent."}},{{"type":"text","text":"Work."}}],)"
        R"("messages":[{{"role":"user","content":"x"}}]}})",
        number);
  };
  EXPECT_EQ(prompt_of(body("1a")), prompt_of(body("2b")));
  EXPECT_THAT(prompt_of(body("1a")),
              StartsWith("〈|EOS|〉<system>You are an agent.\nWork.</system>"));
  EXPECT_THAT(prompt_of(R"({"max_tokens":5,"system":"x-anthropic-billing-header: a\nReal.",
                            "messages":[{"role":"user","content":"x"}]})"),
              StartsWith("〈|EOS|〉<system>Real.</system>"));
}

TEST_F(MessagesTest, ThinkingIsAsked) {
  const auto prompt = [&](const std::string& thinking) {
    return prompt_of("{" + thinking + kAsk + "}");
  };
  EXPECT_THAT(prompt(""), HasSubstr("<assistant></think>"));
  EXPECT_THAT(prompt(R"("thinking":{"type":"adaptive"},"output_config":{"effort":"max"},)"),
              HasSubstr("<assistant><think>"));
  restart(R"({"enable_thinking":true})");
  EXPECT_THAT(prompt(""), HasSubstr("<assistant><think>"));
  EXPECT_THAT(prompt(R"("thinking":{"type":"disabled"},)"), HasSubstr("<assistant></think>"));
}

TEST_F(MessagesTest, SignaturesCanBeLeftOut) {
  ServiceOptions options;
  options.thinking_signatures = false;
  restart(std::move(options));
  const std::string body = std::string(R"({"thinking":{"type":"adaptive"},)") + kAsk + "}";
  EXPECT_EQ(whole(body, {"Hm.</think>x"})["content"][0]["signature"], "");
  for (const Json& event : events(body, {"Hm.</think>x"})) {
    EXPECT_THAT(event.dump(), Not(HasSubstr("signature_delta")));
  }
}

TEST_F(MessagesTest, AnyModelUnlessNamesAreStrict) {
  const std::string body = std::string(R"({"model":"claude-opus-9",)") + kAsk + "}";
  EXPECT_EQ(whole(body, {"x"})["model"], "claude-opus-9");
  EXPECT_EQ(whole(std::string("{") + kAsk + "}", {"x"})["model"], "nano");
  ServiceOptions options;
  options.strict_model_name = true;
  restart(std::move(options));
  const auto other = refused(kMessages, body);
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.json()["error"]["type"], "not_found_error");
  EXPECT_EQ(whole(std::string(R"({"model":"second",)") + kAsk + "}", {"x"})["model"], "second");
}

TEST_F(MessagesTest, CountsTokens) {
  const std::string body =
      std::string("{") + kTools + R"(,"messages":[{"role":"user","content":"x"}]})";
  const auto counted = send(post("/v1/messages/count_tokens?beta=true", body));
  ASSERT_EQ(counted.status, 200) << counted.body;
  whole("{\"max_tokens\":5," + body.substr(1), {"x"});
  EXPECT_EQ(counted.json()["input_tokens"], engine_.request(0).prompt.size());
  EXPECT_EQ(counted.json()["context_management"]["original_input_tokens"],
            counted.json()["input_tokens"]);
  EXPECT_EQ(refused("/v1/messages/count_tokens", "{}").json()["type"], "error");
}

// What only a server of Anthropic's can run is left out: Claude Code offers it beside its own.
TEST_F(MessagesTest, ServerToolsAreLeftOut) {
  const std::string with = R"({"tools":[{"type":"web_search_20250305","name":"web_search"},)" +
                           std::string(kTools).substr(9) + "," + kAsk + "}";
  EXPECT_EQ(prompt_of(with), prompt_of("{" + std::string(kTools) + "," + kAsk + "}"));
  EXPECT_EQ(prompt_of(R"({"tools":[{"type":"web_search_20250305","name":"web_search"}],)" +
                      std::string(kAsk) + "}"),
            prompt_of(std::string("{") + kAsk + "}"));
}

TEST_F(MessagesTest, WhatCannotBeRead) {
  std::string many = "\"0\"";
  for (int i = 1; i < 129; ++i) many += fmt::format(",\"{}\"", i);
  const auto with = [](const std::string& fields) { return "{" + fields + "," + kAsk + "}"; };
  const auto content = [](const std::string& role, const std::string& blocks) {
    return R"({"max_tokens":5,"messages":[{"role":")" + role + R"(","content":)" + blocks + "}]}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "body"},
      {"{", "Invalid JSON"},
      {"{}", "messages: Field required"},
      {R"({"max_tokens":5,"messages":[]})", "messages: List should not be empty"},
      {R"({"messages":[{"role":"user","content":"x"}]})", "max_tokens: Field required"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"x"}]})", "max_tokens"},
      {R"({"max_tokens":5,"messages":["x"]})", "messages.0: Input should be an object"},
      {R"({"max_tokens":5,"messages":[{"role":"tool","content":"x"}]})", "messages.0.role"},
      {content("user", "7"), "messages.0.content"},
      {content("user", "[7]"), "messages.0.content.0"},
      {content("user", R"([{"text":"x"}])"), "messages.0.content.0.type: Field required"},
      {content("user", R"([{"type":"text"}])"), "messages.0.content.0.text: Field required"},
      {content("user", R"([{"type":"image","source":{}}])"), "messages.0.content.0: images"},
      {content("user", R"([{"type":"document"}])"), "blocks of type \"document\""},
      {content("user", R"([{"type":"tool_result"}])"), "messages.0.content.0.tool_use_id"},
      {content("user",
               R"([{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}])"),
       "messages.0.content.0.content.0: images"},
      {content("assistant", R"([{"type":"tool_use","id":"a"}])"), "messages.0.content.0.name"},
      {content("assistant", R"([{"type":"thinking"}])"), "messages.0.content.0.thinking"},
      {content("assistant", R"([{"type":"server_tool_use"}])"), "\"server_tool_use\""},
      {with(R"("system":7)"), "system: Input should be"},
      {with(R"("temperature":-1)"), "temperature"},
      {with(R"("stop_sequences":[""])"), "stop_sequences.0"},
      {with(R"("thinking":{"type":"maybe"})"), "thinking.type"},
      {with(R"("tools":[{"name":"f"}])"), "tools.0.input_schema: Field required"},
      {with(R"("tools":[{"type":"bash_20250124","name":"bash"}])"), "\"bash_20250124\""},
      // Found once it is a chat request, and told by the body's own names.
      {with(R"("tools":[{"type":"web_search_20250305"},{"name":"a b","input_schema":{}}])"),
       "tools.1.name must not be empty"},
      {with(R"("output_config":{"format":{"type":"json_schema","schema":{}}})"),
       "`output_config.format` is not supported"},
      {with("\"stop_sequences\":[" + many + "]"), "stop_sequences has more than 128"},
      {with(R"("tool_choice":{"type":"sometimes"})"), "tool_choice.type"},
      {with(R"("output_config":{"format":{"type":"xml"}})"), "output_config.format.type"},
      {with(R"("mcp_servers":[{"url":"x"}])"), "mcp_servers"},
      {with(R"("thread":{"type":"create"})"), "`thread` is not supported"},
  };
  for (const auto& [body, expected] : cases) {
    EXPECT_THAT(message_of(body), HasSubstr(expected)) << body;
  }
}

TEST_F(MessagesTest, ErrorsHaveAnthropicsShape) {
  // By this the SDK knows that it must send all messages itself.
  const auto thread =
      refused(kMessages, std::string(R"({"thread":{"type":"create"},)") + kAsk + "}");
  EXPECT_EQ(thread.json()["error"]["details"],
            *parse_json(R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})"));
  std::string text;
  for (int i = 0; i < 1200; ++i) text += " word";
  EXPECT_THAT(
      message_of(R"({"max_tokens":5,"messages":[{"role":"user","content":")" + text + "\"}]}"),
      ::testing::MatchesRegex("prompt is too long: [0-9]+ tokens > 999 maximum"));
  EXPECT_THAT(message_of(R"({"max_tokens":5,"messages":[{"role":"user","content":")" +
                         std::string(1 << 20, ' ') + "\"}]}"),
              StartsWith("prompt is too long: "));
  EXPECT_EQ(get(kMessages).json()["error"]["type"], "invalid_request_error");

  engine::Event last;
  last.reason = engine::FinishReason::kError;
  last.error = "It broke.";
  const auto whole =
      parse_response(answered(kMessages, std::string("{") + kAsk + "}", {"x"}, false, last));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["type"], "api_error");
  const auto streamed = events(std::string("{") + kAsk + "}", {"x"}, last);
  EXPECT_EQ(streamed.back(),
            *parse_json(R"({"type":"error","error":{"type":"api_error","message":"It broke."}})"));

  engine_.refuse({ErrorCode::kResourceExhausted, "The queue is full."});
  const auto full = send(post(kMessages, std::string(R"({"stream":true,)") + kAsk + "}"));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.json()["error"]["type"], "rate_limit_error");
}

TEST_F(MessagesTest, ASilentStreamPings) {
  ServiceOptions options;
  options.keep_alive = std::chrono::milliseconds(20);
  restart(std::move(options));
  auto client = connect();
  client.send(post(kMessages, std::string(R"({"stream":true,)") + kAsk + "}"));
  client.read_until("message_start");
  client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");
  client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");
  engine_.say(0, "One");
  engine_.end_of_turn(0);
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("message_stop"));
}

TEST_F(MessagesTest, AClientThatLeavesStopsTheWork) {
  for (const char* stream : {"false", "true"}) {
    const size_t i = asked_++;
    {
      auto client = connect();
      client.send(post(kMessages, fmt::format("{{{},\"stream\":{}}}", kAsk, stream)));
      engine_.say(i, "x");
      EXPECT_FALSE(engine_.cancelled(i));
    }
    EXPECT_TRUE(is_cancelled(i)) << stream;
  }
}

}  // namespace
}  // namespace lagoon::api
