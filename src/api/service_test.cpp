// The whole HTTP interface over real sockets, with an engine that says what the test tells it to.
#include "api/service.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "api/service_fixture.h"

namespace lagoon::api {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ServiceTest, ChatWhole) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{},\"model\":\"second\",\"max_tokens\":9,\"seed\":1,"
                                      "\"stop\":\"X\"}}",
                                      kHello)));
  const auto request = engine_.request(0);
  EXPECT_EQ(request.prompt, tokenizer().encode("〈|EOS|〉<user>Hello</user>\n<assistant></think>"));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_THAT(request.stop, ElementsAre("X"));
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.7F);
  EXPECT_EQ(request.sampling.seed, 1U);
  engine_.say(0, "Good ");
  engine_.say(0, "day.\n\"h\u00e9\"");
  engine_.end_of_turn(0);
  const auto response = parse_response(client.read_response());
  EXPECT_EQ(response.status, 200);
  const Json& json = response.json();
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "nano");
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Good day.\n\"h\u00e9\"");
  EXPECT_FALSE(choice["message"].contains("reasoning"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_EQ(json["usage"]["prompt_tokens"], request.prompt.size());
  EXPECT_GT(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"].get<int>() +
                                               json["usage"]["completion_tokens"].get<int>());
}

TEST_F(ServiceTest, ChatStreamed) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{},\"stream\":true,\"stream_options\":"
                                      "{{\"include_usage\":true}}}}",
                                      kHello)));
  engine_.request(0);
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(client.read_until("\n\n"), HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  engine_.say(0, "One");
  EXPECT_THAT(client.read_until("\n\n"), HasSubstr(R"("delta":{"content":"One"})"));
  engine_.say(0, " two");
  engine::Event last;
  last.stop_string = "three";
  last.tail = "!";
  engine_.finish(0, last);
  const auto events = events_of("\r\n\r\n" + client.read_until("0\r\n\r\n").substr(2));
  ASSERT_EQ(events.size(), 5U);
  const auto at = [&](size_t i) { return *parse_json(events[i]); };
  EXPECT_EQ(at(0)["choices"][0]["delta"]["content"], " two");
  EXPECT_EQ(at(0)["object"], "chat.completion.chunk");
  EXPECT_TRUE(at(0)["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(at(1)["choices"][0]["delta"]["content"], "!");
  EXPECT_EQ(at(2)["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(at(2)["choices"][0]["stop_reason"], "three");
  EXPECT_EQ(at(3)["choices"], Json::array());
  EXPECT_GT(at(3)["usage"]["completion_tokens"], 0);
  EXPECT_EQ(at(3)["id"], at(0)["id"]);
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(ServiceTest, NoUsageChunkUnlessAsked) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{},\"stream\":true}}", kHello)));
  engine_.say(0, "x");
  engine_.end_of_turn(0);
  EXPECT_THAT(client.read_until("0\r\n\r\n"), Not(HasSubstr("usage")));
}

TEST_F(ServiceTest, ReasoningGoesOutUnderBothNames) {
  const std::string thinking = R"(,"chat_template_kwargs":{"enable_thinking":true}})";
  auto client = connect();
  client.send(post(kChat, std::string("{") + kHello + thinking));
  EXPECT_EQ(engine_.request(0).prompt,
            tokenizer().encode("〈|EOS|〉<user>Hello</user>\n<assistant><think>"));
  engine_.say(0, "Let me see.</think>Fine.");
  engine_.end_of_turn(0);
  const auto whole = parse_response(client.read_response()).json();
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "Let me see.");
  EXPECT_EQ(message["reasoning_content"], "Let me see.");
  EXPECT_EQ(message["content"], "Fine.");
  EXPECT_GT(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);

  client.send(post(kChat, std::string("{\"stream\":true,") + kHello + thinking));
  engine_.say(1, "Let me");
  engine_.say(1, " see.</think>Fi");
  engine_.say(1, "ne.");
  engine_.end_of_turn(1);
  std::string reasoning;
  std::string content;
  for (const auto& event : events_of(client.read_until("\r\n0\r\n\r\n"))) {
    if (event == "[DONE]") continue;
    const Json delta = (*parse_json(event))["choices"][0]["delta"];
    if (delta.contains("reasoning")) {
      EXPECT_EQ(delta["reasoning"], delta["reasoning_content"]);
      reasoning += delta["reasoning"].get<std::string>();
    }
    if (delta.contains("content")) content += delta["content"].get<std::string>();
  }
  EXPECT_EQ(reasoning, "Let me see.");
  EXPECT_EQ(content, "Fine.");
}

TEST_F(ServiceTest, ReasoningThatIsNotClosedLeavesNoContent) {
  auto client = connect();
  client.send(post(kChat, std::string("{\"reasoning_effort\":\"high\",") + kHello + "}"));
  engine_.say(0, "Hmm");
  engine::Event last;
  last.reason = engine::FinishReason::kLength;
  engine_.finish(0, last);
  const auto json = parse_response(client.read_response()).json();
  EXPECT_TRUE(json["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(json["choices"][0]["message"]["reasoning"], "Hmm");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
}

TEST_F(ServiceTest, ThinkingIsOffUnlessSomebodyAsks) {
  const auto last_token_of = [&](size_t i) { return engine_.request(i).prompt.back(); };
  const auto ask = [&](const std::string& more) {
    auto client = connect();
    client.send(post(kChat, std::string("{") + kHello + more + "}"));
    const size_t i = asked_++;
    engine_.request(i);
    engine_.end_of_turn(i);
    client.read_response();
    return last_token_of(i) == *tokenizer().id_of("<think>");
  };
  EXPECT_FALSE(ask(""));
  EXPECT_TRUE(ask(R"(,"chat_template_kwargs":{"enable_thinking":true})"));
  restart(R"({"enable_thinking":true})");
  EXPECT_TRUE(ask(""));
  EXPECT_FALSE(ask(R"(,"chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_FALSE(ask(R"(,"reasoning_effort":"none")"));
  EXPECT_TRUE(ask(R"(,"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})"));
}

TEST_F(ServiceTest, CompletionPrompts) {
  const std::string text = "def f(x):";
  const auto ids = tokenizer().encode(text);
  auto with_bos = ids;
  with_bos.insert(with_bos.begin(), 2);
  const std::string id_list = fmt::format("[{},{}]", ids[0], ids[1]);
  const std::pair<std::string, std::vector<int32_t>> cases[] = {
      {"\"prompt\":\"def f(x):\"", with_bos},
      {"\"prompt\":[\"def f(x):\"]", with_bos},
      {"\"prompt\":\"〈|EOS|〉def f(x):\"", with_bos},
      {"\"prompt\":\"def f(x):\",\"add_special_tokens\":false", ids},
      {"\"prompt\":" + id_list, {ids[0], ids[1]}},
      {"\"prompt\":[" + id_list + "]", {ids[0], ids[1]}},
      {"\"prompt\":\"\"", {2}},
  };
  for (const auto& [field, prompt] : cases) {
    auto client = connect();
    client.send(post("/v1/completions", "{" + field + "}"));
    const size_t i = asked_++;
    EXPECT_EQ(engine_.request(i).prompt, prompt) << field;
    EXPECT_EQ(engine_.request(i).max_tokens, 16);
    engine_.say(i, " return x");
    engine_.end_of_turn(i);
    const auto json = parse_response(client.read_response()).json();
    EXPECT_THAT(json["id"].get<std::string>(), StartsWith("cmpl-"));
    EXPECT_EQ(json["object"], "text_completion");
    EXPECT_EQ(json["choices"][0]["text"], " return x");
    EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(json["usage"]["prompt_tokens"], prompt.size());
  }
}

TEST_F(ServiceTest, CompletionStreamed) {
  auto client = connect();
  client.send(post("/v1/completions",
                   R"({"prompt":[7],"stream":true,"stop_token_ids":[9],"skip_special_tokens":false,
                       "stream_options":{"include_usage":true,"continuous_usage_stats":true}})"));
  const auto request = engine_.request(0);
  EXPECT_THAT(request.stop_tokens, ElementsAre(9));
  EXPECT_FALSE(request.skip_special_tokens);
  engine_.say(0, "a b");
  engine::Event last;
  last.stop_token = 9;
  engine_.finish(0, last);
  const auto events = events_of(client.read_until("\r\n0\r\n\r\n"));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ((*parse_json(events[0]))["choices"][0]["text"], "a b");
  EXPECT_GT((*parse_json(events[0]))["usage"]["completion_tokens"], 0);
  EXPECT_EQ((*parse_json(events[1]))["choices"][0]["stop_reason"], 9);
  EXPECT_EQ((*parse_json(events[2]))["choices"], Json::array());
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(ServiceTest, RefusesWhatItCannotRead) {
  struct Case {
    const char* path;
    std::string body;
    int status;
    const char* type;
    const char* param;  // null: null
  };
  const std::string hello = kHello;
  const Case cases[] = {
      {kChat, "", 400, "Bad Request", nullptr},
      {kChat, "{", 400, "Bad Request", nullptr},
      {kChat, "[]", 400, "Bad Request", nullptr},
      {kChat, "{\"messages\":\"\xff\"}", 400, "Bad Request", nullptr},
      {kChat, "{}", 400, "Bad Request", "messages"},
      {kChat, R"({"messages":"x"})", 400, "Bad Request", "messages"},
      {kChat, "{" + hello + R"(,"model":"other"})", 404, "NotFoundError", "model"},
      {kChat, "{" + hello + R"(,"model":5})", 400, "Bad Request", "model"},
      {kChat, "{" + hello + R"(,"n":0})", 400, "BadRequestError", "n"},
      {kChat, "{" + hello + R"(,"chat_template_kwargs":{"messages":[]}})", 400, "BadRequestError",
       "chat_template_kwargs.messages"},
      {kChat, "{" + hello + R"(,"chat_template_kwargs":{"a":1,"enable_thinking":"false"}})", 400,
       "BadRequestError", "chat_template_kwargs.enable_thinking"},
      {kChat, "{" + hello + R"(,"reasoning_effort":"huge"})", 400, "Bad Request",
       "reasoning_effort"},
      {kChat, "{" + hello + R"(,"max_tokens":999})", 400, "BadRequestError", "input_tokens"},
      {"/v1/completions", "{}", 400, "Bad Request", "prompt"},
      {"/v1/completions", R"({"prompt":[]})", 400, "BadRequestError", "prompt"},
      {"/v1/completions", R"({"prompt":["a",5]})", 400, "Bad Request", "prompt.1"},
      {"/v1/completions", R"({"prompt":["a",[1,"b"]]})", 400, "Bad Request", "prompt.1.1"},
      {"/v1/completions", R"({"prompt":[1,"a"]})", 400, "Bad Request", "prompt.1"},
      {"/v1/completions", R"({"prompt":[4096]})", 400, "BadRequestError", "prompt"},
      {"/v1/completions", R"({"prompt":"","add_special_tokens":false})", 400, "BadRequestError",
       "prompt"},
      {"/v1/completions", R"({"prompt":{"a":1}})", 400, "Bad Request", "prompt"},
  };
  for (const Case& c : cases) {
    const auto response = refused(c.path, c.body);
    EXPECT_EQ(response.status, c.status) << c.body;
    const Json& error = response.json()["error"];
    EXPECT_EQ(error["code"], c.status) << c.body;
    EXPECT_EQ(error["type"], c.type) << c.body;
    EXPECT_EQ(error["param"], c.param == nullptr ? Json() : Json(c.param)) << c.body;
    EXPECT_NE(error["message"], "") << c.body;
  }
  EXPECT_EQ(refused(kChat, "{" + hello + R"(,"model":"other"})").json()["error"]["message"],
            "The model `other` does not exist.");
}

// Taking megabytes of blanks apart would take seconds of a worker's time, for the same answer.
TEST_F(ServiceTest, AHugePromptIsRefusedByItsBytes) {
  const std::string blanks(1 << 20, ' ');
  const size_t least = blanks.size() / tokenizer().most_bytes_of_a_token();
  const std::string at_least = fmt::format("contains at least {} input tokens", least);
  for (const std::string& answer :
       {refused("/v1/completions", R"({"prompt":")" + blanks + "\"}").body,
        refused(kChat, R"({"messages":[{"role":"user","content":")" + blanks + "\"}]}").body}) {
    EXPECT_THAT(answer, HasSubstr("contains at least "));
  }
  EXPECT_THAT(refused("/v1/completions", R"({"prompt":")" + blanks + "\"}").body,
              HasSubstr(at_least));
}

TEST_F(ServiceTest, TooLongAPromptIsToldInTheWordsClientsRead) {
  std::string text;
  for (int i = 0; i < 1200; ++i) text += " word";
  const auto error =
      refused(kChat, R"({"messages":[{"role":"user","content":")" + text + "\"}]}").json()["error"];
  EXPECT_EQ(error["param"], "input_tokens");
  EXPECT_EQ(error["reason"], "context_length_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(),
              StartsWith("This model's maximum context length is 1000 tokens. However, "));
}

TEST_F(ServiceTest, WhatTheEngineRefuses) {
  engine_.refuse({ErrorCode::kResourceExhausted, "The queue is full."});
  const auto full = send(post(kChat, fmt::format("{{{}}}", kHello)));
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_EQ(full.json()["error"]["message"], "The queue is full.");
  engine_.refuse({ErrorCode::kInvalidArgument, "No."});
  EXPECT_EQ(send(post(kChat, fmt::format("{{{},\"stream\":true}}", kHello))).status, 400);
}

TEST_F(ServiceTest, ErrorsOfTheEngine) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{}}}", kHello)));
  engine::Event last;
  last.reason = engine::FinishReason::kError;
  last.error = "The world \"broke\".";
  engine_.finish(0, last);
  const auto whole = parse_response(client.read_response());
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], last.error);

  client.send(post(kChat, fmt::format("{{{},\"stream\":true}}", kHello)));
  engine_.say(1, "x");
  engine_.finish(1, last);
  const auto events = events_of(client.read_until("\r\n0\r\n\r\n"));
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ((*parse_json(events[events.size() - 2]))["error"]["message"], last.error);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(ServiceTest, AClientThatLeavesStopsTheWork) {
  for (const char* stream : {"false", "true"}) {
    const size_t i = asked_++;
    {
      auto client = connect();
      client.send(post(kChat, fmt::format("{{{},\"stream\":{}}}", kHello, stream)));
      engine_.say(i, "x");
      EXPECT_FALSE(engine_.cancelled(i));
    }
    for (int wait = 0; wait < 1000 && !engine_.cancelled(i); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(engine_.cancelled(i)) << stream;
  }
}

TEST_F(ServiceTest, SmallEndpoints) {
  EXPECT_EQ(get("/ping").status, 200);
  EXPECT_EQ(send(post("/ping", "")).status, 200);
  EXPECT_THAT(get("/version").json()["version"].get<std::string>(), HasSubstr("."));
  const auto models = get("/v1/models").json();
  ASSERT_EQ(models["data"].size(), 2U);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "nano");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["root"], "/models/nano");
  EXPECT_EQ(models["data"][0]["max_model_len"], 1000);
  EXPECT_TRUE(models["data"][0]["parent"].is_null());
  EXPECT_EQ(get("/v1/models/second").json()["id"], "second");
  EXPECT_EQ(get("/v1/models/s%65con%64").json()["id"], "second");
  EXPECT_EQ(get("/v1/models/third").status, 404);
  EXPECT_EQ(get("/v1/models/second%").status, 404);
}

TEST_F(ServiceTest, MethodsAndPaths) {
  const auto wrong = get(kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.head, HasSubstr("Allow: POST, OPTIONS\r\n"));
  EXPECT_EQ(wrong.json()["error"]["code"], 405);
  EXPECT_EQ(send(post("/v1/models", "{}")).status, 405);
  EXPECT_EQ(get("/v1/nothing").status, 404);
  EXPECT_EQ(get("/v1/nothing").json()["error"]["type"], "NotFoundError");
  const auto options = send(fmt::format("OPTIONS {} HTTP/1.1\r\nHost: x\r\n\r\n", kChat));
  EXPECT_EQ(options.status, 204);
  EXPECT_THAT(options.head, HasSubstr("Allow: POST, OPTIONS\r\n"));
  auto client = connect();
  client.send("HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read_all(), EndsWith("\r\n\r\n"));
}

TEST_F(ServiceTest, MetricsAreText) {
  EXPECT_EQ(get("/metrics").status, 200);
  EXPECT_THAT(get("/metrics").head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
}

TEST_F(ServiceTest, UnknownFieldsAreAccepted) {
  auto client = connect();
  client.send(post(kChat, fmt::format("{{{},\"made_up\":1}}", kHello)));
  engine_.end_of_turn(0);
  EXPECT_EQ(parse_response(client.read_response()).status, 200);
}

TEST(ServiceOptionsTest, BadTemplateKwargs) {
  EXPECT_EQ(parse_template_kwargs("")->size(), 0U);
  EXPECT_EQ(parse_template_kwargs("{}")->size(), 0U);
  EXPECT_TRUE(
      parse_template_kwargs(R"({"enable_thinking":true})")->find("enable_thinking")->boolean());
  for (const char* bad : {"{x", "[]", R"({"enable_thinking":"false"})", R"({"thinking":null})"}) {
    const auto kwargs = parse_template_kwargs(bad);
    ASSERT_FALSE(kwargs.ok()) << bad;
    EXPECT_THAT(kwargs.error().message, HasSubstr("--default-chat-template-kwargs")) << bad;
  }
}

}  // namespace
}  // namespace lagoon::api
