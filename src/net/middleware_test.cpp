#include "net/middleware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace lagoon::net {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What came out at the server's end.
struct Answer {
  int status = 0;
  std::string body;
  Headers headers;
  bool finished = false;
  std::function<void()> gone;

  std::string header(std::string_view name) const {
    std::string found;
    for (const auto& [key, value] : headers) {
      if (key == name) found += (found.empty() ? "" : "|") + value;
    }
    return found;
  }
};

class RecordingResponder : public Responder {
 public:
  explicit RecordingResponder(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  void respond(int status, std::string_view /*type*/, std::string body, Headers headers) override {
    answer_->status = status;
    answer_->body = std::move(body);
    answer_->headers = std::move(headers);
    answer_->finished = true;
  }
  void start_stream(int status, std::string_view /*type*/, Headers headers) override {
    answer_->status = status;
    answer_->headers = std::move(headers);
  }
  bool write(std::string data) override {
    answer_->body += data;
    return true;
  }
  void finish() override { answer_->finished = true; }
  void on_gone(std::function<void()> callback) override { answer_->gone = std::move(callback); }

 private:
  std::shared_ptr<Answer> answer_;
};

class MiddlewareTest : public ::testing::Test {
 protected:
  MiddlewareTest() {
    options_.endpoints = {{"/v1/chat", "POST, OPTIONS"},
                          {"/v1/models/{name}", "GET, HEAD, OPTIONS"},
                          {"/health", "GET"}};
  }

  // Answers 200 with the path, unless the test has another plan.
  std::shared_ptr<Answer> send(HttpRequest request) {
    if (!middleware_) {
      middleware_.emplace(options_, metrics_, [this](HttpRequest seen, auto responder) {
        seen_ = std::move(seen);
        if (hold_) {
          held_ = std::move(responder);
        } else {
          responder->respond(200, "text/plain", seen_.path);
        }
      });
    }
    auto answer = std::make_shared<Answer>();
    middleware_->handle(std::move(request), std::make_shared<RecordingResponder>(answer));
    return answer;
  }
  static HttpRequest request(std::string method, std::string path, Headers headers = {},
                             std::string body = "") {
    return {.method = std::move(method),
            .path = std::move(path),
            .query = "",
            .headers = std::move(headers),
            .body = std::move(body)};
  }
  int status_with(const std::string& path, Headers headers, const char* method = "GET") {
    return send(request(method, path, std::move(headers)))->status;
  }
  std::string rendered() const { return metrics_.render(); }

  MetricsRegistry metrics_;
  MiddlewareOptions options_;
  std::optional<Middleware> middleware_;
  HttpRequest seen_;
  bool hold_ = false;
  std::shared_ptr<Responder> held_;
};

TEST_F(MiddlewareTest, KeysGuardTheApiAlone) {
  options_.api_keys = {"first", "second"};
  options_.root_path = "/lagoon";
  for (const char* path : {"/v1", "/v1/chat", "/lagoon/v1/chat"}) {
    const auto refused = send(request("GET", path));
    EXPECT_EQ(refused->status, 401) << path;
    EXPECT_EQ(refused->body, R"({"error":"Unauthorized"})");
    EXPECT_EQ(refused->header("WWW-Authenticate"), "Bearer");
  }
  for (const char* path : {"/health", "/metrics", "/", "/v10", "/lagoon/health"}) {
    EXPECT_EQ(status_with(path, {}), 200) << path;
  }
  EXPECT_EQ(status_with("/v1/chat", {{"authorization", "Bearer first"}}), 200);
  EXPECT_EQ(status_with("/v1/chat", {{"Authorization", "bearer second"}}), 200);
  EXPECT_EQ(status_with("/v1/chat", {{"x-api-key", "second"}}), 200);
  for (const char* wrong : {"Bearer third", "Bearer firs", "Bearer firstx", "Bearer ", "Bearer",
                            "first", "Basic first", "Bearer  first", "Bearer first "}) {
    EXPECT_EQ(status_with("/v1/chat", {{"Authorization", wrong}}), 401) << wrong;
  }
  // A key in the one header does not make up for a wrong one in the other.
  EXPECT_EQ(status_with("/v1/chat", {{"Authorization", "Bearer x"}, {"x-api-key", "first"}}), 401);
}

TEST_F(MiddlewareTest, AnEndpointMayHaveAnAnswerOfItsOwnForStrangers) {
  options_.api_keys = {"first"};
  options_.endpoints.push_back({"/v1/other", "POST, OPTIONS", "no"});
  EXPECT_EQ(send(request("POST", "/v1/other"))->body, "no");
  EXPECT_EQ(send(request("POST", "/v1/else"))->body, R"({"error":"Unauthorized"})");
}

TEST_F(MiddlewareTest, WithoutKeysAnyWillDo) {
  EXPECT_EQ(status_with("/v1/chat", {}), 200);
  EXPECT_EQ(status_with("/v1/chat", {{"Authorization", "Bearer any"}}), 200);
}

TEST(ApiKeys, AreComparedWhole) {
  EXPECT_FALSE(is_api_key("", {}));
  EXPECT_FALSE(is_api_key("", {""}));
  EXPECT_FALSE(is_api_key("", {"a"}));
  EXPECT_FALSE(is_api_key("aa", {"a"}));
  EXPECT_TRUE(is_api_key("b", {"a", "b", "c"}));
}

TEST_F(MiddlewareTest, AnyOriginByDefault) {
  EXPECT_EQ(send(request("GET", "/v1/chat"))->header("Access-Control-Allow-Origin"), "");
  const auto answer = send(request("GET", "/v1/chat", {{"Origin", "https://a.example"}}));
  EXPECT_EQ(answer->header("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(answer->header("Access-Control-Allow-Credentials"), "");
  const auto preflight =
      send(request("OPTIONS", "/v1/chat",
                   {{"Origin", "https://a.example"},
                    {"Access-Control-Request-Method", "POST"},
                    {"Access-Control-Request-Headers", "authorization, content-type"}}));
  EXPECT_EQ(preflight->status, 200);
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "*");
  EXPECT_THAT(preflight->header("Access-Control-Allow-Methods"), HasSubstr("POST"));
  EXPECT_EQ(preflight->header("Access-Control-Allow-Headers"), "authorization, content-type");
  EXPECT_EQ(preflight->header("Access-Control-Max-Age"), "600");
  // OPTIONS by itself is the API's.
  EXPECT_EQ(send(request("OPTIONS", "/v1/chat"))->body, "/v1/chat");
}

TEST_F(MiddlewareTest, OriginsThatAreListed) {
  options_.cors = {.origins = {"https://a.example"},
                   .methods = {"GET", "POST"},
                   .headers = {"Content-Type"},
                   .credentials = true};
  options_.api_keys = {"key"};
  const auto allowed = send(request("GET", "/health", {{"Origin", "https://a.example"}}));
  EXPECT_EQ(allowed->header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(allowed->header("Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(allowed->header("Vary"), "Origin");
  // A script may read that it is not let in.
  const auto no_key = send(request("GET", "/v1/chat", {{"Origin", "https://a.example"}}));
  EXPECT_EQ(no_key->status, 401);
  EXPECT_EQ(no_key->header("Access-Control-Allow-Origin"), "https://a.example");
  const auto other = send(request("GET", "/health", {{"Origin", "https://b.example"}}));
  EXPECT_EQ(other->header("Access-Control-Allow-Origin"), "");

  const auto preflight = [&](const char* origin, const char* method, const char* header) {
    return send(request("OPTIONS", "/v1/chat",
                        {{"Origin", origin},
                         {"Access-Control-Request-Method", method},
                         {"Access-Control-Request-Headers", header}}));
  };
  EXPECT_EQ(preflight("https://a.example", "POST", "content-type")->status, 200);
  EXPECT_EQ(preflight("https://b.example", "POST", "content-type")->body, "Disallowed CORS origin");
  EXPECT_EQ(preflight("https://a.example", "PUT", "x-other")->body,
            "Disallowed CORS method, headers");
  EXPECT_EQ(preflight("https://a.example", "PUT", "")->status, 400);
}

TEST_F(MiddlewareTest, WithoutOriginsThereIsNoCors) {
  options_.cors.origins = {};
  const auto preflight =
      send(request("OPTIONS", "/v1/chat",
                   {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "POST"}}));
  EXPECT_EQ(preflight->body, "/v1/chat");  // left to the API
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "");
}

TEST_F(MiddlewareTest, RequestsHaveIds) {
  EXPECT_EQ(send(request("GET", "/", {{"x-request-id", "mine-1"}}))->header("X-Request-Id"),
            "mine-1");
  EXPECT_EQ(seen_.header("X-Request-Id"), "mine-1");
  EXPECT_EQ(send(request("GET", "/", {{"x-request-id", "mine-1"}}))->header("Request-Id"),
            "mine-1");
  for (const std::string& bad : {std::string(), std::string("a b"), std::string(129, 'x')}) {
    const auto answer = send(request("GET", "/", {{"X-Request-Id", bad}}));
    EXPECT_EQ(answer->header("X-Request-Id").size(), 32U) << bad;
    EXPECT_EQ(seen_.header("X-Request-Id"), answer->header("X-Request-Id"));
  }
  EXPECT_NE(send(request("GET", "/"))->header("X-Request-Id"),
            send(request("GET", "/"))->header("X-Request-Id"));
}

TEST_F(MiddlewareTest, CountsRequestsByEndpoint) {
  send(request("GET", "/health"));  // makes the middleware
  constexpr const char* kChat = "http_requests_total{handler=\"/v1/chat\",method=\"POST\",status=";
  EXPECT_THAT(rendered(), HasSubstr(std::string(kChat) + "\"2xx\"} 0\n"));
  EXPECT_THAT(rendered(), Not(HasSubstr("/health")));
  send(request("POST", "/v1/chat", {}, "12345"));
  send(request("GET", "/v1/models/any"));
  send(request("GET", "/made/up/by/a/client"));
  send(request("BREW", "/v1/chat"));
  const std::string text = rendered();
  EXPECT_THAT(text, HasSubstr(std::string(kChat) + "\"2xx\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("{handler=\"/v1/models/{name}\",method=\"GET\",status=\"2xx\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("{handler=\"none\",method=\"none\",status=\"2xx\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("http_request_size_bytes_sum{handler=\"/v1/chat\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("http_response_size_bytes_sum{handler=\"/v1/chat\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("http_request_duration_seconds_count{handler=\"/v1/chat\","
                              "method=\"POST\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("made")));
  EXPECT_THAT(text, Not(HasSubstr("BREW")));
}

TEST_F(MiddlewareTest, CountsStreamsAtTheirEnd) {
  hold_ = true;
  const auto answer = send(request("POST", "/v1/chat"));
  held_->start_stream(200, "text/event-stream");
  held_->write("12");
  held_->write("345");
  EXPECT_THAT(rendered(), HasSubstr("method=\"POST\",status=\"2xx\"} 0\n"));
  held_->finish();
  held_.reset();
  EXPECT_TRUE(answer->finished);
  EXPECT_EQ(answer->body, "12345");
  EXPECT_THAT(rendered(), HasSubstr("method=\"POST\",status=\"2xx\"} 1\n"));
  EXPECT_THAT(rendered(), HasSubstr("http_response_size_bytes_sum{handler=\"/v1/chat\"} 5\n"));
}

TEST_F(MiddlewareTest, AClientThatLeavesIsTold) {
  hold_ = true;
  int told = 0;
  const auto answer = send(request("POST", "/v1/chat"));
  held_->on_gone([&] { ++told; });
  answer->gone();
  EXPECT_EQ(told, 1);
  held_.reset();
  EXPECT_THAT(rendered(), HasSubstr("method=\"POST\",status=\"4xx\"} 1\n"));

  const auto early = send(request("POST", "/v1/chat"));
  early->gone();
  held_->on_gone([&] { ++told; });
  EXPECT_EQ(told, 2);
  held_.reset();
  // Dropped without an answer, and not by the client.
  send(request("POST", "/v1/chat"));
  held_.reset();
  EXPECT_THAT(rendered(), HasSubstr("method=\"POST\",status=\"5xx\"} 1\n"));
}

TEST_F(MiddlewareTest, BodiesAreLoggedWhereAsked) {
  testing::internal::CaptureStderr();
  send(request("POST", "/v1/chat", {}, "secret words"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  middleware_.reset();
  options_.logged_body_bytes = 6;
  testing::internal::CaptureStderr();
  send(request("POST", "/v1/chat", {{"X-Request-Id", "r1"}}, "line\ntwo and more"));
  send(request("POST", "/tokenize", {}, "not the API's"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("INFO  r1 POST /v1/chat with 17 bytes: line\\nt...\n"));
}

}  // namespace
}  // namespace lagoon::net
