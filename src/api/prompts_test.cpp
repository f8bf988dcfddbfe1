// What becomes of the prompt's fields: /tokenize, /detokenize, the render endpoints, prefill.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/service_fixture.h"

namespace lagoon::api {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class PromptsTest : public ServiceTest {
 protected:
  Json answer(const std::string& path, const std::string& body) {
    const auto response = refused(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json();
  }
  std::string rendered(const std::string& body) {
    return answer("/v1/chat/completions/render", body)["prompt"].get<std::string>();
  }
  // `param` of the error that a body is answered with.
  Json problem(const std::string& path, const std::string& body) {
    const auto response = refused(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"]["param"];
  }
};

TEST_F(PromptsTest, TokenizeText) {
  auto ids = tokenizer().encode("Hello, h\u00e9!");
  const Json plain = answer("/tokenize", R"({"prompt":"Hello, hé!","add_special_tokens":false,
      "return_token_strs":true,"model":"nano"})");
  EXPECT_EQ(plain["tokens"], Json(ids));
  EXPECT_EQ(plain["count"], ids.size());
  EXPECT_EQ(plain["max_model_len"], 1000);
  EXPECT_EQ(plain["token_strs"].size(), ids.size());
  ids.insert(ids.begin(), 2);
  const Json with_prefix = answer("/tokenize", R"({"prompt":"Hello, hé!"})");
  EXPECT_EQ(with_prefix["tokens"], Json(ids));
  EXPECT_TRUE(with_prefix["token_strs"].is_null());
  EXPECT_EQ(answer("/detokenize", fmt::format(R"({{"tokens":{}}})", Json(ids).dump()))["prompt"],
            "〈|EOS|〉Hello, hé!");
  EXPECT_EQ(answer("/detokenize", R"({"tokens":[]})")["prompt"], "");
}

TEST_F(PromptsTest, TokenizeMessages) {
  const Json json = answer("/tokenize", std::string("{") + kHello + "}");
  EXPECT_EQ(json["tokens"],
            Json(tokenizer().encode("〈|EOS|〉<user>Hello</user>\n<assistant></think>")));
  EXPECT_EQ(answer("/tokenize",
                   std::string(R"({"add_generation_prompt":false,)") + kHello + "}")["tokens"],
            Json(tokenizer().encode("〈|EOS|〉<user>Hello</user>\n")));
}

TEST_F(PromptsTest, BadTokenRequests) {
  EXPECT_EQ(problem("/tokenize", "{}"), "prompt");
  EXPECT_EQ(problem("/tokenize", R"({"prompt":5})"), "prompt");
  EXPECT_EQ(problem("/tokenize", std::string(R"({"prompt":"x",)") + kHello + "}"), "prompt");
  EXPECT_EQ(problem("/tokenize", R"({"messages":[]})"), "messages");
  EXPECT_EQ(problem("/detokenize", "{}"), "tokens");
  EXPECT_EQ(problem("/detokenize", R"({"tokens":"x"})"), "tokens");
  EXPECT_EQ(problem("/detokenize", R"({"tokens":[1,-1]})"), "tokens.1");
  EXPECT_EQ(problem("/detokenize", R"({"tokens":[4096]})"), "tokens.0");
  EXPECT_EQ(refused("/tokenize", R"({"prompt":"x","model":"other"})").status, 404);
  EXPECT_EQ(get("/tokenize").status, 405);
}

TEST_F(PromptsTest, RenderShowsWhatWouldBeComputed) {
  const Json json = answer("/v1/chat/completions/render",
                           std::string(R"({"temperature":0.5,"seed":7,"n":2,"max_tokens":9,
      "logit_bias":{"5":1.5},"stop":["a"],)") +
                               kHello + "}");
  EXPECT_EQ(json["prompt"], "〈|EOS|〉<user>Hello</user>\n<assistant></think>");
  EXPECT_EQ(json["token_ids"], Json(tokenizer().encode(json["prompt"].get<std::string>())));
  EXPECT_EQ(json["n"], 2);
  EXPECT_EQ(json["sampling_params"]["temperature"], 0.5);
  EXPECT_EQ(json["sampling_params"]["seed"], 7);
  EXPECT_EQ(json["sampling_params"]["max_tokens"], 9);
  EXPECT_EQ(json["sampling_params"]["logit_bias"]["5"], 1.5);
  EXPECT_EQ(json["sampling_params"]["stop"], Json({"a"}));
  const Json list = answer("/v1/completions/render", R"({"prompt":["a",[7]]})");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["prompt"], "〈|EOS|〉a");
  EXPECT_EQ(list[1]["token_ids"], Json({7}));
  EXPECT_EQ(problem("/v1/completions/render", R"({"prompt":[]})"), "prompt");
  EXPECT_EQ(problem("/v1/chat/completions/render", std::string(R"({"n":0,)") + kHello + "}"), "n");
}

TEST_F(PromptsTest, AFinalMessageIsContinued) {
  const auto prefill = [](const std::string& last) {
    return R"({"add_generation_prompt":false,"continue_final_message":true,"messages":[
        {"role":"user","content":"yes"},{"role":"assistant",)" +
           last + "}]}";
  };
  const std::string before = "〈|EOS|〉<user>yes</user>\n<assistant>";
  // The text also stands before the place that counts.
  EXPECT_EQ(rendered(prefill(R"("content":"yes")")), before + "</think>yes");
  EXPECT_EQ(rendered(prefill(R"("content":"a b  ")")), before + "</think>a b  ");
  EXPECT_EQ(rendered(prefill(R"("content":"")")), before + "</think>");
  EXPECT_EQ(rendered(prefill(R"("content":"so","reasoning":"hm")")),
            before + "<think>hm</think>so");
  EXPECT_EQ(rendered(prefill(R"("reasoning_content":"hm")")), before + "<think>hm");
  EXPECT_EQ(rendered(prefill(R"("content":"<think>hm")")), before + "<think>hm");
  const std::string call =
      R"("content":"x","tool_calls":[{"function":{"name":"f","arguments":""}}])";
  EXPECT_EQ(problem(kChat, prefill(call)), "continue_final_message");
  EXPECT_EQ(problem(kChat, std::string(R"({"continue_final_message":true,)") + kHello + "}"),
            "continue_final_message");
}

TEST_F(PromptsTest, AnAnswerGoesOnInTheReasoningItBeganIn) {
  auto client = connect();
  client.send(post(kChat, R"({"add_generation_prompt":false,"continue_final_message":true,
      "messages":[{"role":"user","content":"x"},{"role":"assistant","reasoning":"I th"}]})"));
  engine_.say(0, "ink.</think>So.");
  engine_.end_of_turn(0);
  const auto json = parse_response(client.read_response()).json();
  EXPECT_EQ(json["choices"][0]["message"]["reasoning"], "ink.");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "So.");
}

// Whatever form a client sends a turn's reasoning back in, the model sees the same.
TEST_F(PromptsTest, EveryFormOfReasoningRenders) {
  const std::string said = "<assistant><think>hm</think>so</assistant>\n";
  for (const char* turn : {
           R"("content":"so","reasoning":"hm")",
           R"("content":"so","reasoning_content":"hm")",
           R"("content":"so","reasoning":"hm","reasoning_content":"hm")",
           R"("content":"so","reasoning_details":[{"type":"reasoning.text","text":"hm"}])",
           R"("content":"<think>hm</think>so")",
           R"("content":"\n<think>hm</think>so","reasoning":"hm")",
           R"("content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"}])",
           R"("content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"so"}])",
       }) {
    EXPECT_THAT(rendered(std::string(R"({"add_generation_prompt":false,"messages":[
        {"role":"user","content":"x"},{"role":"assistant",)") +
                         turn + "}]}"),
                EndsWith(said))
        << turn;
  }
  EXPECT_THAT(rendered(R"({"add_generation_prompt":false,"messages":[{"role":"assistant",
      "content":"</think>so"},{"role":"user","content":"<think>a</think>b"}]})"),
              HasSubstr("<assistant></think>so</assistant>\n<user><think>a</think>b</user>"));
}

TEST_F(PromptsTest, SystemMessagesStandAnywhere) {
  EXPECT_EQ(rendered(R"({"add_generation_prompt":false,"messages":[
      {"role":"developer","content":"a"},{"role":"user"},{"role":"system","content":"b"},
      {"role":"tool","content":"c","tool_call_id":"1"}]})"),
            "〈|EOS|〉<system>a</system>\n<user></user>\n<system>b</system>\n"
            "<tool_response>c</tool_response>\n");
}

}  // namespace
}  // namespace lagoon::api
