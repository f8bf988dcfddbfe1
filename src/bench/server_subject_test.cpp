#include "bench/server_subject.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "net/server.h"

namespace lagoon::bench {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// A server of another make: it counts a token for every 3 bytes of a prompt.
class ServerSubjectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = net::Server::start(
        {.port = 0}, [this](const net::HttpRequest& request, const auto& responder) {
          handle(request, responder);
        });
    ASSERT_TRUE(started.ok());
    server_ = std::move(started).value();
  }

  void handle(const net::HttpRequest& request, const std::shared_ptr<net::Responder>& responder) {
    const std::lock_guard lock(mutex_);
    if (request.path == "/v1/models") {
      responder->respond(200, "application/json", models_);
    } else if (request.path == "/metrics") {
      responder->respond(metrics_.empty() ? 404 : 200, "text/plain", metrics_);
    } else if (status_ != 200) {
      responder->respond(status_, "application/json", refusal_);
    } else {
      paths_.push_back(request.path);
      bodies_.push_back(Json::parse(request.body));
      responder->start_stream(200, "text/event-stream");
      for (const Json& event : events(bodies_.back())) {
        responder->write("data: " + event.dump() + "\n\n");
      }
      responder->write(last_);
      responder->finish();
    }
  }

  std::vector<Json> events(const Json& body) const {
    const bool chat = body.contains("messages");
    const std::string text = chat ? body["messages"][0]["content"].get<std::string>()
                                  : body["prompt"].get<std::string>();
    const Json usage = {{"prompt_tokens", text.size() / 3}, {"completion_tokens", 40}};
    if (!chat) {
      return {{{"choices", {{{"text", "a"}}}}},
              {{"choices", {{{"text", ""}, {"finish_reason", "length"}}}}},
              {{"choices", Json::array()}, {"usage", usage}}};
    }
    return {{{"choices", {{{"delta", {{"role", "assistant"}, {"content", ""}}}}}}},
            {{"choices", {{{"delta", {{"content", "a"}}}}}}},
            {{"choices", {{{"delta", Json::object()}, {"finish_reason", "stop"}}}}},
            {{"choices", Json::array()}, {"usage", usage}}};
  }

  ServerOptions options() const {
    ServerOptions options;
    options.url = {.host = "127.0.0.1", .port = fmt::format("{}", server_->port()), .prefix = ""};
    return options;
  }
  std::unique_ptr<ServerSubject> connect() const {
    auto subject = connect_server(options());
    EXPECT_TRUE(subject.ok()) << subject.error().message;
    return std::move(subject).value();
  }
  std::string ask_error(bool chat = false) const {
    RequestShape shape;
    shape.input_length = 10;
    shape.output_length = 4;
    shape.chat = chat;
    const auto answer = connect()->ask(shape, {.tokens = {}, .text = "x", .seed = 0});
    return answer.ok() ? "(no error)" : answer.error().message;
  }

  std::unique_ptr<net::Server> server_;
  std::mutex mutex_;
  std::string models_ = R"({"object":"list","data":[{"id":"one"},{"id":"two"}]})";
  std::string metrics_;
  int status_ = 200;
  std::string refusal_;
  std::string last_ = "data: [DONE]\n\n";
  std::vector<std::string> paths_;
  std::vector<Json> bodies_;
};

TEST_F(ServerSubjectTest, CompletionsAndChats) {
  const auto subject = connect();
  EXPECT_EQ(subject->model(), "one");
  RequestShape shape;
  shape.input_length = 300;
  shape.output_length = 40;
  for (const bool chat : {false, true}) {
    shape.chat = chat;
    shape.temperature = chat ? 0.5 : 0;
    const Prompt prompt = subject->make_prompt(shape, 11).value();
    const auto answer = subject->ask(shape, prompt);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_NEAR(answer->prompt_tokens, 300, chat ? 12 : 3);  // the message has more than the code
    EXPECT_EQ(answer->completion_tokens, 40);
    EXPECT_LE(answer->sent, answer->first);
    EXPECT_LE(answer->first, answer->last);
    EXPECT_EQ(paths_.back(), chat ? "/v1/chat/completions" : "/v1/completions");
    const Json& body = bodies_.back();
    EXPECT_EQ(body["model"], "one");
    EXPECT_EQ(body["max_tokens"], 40);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["stream"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    EXPECT_EQ(body.contains("seed"), chat);
  }
}

TEST_F(ServerSubjectTest, PromptsDifferAndEndWhereTheServersCountIsReached) {
  const auto subject = connect();
  RequestShape shape;
  shape.input_length = 500;
  shape.stop_at_eos = true;
  const Prompt one = subject->make_prompt(shape, 1).value();
  const Prompt two = subject->make_prompt(shape, 2).value();
  EXPECT_NE(one.text, two.text);
  EXPECT_NEAR(static_cast<double>(one.text.size()) / 3, 500, 3);
  EXPECT_EQ(one.text.size(), two.text.size());
  EXPECT_FALSE(bodies_.back().contains("ignore_eos"));
}

TEST_F(ServerSubjectTest, CountsWhereTheServerHasThem) {
  const auto subject = connect();
  EXPECT_FALSE(subject->counts()->has_value());
  metrics_ = "vllm:spec_decode_num_drafts_total{engine=\"0\"} 3.0\n";
  ASSERT_TRUE(subject->counts()->has_value());
  EXPECT_EQ((*subject->counts())->drafts, 3);
}

TEST_F(ServerSubjectTest, RefusalsAreQuoted) {
  status_ = 400;
  refusal_ = R"({"error":{"message":"ignore_eos is not known","type":"x"}})";
  EXPECT_EQ(ask_error(),
            "the server answered POST /v1/completions with status 400: ignore_eos is not known");
  refusal_ = R"({"object":"error","message":"old vLLM"})";
  EXPECT_THAT(ask_error(true), HasSubstr("/v1/chat/completions with status 400: old vLLM"));
  refusal_ = "plain\ntext";
  EXPECT_THAT(ask_error(), HasSubstr("status 400: plain text"));
  refusal_ = "";
  EXPECT_THAT(ask_error(), HasSubstr("status 400: nothing more"));
}

TEST_F(ServerSubjectTest, StreamsThatAreNone) {
  last_ = "data: {\"error\":{\"message\":\"out of memory\"}}\n\n";
  EXPECT_THAT(ask_error(), HasSubstr("ended with an error: out of memory"));
  last_ = "data: 7\n\n";
  EXPECT_THAT(ask_error(), HasSubstr("no JSON object: 7"));
}

TEST_F(ServerSubjectTest, WhatIsNoListOfModels) {
  const auto error = [&] {
    const auto subject = connect_server(options());
    return subject.ok() ? std::string("(no error)") : subject.error().message;
  };
  models_ = "<html>";
  EXPECT_THAT(error(), HasSubstr("no list of models: <html>"));
  models_ = R"({"data":[{"id":5}]})";
  EXPECT_THAT(error(), HasSubstr("lists no model"));
  server_.reset();
}

TEST(ConnectServer, NobodyThere) {
  ServerOptions options;
  options.url = {.host = "127.0.0.1", .port = "1", .prefix = ""};
  const auto subject = connect_server(options);
  ASSERT_FALSE(subject.ok());
  EXPECT_THAT(subject.error().message, HasSubstr("127.0.0.1:1 cannot be connected to"));
}

}  // namespace
}  // namespace lagoon::bench
