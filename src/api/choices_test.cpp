// Answers with several choices, log probabilities, echo, and how streams are kept alive.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/generation_params.h"
#include "api/service_fixture.h"
#include "base/utf8.h"

namespace lagoon::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCompletions = "/v1/completions";

class ChoicesTest : public ServiceTest {
 protected:
  // The answer to a request whose choices, from `first` on, say `texts`, and then "!" in a second
  // step; the second one's steps come first.
  std::string answered(const std::string& path, const std::string& body,
                       const std::vector<std::string>& texts, bool stream) {
    auto client = connect();
    client.send(post(path, body));
    const size_t first = asked_;
    asked_ += texts.size();
    for (size_t i = texts.size(); i-- > 0;) engine_.say(first + i, texts[i]);
    for (size_t i = 0; i < texts.size(); ++i) {
      engine_.say(first + i, "!");
      engine_.end_of_turn(first + i);
    }
    return stream ? client.read_until("\r\n0\r\n\r\n") : client.read_response();
  }
  Json whole(const std::string& path, const std::string& body,
             const std::vector<std::string>& texts) {
    const auto response = parse_response(answered(path, body, texts, false));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.json();
  }
  std::vector<Json> chunks(const std::string& path, const std::string& body,
                           const std::vector<std::string>& texts) {
    std::vector<Json> parsed;
    for (const auto& event : events_of(answered(path, body, texts, true))) {
      if (event != "[DONE]") parsed.push_back(*parse_json(event));
    }
    return parsed;
  }
};

TEST_F(ChoicesTest, SeveralChoicesAreRequestsOfTheirOwn) {
  const Json json =
      whole(kChat, std::string("{\"n\":3,\"seed\":9,") + kHello + "}", {"One", "Two", "Three"});
  ASSERT_EQ(json["choices"].size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["choices"][1]["message"]["content"], "Two!");
  EXPECT_EQ(json["choices"][2]["message"]["content"], "Three!");
  EXPECT_EQ(engine_.request(0).sampling.seed, 9U);
  EXPECT_EQ(engine_.request(2).sampling.seed, choice_seed(9, 2));
  // The prompt counts once.
  EXPECT_EQ(json["usage"]["prompt_tokens"], engine_.request(0).prompt.size());
  const size_t tokens = tokenizer().encode("One").size() + tokenizer().encode("Two").size() +
                        tokenizer().encode("Three").size() + 3;
  EXPECT_EQ(json["usage"]["completion_tokens"], tokens);
}

TEST_F(ChoicesTest, StreamsAreInterleavedAndUsageComesOnce) {
  const auto all =
      chunks(kChat,
             std::string(R"({"n":2,"stream":true,"stream_options":{"include_usage":true},)") +
                 kHello + "}",
             {"One", "Two"});
  std::vector<std::string> texts(2);
  std::vector<int> finished(2);
  int usages = 0;
  for (const Json& chunk : all) {
    if (chunk.contains("usage")) {
      ++usages;
      EXPECT_EQ(chunk["choices"], Json::array());
      EXPECT_EQ(chunk["usage"]["prompt_tokens"], engine_.request(0).prompt.size());
      continue;
    }
    const Json& choice = chunk["choices"][0];
    const auto index = choice["index"].get<size_t>();
    if (choice["delta"].contains("content")) {
      texts.at(index) += choice["delta"]["content"].get<std::string>();
    }
    if (!choice["finish_reason"].is_null()) ++finished.at(index);
  }
  EXPECT_THAT(texts, ElementsAre("One!", "Two!"));
  EXPECT_THAT(finished, ElementsAre(1, 1));
  EXPECT_EQ(usages, 1);
  // Two roles first, then the choice that spoke first.
  EXPECT_EQ(all.at(2)["choices"][0]["index"], 1);
}

TEST_F(ChoicesTest, ARefusedChoiceRefusesAll) {
  engine_.refuse({ErrorCode::kResourceExhausted, "The queue is full."}, 2);
  const auto full = send(post(kChat, std::string("{\"n\":3,\"stream\":true,") + kHello + "}"));
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.head, HasSubstr("Retry-After: 1\r\n"));
  for (const size_t i : {size_t{0}, size_t{1}}) {
    for (int wait = 0; wait < 1000 && !engine_.cancelled(i); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(engine_.cancelled(i));
  }
}

TEST_F(ChoicesTest, AChoiceThatFailsEndsTheAnswer) {
  auto client = connect();
  client.send(post(kChat, std::string("{\"n\":2,\"stream\":true,") + kHello + "}"));
  engine_.say(0, "x");
  engine::Event last;
  last.reason = engine::FinishReason::kError;
  last.error = "It broke.";
  engine_.finish(1, last);
  const auto events = events_of(client.read_until("\r\n0\r\n\r\n"));
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ((*parse_json(events[events.size() - 2]))["error"]["message"], "It broke.");
  EXPECT_EQ(events.back(), "[DONE]");
  for (int wait = 0; wait < 1000 && !engine_.cancelled(0); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(engine_.cancelled(0));
}

TEST_F(ChoicesTest, SeveralPrompts) {
  const Json json =
      whole(kCompletions, R"({"prompt":["one",[7,8]],"n":2,"seed":3})", {"a", "b", "c", "d"});
  ASSERT_EQ(json["choices"].size(), 4U);
  EXPECT_EQ(json["choices"][3]["text"], "d!");
  EXPECT_THAT(engine_.request(3).prompt, ElementsAre(7, 8));
  EXPECT_EQ(engine_.request(0).prompt, engine_.request(1).prompt);
  // A prompt's seeds do not depend on those beside it.
  EXPECT_EQ(engine_.request(2).sampling.seed, 3U);
  EXPECT_EQ(json["usage"]["prompt_tokens"], engine_.request(0).prompt.size() + 2);
  EXPECT_EQ(refused(kCompletions, R"({"prompt":["a",""],"add_special_tokens":false})").status, 400);
  EXPECT_EQ(refused(kCompletions, R"({"prompt":["a","b"],"n":65})").status, 400);
}

TEST_F(ChoicesTest, LogprobsOfChat) {
  const std::string body = std::string("{\"logprobs\":true,\"top_logprobs\":2,") + kHello;
  const Json json = whole(kChat, body + "}", {"H\u00e9 you"});
  const Json& content = json["choices"][0]["logprobs"]["content"];
  auto tokens = tokenizer().encode("H\u00e9 you");
  tokens.push_back(tokenizer().encode("!")[0]);
  ASSERT_EQ(content.size(), tokens.size());
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_FLOAT_EQ(content[i]["logprob"], static_cast<float>(-tokens[i]) / 1000);
    EXPECT_EQ(content[i]["top_logprobs"].size(), 2U);
    EXPECT_EQ(content[i]["top_logprobs"][0]["token"], content[i]["token"]);
    for (const Json& byte : content[i]["bytes"]) text += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(text, "H\u00e9 you!");

  Json streamed = Json::array();
  for (const Json& chunk : chunks(kChat, body + ",\"stream\":true}", {"H\u00e9 you"})) {
    const Json& logprobs = chunk["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& entry : logprobs["content"]) streamed.push_back(entry);
  }
  EXPECT_EQ(streamed, content);
  EXPECT_TRUE(
      whole(kChat, std::string("{") + kHello + "}", {"x"})["choices"][0]["logprobs"].is_null());
}

TEST_F(ChoicesTest, LogprobsOfCompletions) {
  const Json json = whole(kCompletions, R"({"prompt":"one","logprobs":1})", {" two three"});
  const Json& choice = json["choices"][0];
  const Json& logprobs = choice["logprobs"];
  const auto text = choice["text"].get<std::string>();
  ASSERT_GT(logprobs["tokens"].size(), 2U);
  for (size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    const auto token = logprobs["tokens"][i].get<std::string>();
    EXPECT_EQ(text.substr(logprobs["text_offset"][i].get<size_t>(), token.size()), token);
    EXPECT_EQ(logprobs["top_logprobs"][i][token], logprobs["token_logprobs"][i]);
  }
  Json offsets = Json::array();
  for (const Json& chunk :
       chunks(kCompletions, R"({"prompt":"one","logprobs":1,"stream":true})", {" two three"})) {
    const Json& piece = chunk["choices"][0]["logprobs"];
    if (piece.is_null()) continue;
    for (const Json& offset : piece["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(offsets, logprobs["text_offset"]);
}

TEST_F(ChoicesTest, EchoShowsThePromptAndItsProbabilities) {
  const std::string prompt = "def f():";
  const std::string body = R"({"prompt":"def f():","echo":true,"logprobs":0)";
  const Json json = whole(kCompletions, body + "}", {" pass"});
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], prompt + " pass!");
  const Json& logprobs = choice["logprobs"];
  // The token that is put in front is there, and has no text.
  EXPECT_EQ(logprobs["tokens"][0], "〈|EOS|〉");
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["text_offset"][1], 0);
  const auto text = choice["text"].get<std::string>();
  for (size_t i = 1; i < logprobs["tokens"].size(); ++i) {
    const auto token = logprobs["tokens"][i].get<std::string>();
    EXPECT_EQ(text.substr(logprobs["text_offset"][i].get<size_t>(), token.size()), token);
  }
  const Json only = whole(kCompletions, body + ",\"max_tokens\":0}", {"x"});
  EXPECT_EQ(only["choices"][0]["text"], prompt);
  EXPECT_EQ(only["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(only["choices"][0]["logprobs"]["tokens"].size(), engine_.request(1).prompt.size());
  EXPECT_EQ(only["usage"]["completion_tokens"], 0);
  std::string streamed;
  for (const Json& chunk : chunks(kCompletions, body + ",\"stream\":true}", {" pass"})) {
    streamed += chunk["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(whole(kCompletions, R"({"prompt":[7,2,8],"echo":true})", {"x"})["choices"][0]["text"],
            std::string(tokenizer().token_bytes(7)) + "〈|EOS|〉" +
                std::string(tokenizer().token_bytes(8)) + "x!");
}

TEST_F(ChoicesTest, PromptLogprobs) {
  const Json json = whole(kCompletions, R"({"prompt":[7,8],"prompt_logprobs":1})", {"x"});
  const Json& list = json["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1]["8"]["rank"], 1);
  EXPECT_EQ(list[1]["8"]["decoded_token"], to_valid_utf8(tokenizer().token_bytes(8)));
  EXPECT_EQ(list[1].size(), 1U);
  const Json chat = whole(kChat, std::string("{\"prompt_logprobs\":2,") + kHello + "}", {"x"});
  EXPECT_EQ(chat["prompt_logprobs"].size(), engine_.request(1).prompt.size());
}

TEST_F(ChoicesTest, AStopMayBePartOfTheAnswer) {
  for (const bool chat : {true, false}) {
    for (const bool stream : {true, false}) {
      auto client = connect();
      const size_t i = asked_++;
      client.send(post(chat ? kChat : kCompletions,
                       fmt::format(R"({{{},"include_stop_str_in_output":true,"stop":"END",)"
                                   R"("stream":{}}})",
                                   chat ? kHello : "\"prompt\":\"x\"", stream)));
      engine_.say(i, "The ");
      engine::Event last;
      last.stop_string = "END";
      engine_.finish(i, last);
      const auto answer = stream ? client.read_until("\r\n0\r\n\r\n") : client.read_response();
      EXPECT_THAT(answer, HasSubstr(stream ? "\"END\"" : "\"The END\""));
    }
  }
}

// Requests that wait long, for their turn or for their prompt, show that they live.
TEST_F(ChoicesTest, ASilentStreamIsKeptAlive) {
  ServiceOptions options;
  options.keep_alive = std::chrono::milliseconds(20);
  restart(std::move(options));
  auto client = connect();
  client.send(post(kChat, std::string("{\"stream\":true,") + kHello + "}"));
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("text/event-stream"));
  client.read_until("assistant");
  client.read_until(": keep-alive\n\n");
  client.read_until(": keep-alive\n\n");
  engine_.say(0, "One");
  client.read_until("One");
  client.read_until(": keep-alive\n\n");
  engine_.end_of_turn(0);
  EXPECT_THAT(client.read_until("0\r\n\r\n"), HasSubstr("[DONE]"));
  // The connection serves on: nothing was written after the end.
  client.send(post(kChat, std::string("{") + kHello + "}"));
  engine_.say(1, "Two");
  engine_.end_of_turn(1);
  EXPECT_THAT(client.read_response(), Not(HasSubstr("keep-alive\n\n")));
}

// A client that gives up and sends the same again does not leave its first request running, nor
// waiting for its turn.
TEST_F(ChoicesTest, RetriesDoNotPileUp) {
  const std::string body = post(kChat, std::string("{\"stream\":true,\"n\":2,") + kHello + "}");
  for (size_t attempt = 0; attempt < 4; ++attempt) {
    auto client = connect();
    client.send(body);
    client.read_until("assistant");
    EXPECT_EQ(engine_.requests(), 2 * attempt + 2);
    EXPECT_FALSE(engine_.cancelled(2 * attempt));
    client.close();
    for (const size_t i : {2 * attempt, 2 * attempt + 1}) {
      for (int wait = 0; wait < 1000 && !engine_.cancelled(i); ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_TRUE(engine_.cancelled(i));
    }
  }
}

TEST_F(ChoicesTest, RequestIds) {
  const std::string hello = std::string("{") + kHello + "}";
  auto client = connect();
  client.send(fmt::format(
      "POST {} HTTP/1.1\r\nHost: x\r\nx-request-id: mine-1\r\nContent-Length: {}\r\n\r\n{}", kChat,
      hello.size(), hello));
  engine_.end_of_turn(0);
  EXPECT_EQ(parse_response(client.read_response()).json()["id"], "chatcmpl-mine-1");
  EXPECT_EQ(engine_.request(0).id, "chatcmpl-mine-1");
}

TEST_F(ChoicesTest, Health) {
  const auto ready = get("/health");
  EXPECT_EQ(ready.status, 200);
  EXPECT_EQ(ready.json(), *parse_json(R"({"status":"ok","phase":"ready","percent":100,"running":2,
      "waiting":1,"kv_cache_usage":0.5,"seconds_since_progress":0.25})"));
  ServiceOptions options;
  options.health = [] { return Health{.ready = false, .phase = "draining", .percent = 40}; };
  restart(std::move(options));
  const auto draining = get("/health");
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(draining.json()["phase"], "draining");
  EXPECT_EQ(draining.json()["percent"], 40);
  restart("");
  EXPECT_EQ(get("/health").status, 200);
  engine_.set_failed();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/health").json()["phase"], "failed");
}

// A phase that tells how long it will take, as a start does.
TEST_F(ChoicesTest, HealthTellsTheTimeLeft) {
  ServiceOptions options;
  options.health = [] {
    return Health{.ready = false, .phase = "reading", .percent = 40, .seconds_left = 12.34};
  };
  restart(std::move(options));
  const auto health = get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["percent"], 40);
  EXPECT_NEAR(health.json()["seconds_left"].get<double>(), 12.3, 1e-9);
}

TEST_F(ChoicesTest, AnswersAreRefusedWhileTheMachineIsShort) {
  auto sentence = std::make_shared<std::optional<std::string>>("There is no memory.");
  ServiceOptions options;
  options.refusal = [sentence] { return *sentence; };
  restart(std::move(options));
  const auto response = refused(kChat, std::string("{\"model\":\"nano\",") + kHello + "}");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.json()["error"]["message"], "There is no memory.");
  EXPECT_NE(response.head.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(send(post("/tokenize", R"({"model":"nano","prompt":"a"})")).status, 200);
  sentence->reset();
  auto client = connect();
  client.send(post(kChat, std::string("{\"model\":\"nano\",") + kHello + "}"));
  engine_.request(0);
  engine_.end_of_turn(0);
  EXPECT_EQ(parse_response(client.read_response()).status, 200);
}

// A fault that the engine does not tell of: streams and whole answers end with the sentence, and
// the engine is told to stop.
TEST_F(ChoicesTest, AllAnswersCanBeEnded) {
  auto stream = connect();
  stream.send(post(kChat, std::string("{\"model\":\"nano\",\"stream\":true,") + kHello + "}"));
  engine_.request(0);
  auto whole = connect();
  whole.send(post(kChat, std::string("{\"model\":\"nano\",") + kHello + "}"));
  engine_.request(1);
  engine_.say(0, "Hi");
  stream.read_until("Hi");
  service_->fail_all("The engine hangs.");
  const std::string text = stream.read_until("[DONE]");
  EXPECT_NE(text.find(R"({"error":{"message":"The engine hangs.")"), std::string::npos) << text;
  const auto response = parse_response(whole.read_response());
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.json()["error"]["message"], "The engine hangs.");
  for (const size_t i : {size_t{0}, size_t{1}}) {
    for (int wait = 0; wait < 1000 && !engine_.cancelled(i); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(engine_.cancelled(i));
  }
  // Nor can one begin.
  auto late = connect();
  late.send(post(kChat, std::string("{\"model\":\"nano\",") + kHello + "}"));
  EXPECT_EQ(parse_response(late.read_response()).status, 500);
  // What comes later goes nowhere.
  engine_.end_of_turn(0);
  engine_.end_of_turn(1);
}

}  // namespace
}  // namespace lagoon::api
