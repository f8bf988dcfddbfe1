// /v1/responses over real sockets, with an engine that says what the test tells it to.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "api/service_fixture.h"

namespace lagoon::api {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kResponses = "/v1/responses";
constexpr const char* kFunction =
    R"({"type":"function","name":"get_weather","description":"d","strict":false,)"
    R"("parameters":{"type":"object","properties":{"city":{"type":"string"}}}})";
const std::string kCall =
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";

class ResponsesTest : public ServiceTest {
 protected:
  Json whole(const std::string& body, const std::vector<std::string>& steps,
             engine::Event last = end_of_turn()) {
    const auto response = parse_response(answered(kResponses, body, steps, false, std::move(last)));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json();
  }
  std::vector<Json> events(const std::string& body, const std::vector<std::string>& steps,
                           engine::Event last = end_of_turn()) {
    std::vector<Json> parsed;
    for (const auto& event : events_of(answered(kResponses, body, steps, true, std::move(last)))) {
      parsed.push_back(*parse_json(event));
      EXPECT_EQ(parsed.back()["sequence_number"], parsed.size() - 1);
    }
    return parsed;
  }
  std::string prompt_of(const std::string& body) {
    const auto rendered = send(post("/v1/responses/render", body));
    EXPECT_EQ(rendered.status, 200) << rendered.body;
    return rendered.status == 200 ? rendered.json()["prompt"].get<std::string>() : "";
  }
  static engine::Event end_of_turn() {
    engine::Event last;
    last.stop_token = 5;
    return last;
  }
  static engine::Event limit() {
    engine::Event last;
    last.reason = engine::FinishReason::kLength;
    return last;
  }
};

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    // Pieces of one thing count once.
    if (!types.empty() && event["type"] == types.back()) continue;
    types.push_back(event["type"]);
  }
  return types;
}

// The texts of all deltas that belong to an item.
std::string deltas_of(const std::vector<Json>& events, size_t output_index) {
  std::string text;
  for (const Json& event : events) {
    if (event.contains("delta") && event["output_index"] == output_index) {
      text += event["delta"].get<std::string>();
    }
  }
  return text;
}

// Without what differs from answer to answer.
Json comparable(Json response) {
  response.erase("id");
  response.erase("created_at");
  for (Json& item : response["output"]) {
    item.erase("id");
    item.erase("call_id");
  }
  return response;
}

TEST_F(ResponsesTest, Whole) {
  const Json json = whole(R"({"model":"second","input":"Hello","instructions":"Be short.",
      "temperature":0,"max_output_tokens":50,"metadata":{"a":"b"},"reasoning":{"effort":"none"}})",
                          {"Good ", "day."});
  EXPECT_EQ(engine_.request(0).prompt,
            tokenizer().encode("〈|EOS|〉<system>Be short.</system>\n<user>Hello</user>\n"
                               "<assistant></think>"));
  EXPECT_EQ(engine_.request(0).max_tokens, 50);
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("resp_"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["model"], "nano");
  EXPECT_EQ(json["instructions"], "Be short.");
  EXPECT_EQ(json["metadata"]["a"], "b");
  EXPECT_EQ(json["max_output_tokens"], 50);
  EXPECT_TRUE(json["error"].is_null());
  ASSERT_EQ(json["output"].size(), 1U);
  EXPECT_EQ(json["output"][0]["type"], "message");
  EXPECT_EQ(json["output"][0]["status"], "completed");
  EXPECT_EQ(json["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Good day.");
  const Json& usage = json["usage"];
  EXPECT_EQ(usage["input_tokens"], engine_.request(0).prompt.size());
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(usage["total_tokens"],
            usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
}

TEST_F(ResponsesTest, EventsComeInTheOrderThatClientsRelyOn) {
  const auto all = events(std::string(R"({"reasoning":{"effort":"low"},"tools":[)") + kFunction +
                              R"(],"input":"Weather?"})",
                          {"I ", "look.</think>Looking", ".", kCall});
  EXPECT_THAT(
      types_of(all),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  EXPECT_EQ(deltas_of(all, 0), "I look.");
  EXPECT_EQ(deltas_of(all, 1), "Looking.");
  EXPECT_EQ(deltas_of(all, 2), "{\"city\": \"Paris\"}");
  const Json& response = all.back()["response"];
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  for (const Json& event : all) {
    if (event["type"] == "response.output_item.done") {
      EXPECT_EQ(event["item"], response["output"][event["output_index"].get<size_t>()]);
    }
  }
  EXPECT_EQ(response["output"][2]["name"], "get_weather");
  EXPECT_EQ(response["output"][2]["arguments"], "{\"city\": \"Paris\"}");
}

TEST_F(ResponsesTest, AStreamIsTheWholeInPieces) {
  const std::string tools = std::string(R"("tools":[)") + kFunction + R"(],)";
  for (const std::vector<std::string>& steps : std::vector<std::vector<std::string>>{
           {"Just text."}, {kCall, kCall}, {"See.", kCall, "After."}, {""}}) {
    for (const bool at_limit : {false, true}) {
      const std::string body = "{" + tools + R"("input":"x","store":false})";
      const engine::Event last = at_limit ? limit() : end_of_turn();
      const Json expected = whole(body, steps, last);
      const auto all = events(body, steps, last);
      EXPECT_EQ(all.back()["type"], "response.completed");
      EXPECT_EQ(comparable(all.back()["response"]), comparable(expected));
    }
  }
}

TEST_F(ResponsesTest, AnAnswerThatALimitEndsIsIncomplete) {
  const Json text = whole(R"({"input":"x","max_output_tokens":3})", {"One"}, limit());
  EXPECT_EQ(text["status"], "incomplete");
  EXPECT_EQ(text["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(text["output"][0]["status"], "incomplete");
  // Clients run a call that is done: one that was cut off is not.
  const auto all = events(std::string(R"({"tools":[)") + kFunction + R"(],"input":"x"})",
                          {kCall, kCall.substr(0, kCall.find("ris"))}, limit());
  int done = 0;
  for (const Json& event : all) done += event["type"] == "response.output_item.done" ? 1 : 0;
  EXPECT_EQ(done, 1);
  const Json& output = all.back()["response"]["output"];
  ASSERT_EQ(output.size(), 2U);
  EXPECT_EQ(output[0]["status"], "completed");
  EXPECT_EQ(output[1]["status"], "incomplete");
}

TEST_F(ResponsesTest, ToolsOfEveryKind) {
  const std::string tools = std::string(R"("tools":[)") + kFunction + R"(,
      {"type":"custom","name":"patch","description":"Patch.",
       "format":{"type":"grammar","syntax":"lark","definition":"start: X"}},
      {"type":"namespace","name":"mcp__files","description":"Files","tools":[
        {"type":"function","name":"open","parameters":{"type":"object","properties":{}}}]},
      {"type":"local_shell"}])";
  const std::string body = "{" + tools + R"(,"input":"x"})";
  const std::vector<std::string> steps = {
      "<tool_call>patch\n<arg_key>input</arg_key>\n<arg_value>a \"b\"\nc</arg_value>\n</tool_call>",
      "<tool_call>mcp__files__open\n</tool_call>",
      "<tool_call>local_shell\n<arg_key>command</arg_key>\n<arg_value>[\"ls\", "
      "\"-l\"]</arg_value>\n"
      "<arg_key>timeout_ms</arg_key>\n<arg_value>100</arg_value>\n</tool_call>",
      kCall};
  const Json json = whole(body, steps);
  ASSERT_EQ(json["output"].size(), 4U);
  const Json& custom = json["output"][0];
  EXPECT_EQ(custom["type"], "custom_tool_call");
  EXPECT_EQ(custom["name"], "patch");
  EXPECT_EQ(custom["input"], "a \"b\"\nc");
  const Json& spaced = json["output"][1];
  EXPECT_EQ(spaced["type"], "function_call");
  EXPECT_EQ(spaced["namespace"], "mcp__files");
  EXPECT_EQ(spaced["name"], "open");
  EXPECT_EQ(spaced["arguments"], "{}");
  const Json& shell = json["output"][2];
  EXPECT_EQ(shell["type"], "local_shell_call");
  EXPECT_EQ(shell["action"]["type"], "exec");
  EXPECT_EQ(shell["action"]["command"], *parse_json(R"(["ls","-l"])"));
  EXPECT_EQ(shell["action"]["timeout_ms"], 100);
  EXPECT_FALSE(json["output"][3].contains("namespace"));

  // A model that leaves the namespace out means the one tool of that name.
  EXPECT_EQ(comparable(whole(body, {"<tool_call>open\n</tool_call>"}))["output"],
            comparable(whole(body, {steps[1]}))["output"]);
  EXPECT_EQ(whole(body, {"<tool_call>close\n</tool_call>"})["output"][0]["name"], "close");

  const auto all = events(body, steps);
  EXPECT_EQ(comparable(all.back()["response"]), comparable(json));
  EXPECT_EQ(deltas_of(all, 0), "a \"b\"\nc");
  EXPECT_THAT(types_of(all), Contains("response.custom_tool_call_input.done"));
  const std::string prompt = prompt_of(body);
  for (const char* shown : {"\"patch\"", "lark grammar", "mcp__files__open", "local_shell"}) {
    EXPECT_THAT(prompt, HasSubstr(shown));
  }
}

TEST_F(ResponsesTest, CallsAndTheirOutputsComeBack) {
  EXPECT_EQ(
      prompt_of(R"({"instructions":"I.","input":[
      {"type":"message","role":"developer","content":[{"type":"input_text","text":"D."}]},
      {"role":"user","content":"Go"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Looking."}]},
      {"type":"function_call","call_id":"a","name":"open","namespace":"mcp__f","arguments":"{\"p\":1}"},
      {"type":"custom_tool_call","call_id":"b","name":"patch","input":"x\ny"},
      {"type":"local_shell_call","call_id":"c","status":"completed",
       "action":{"type":"exec","command":["ls"],"env":{},"timeout_ms":null}},
      {"type":"function_call_output","call_id":"a","output":"one"},
      {"type":"custom_tool_call_output","call_id":"b","output":[{"type":"input_text","text":"two"}]},
      {"type":"local_shell_call_output","call_id":"c","output":"three"},
      {"type":"reasoning","summary":[],"encrypted_content":"lagoon:Well."},
      {"type":"reasoning","summary":[],"encrypted_content":"gAAAA"},
      {"role":"assistant","content":null},
      {"role":"user","content":null}]})"),
      "〈|EOS|〉<system>I.</system>\n<system>D.</system>\n<user>Go</user>\n"
      "<assistant><think>Hm.</think>Looking.<tool_call>mcp__f__open\n<arg_key>p</arg_key>\n"
      "<arg_value>1</arg_value>\n</tool_call><tool_call>patch\n<arg_key>input</arg_key>\n"
      "<arg_value>x\ny</arg_value>\n</tool_call><tool_call>local_shell\n"
      "<arg_key>command</arg_key>\n<arg_value>[\"ls\"]</arg_value>\n</tool_call></assistant>\n"
      "<tool_response>one</tool_response>\n<tool_response>two</tool_response>\n"
      "<tool_response>three</tool_response>\n<assistant><think>Well.</think></assistant>\n"
      "<user></user>\n<assistant></think>");
}

TEST_F(ResponsesTest, ReasoningCanComeSealed) {
  const Json json = whole(R"({"input":"x","reasoning":{"effort":"high"},"store":false,
      "include":["reasoning.encrypted_content"]})",
                          {"Hm.</think>Yes"});
  const Json& reasoning = json["output"][0];
  EXPECT_EQ(reasoning["content"][0]["text"], "Hm.");
  // A client that keeps nothing but this sends all of it back.
  const Json input = Json::array({{{"role", "user"}, {"content", "x"}},
                                  {{"type", "reasoning"},
                                   {"summary", Json::array()},
                                   {"encrypted_content", reasoning["encrypted_content"]}},
                                  json["output"][1],
                                  {{"role", "user"}, {"content", "y"}}});
  EXPECT_THAT(prompt_of(Json({{"input", input}}).dump()),
              HasSubstr("<assistant><think>Hm.</think>Yes</assistant>"));
}

TEST_F(ResponsesTest, AnAnswerGoesOnWithOneThatIsKept) {
  const std::string tools = std::string(R"("tools":[)") + kFunction + "]";
  const Json first = whole("{" + tools + R"(,"input":"Weather?","instructions":"Old."})", {kCall});
  const std::string id = first["id"];
  const std::string call = first["output"][0]["call_id"];
  const Json second = whole(
      fmt::format(R"({{"previous_response_id":"{}","instructions":"New.",)"
                  R"("input":[{{"type":"function_call_output","call_id":"{}","output":"21"}}]}})",
                  id, call),
      {"21 degrees."});
  EXPECT_EQ(second["previous_response_id"], id);
  const std::string expected =
      "〈|EOS|〉<system>New.</system>\n<user>Weather?</user>\n<assistant></think>"
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
      "</tool_call></assistant>\n<tool_response>21</tool_response>\n<assistant></think>";
  EXPECT_EQ(engine_.request(1).prompt, tokenizer().encode(expected));
  // And with the one that went on.
  EXPECT_THAT(prompt_of(fmt::format(R"({{"previous_response_id":"{}","input":"Thanks"}})",
                                    second["id"].get<std::string>())),
              HasSubstr("<tool_response>21</tool_response>\n<assistant></think>21 degrees."
                        "</assistant>\n<user>Thanks</user>"));
  EXPECT_EQ(get("/v1/responses/" + id).json(), first);
  const std::string gone = "DELETE /v1/responses/" + id + " HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(send(gone).json()["deleted"], true);
  EXPECT_EQ(send(gone).status, 404);
  EXPECT_EQ(get("/v1/responses/" + id).status, 404);
  const auto lost =
      refused(kResponses, fmt::format(R"({{"previous_response_id":"{}","input":"x"}})", id));
  EXPECT_EQ(lost.status, 404);
  EXPECT_EQ(lost.json()["error"]["param"], "previous_response_id");
}

TEST_F(ResponsesTest, NothingIsKeptThatShallNotBe) {
  const Json json = whole(R"({"input":"x","store":false})", {"One"});
  EXPECT_EQ(get("/v1/responses/" + json["id"].get<std::string>()).status, 404);
  ServiceOptions options;
  options.max_response_store_bytes = 0;
  restart(std::move(options));
  const Json other = whole(R"({"input":"x"})", {"One"});
  EXPECT_EQ(get("/v1/responses/" + other["id"].get<std::string>()).status, 404);
}

TEST_F(ResponsesTest, WhatCannotBeRead) {
  const auto items = [](const std::string& list) { return "{\"input\":" + list + "}"; };
  const auto with = [](const std::string& fields) { return R"({"input":"x",)" + fields + "}"; };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "JSON object"},
      {"{}", "input: Field required"},
      {items("[]"), "input must not be empty"},
      {items("7"), "input: Input should be a string or a list of items"},
      {items("[7]"), "input.0: Input should be an object"},
      {items(R"([{"content":"x"}])"), "input.0.role"},
      {items(R"([{"role":"tool","content":"x"}])"), "input.0.role"},
      {items(R"([{"role":"user","content":[7]}])"), "input.0.content.0"},
      {items(R"([{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])"),
       "input.0.content.0: images are not supported"},
      {items(R"([{"role":"user","content":[{"type":"input_file"}]}])"), "\"input_file\""},
      {items(R"([{"type":"item_reference","id":"x"}])"), "\"item_reference\""},
      {items(R"([{"type":"web_search_call","id":"x"}])"), "\"web_search_call\""},
      {items(R"([{"type":"function_call","name":"f","arguments":"{}"}])"), "input.0.call_id"},
      {items(R"([{"type":"function_call_output","output":"x"}])"), "input.0.id"},
      {items(R"([{"type":"custom_tool_call","call_id":"a","name":"f"}])"), "input.0.input"},
      {items(R"([{"type":"local_shell_call","call_id":"a"}])"), "input.0.action"},
      {with(R"("tools":[{"type":"web_search"}])"), "type web_search are not supported"},
      {with(R"("tools":[{"type":"web_search_preview"}])"), "type web_search_preview"},
      {with(R"("tools":[{"type":"image_generation"}])"), "\"image_generation\""},
      {with(R"("tools":[{"type":"shell"}])"), "\"shell\""},
      {with(R"("tools":[{"name":"f"}])"), "tools.0.type: Field required"},
      {with(R"("tools":[{"type":"function"}])"), "tools.0.name: Field required"},
      {with(R"("tools":[{"type":"namespace","name":"n"}])"), "tools.0.tools: Field required"},
      {with(R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"mcp"}]}])"),
       "tools.0.tools.0.type"},
      {with(R"("tool_choice":{"type":"allowed_tools"})"), "\"allowed_tools\""},
      {with(R"("background":true)"), "`background` is not supported"},
      {with(R"("prompt":{"id":"x"})"), "`prompt`"},
      {with(R"("conversation":"c")"), "`conversation`"},
      {with(R"("truncation":"auto")"), "`truncation`"},
      {with(R"("top_logprobs":3)"), "`top_logprobs`"},
      {with(R"("include":["message.output_text.logprobs"])"), "include.0"},
      {with(R"("max_output_tokens":0)"), "max_output_tokens must be at least 1"},
      {with(R"("max_output_tokens":1000000000)"), "max_output_tokens=1000000000 cannot be greater"},
      {with(R"("reasoning":{"effort":"extreme"})"), "reasoning.effort: Input should be"},
      {with(R"("text":{"format":{"type":"json_object"}})"), "`text.format` is not supported"},
      {with(R"("tools":[{"type":"namespace","name":"n","tools":[{"name":"f"},{"name":"f"}]}])"),
       "tools.0.tools.1.name: another tool"},
      {with(R"("tools":[{"type":"local_shell"},{"type":"local_shell"}])"), "tools.1.name"},
      {with(R"("text":{"format":{}})"), "text.format.type"},
      {with(R"("model":"other")"), "does not exist"},
  };
  for (const auto& [body, expected] : cases) {
    const auto response = refused(kResponses, body);
    EXPECT_EQ(response.status, expected == "does not exist" ? 404 : 400) << body;
    EXPECT_THAT(response.json()["error"]["message"].get<std::string>(), HasSubstr(expected))
        << body;
  }
}

TEST_F(ResponsesTest, AnOverflowIsToldWhereCodexLooksForIt) {
  std::string text;
  for (int i = 0; i < 1200; ++i) text += " word";
  const std::string input = R"("instructions":"I.","input":")" + text + "\"}";
  const auto whole = refused(kResponses, "{" + input);
  EXPECT_EQ(whole.status, 400);
  EXPECT_EQ(whole.json()["error"]["reason"], "context_length_exceeded");
  EXPECT_THAT(whole.json()["error"]["message"].get<std::string>(),
              StartsWith("This model's maximum context length is 1000 tokens."));
  auto client = connect();
  client.send(post(kResponses, R"({"stream":true,)" + input));
  const auto all = events_of(client.read_until("\r\n0\r\n\r\n"));
  ASSERT_EQ(all.size(), 3U);
  const Json failed = *parse_json(all.back());
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["status"], "failed");
  EXPECT_TRUE(failed["response"]["instructions"].is_null());
  EXPECT_EQ(failed["response"]["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(engine_.requests(), 0U);
}

TEST_F(ResponsesTest, AFailureEndsTheStream) {
  engine::Event last;
  last.reason = engine::FinishReason::kError;
  last.error = "It broke.";
  const auto all = events(R"({"input":"x"})", {"One"}, last);
  EXPECT_EQ(all.back()["type"], "response.failed");
  EXPECT_EQ(all.back()["response"]["error"],
            *parse_json(R"({"code":"server_error","message":"It broke."})"));
  EXPECT_EQ(get("/v1/responses/" + all.back()["response"]["id"].get<std::string>()).status, 404);
  const auto whole = parse_response(answered(kResponses, R"({"input":"x"})", {"One"}, false, last));
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], "It broke.");
}

// Comments would not do: Codex counts events.
TEST_F(ResponsesTest, ASilentStreamHasEvents) {
  ServiceOptions options;
  options.keep_alive = std::chrono::milliseconds(20);
  restart(std::move(options));
  auto client = connect();
  client.send(post(kResponses, R"({"stream":true,"input":"x"})"));
  client.read_until("response.created");
  for (int number = 2; number < 4; ++number) {
    client.read_until(
        fmt::format("event: response.in_progress\ndata: "
                    R"({{"type":"response.in_progress","sequence_number":{},)",
                    number));
  }
  engine_.say(0, "One");
  // With what there is by now, since clients put it in place of what they have.
  EXPECT_THAT(client.read_until("\"text\":\"One\""), Not(HasSubstr("output_text.done")));
  engine_.end_of_turn(0);
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("response.completed"));
  EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
}

TEST_F(ResponsesTest, AClientThatLeavesStopsTheWork) {
  for (const char* stream : {"false", "true"}) {
    const size_t i = asked_++;
    {
      auto client = connect();
      client.send(post(kResponses, fmt::format(R"({{"input":"x","stream":{}}})", stream)));
      engine_.say(i, "x");
      EXPECT_FALSE(engine_.cancelled(i));
    }
    EXPECT_TRUE(is_cancelled(i)) << stream;
  }
}

}  // namespace
}  // namespace lagoon::api
