#include "app/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/entrance.h"

namespace lagoon::app {
namespace {

using ::testing::HasSubstr;

class CapturingResponder : public net::Responder {
 public:
  void respond(int status, std::string_view, std::string body, net::Headers headers) override {
    status_ = status;
    body_ = std::move(body);
    headers_ = std::move(headers);
  }
  void start_stream(int, std::string_view, net::Headers) override {}
  bool write(std::string) override { return true; }
  void finish() override {}
  void on_gone(std::function<void()>) override {}

  int status_ = 0;
  std::string body_;
  net::Headers headers_;
};

std::shared_ptr<CapturingResponder> ask(Entrance& entrance, const std::string& path) {
  auto responder = std::make_shared<CapturingResponder>();
  entrance.handle({.method = "GET", .path = path, .query = "", .headers = {}, .body = ""},
                  responder);
  return responder;
}

TEST(Status, HealthWhileLoading) {
  Status status;
  Entrance entrance(status);
  EXPECT_THAT(ask(entrance, "/health")->body_,
              HasSubstr(R"("phase":"checking files","percent":0)"));
  status.progress().set_total(1000);
  status.progress().enter(checkpoint::LoadPhase::kReadingTarget);
  status.progress().add_bytes(250);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));  // a rate of less time is none
  const auto health = ask(entrance, "/health");
  EXPECT_EQ(health->status_, 503);
  EXPECT_THAT(health->body_, HasSubstr(R"("phase":"reading the target","percent":25)"));
  EXPECT_THAT(health->body_, HasSubstr(R"("seconds_left":)"));
  ASSERT_FALSE(health->headers_.empty());
  EXPECT_EQ(health->headers_[0].first, "Retry-After");
  const auto models = ask(entrance, "/v1/models");
  EXPECT_EQ(models->status_, 503);
  EXPECT_THAT(models->body_, HasSubstr("The model is being loaded."));
}

TEST(Status, HealthOfEachStage) {
  Status status;
  EXPECT_FALSE(status.health().ready);
  status.enter(Stage::kServing);
  EXPECT_TRUE(status.health().ready);
  status.enter(Stage::kDraining);
  EXPECT_FALSE(status.health().ready);
  EXPECT_EQ(status.health().phase, "draining");
  status.enter(Stage::kFailed);
  EXPECT_FALSE(status.health().ready);
  EXPECT_EQ(status.health().phase, "failed");
}

// Requests reach the service while it serves; then health and metrics alone.
TEST(Status, WhatReachesTheService) {
  class Recorder : public api::Service {
   public:
    void handle(net::HttpRequest request, std::shared_ptr<net::Responder>) override {
      paths.push_back(request.path);
    }
    void fail_all(const std::string&) override {}
    std::vector<std::string> paths;
  };
  Status status;
  Entrance entrance(status);
  Recorder recorder;
  ask(entrance, "/before");
  status.enter(Stage::kServing);
  entrance.open(&recorder);
  ask(entrance, "/v1/models");
  for (const Stage stage : {Stage::kDraining, Stage::kFailed}) {
    status.enter(stage);
    EXPECT_EQ(ask(entrance, "/v1/models")->status_, 503);
    ask(entrance, "/health");
    ask(entrance, "/metrics");
  }
  EXPECT_THAT(recorder.paths,
              ::testing::ElementsAre("/v1/models", "/health", "/metrics", "/health", "/metrics"));
}

}  // namespace
}  // namespace lagoon::app
