#include "api/service_fixture.h"

#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace lagoon::api {
namespace {

constexpr const char* kModel = LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4";

// Loaded once: immutable.
const text::ChatTemplate& chat_template() {
  static const auto* const kLoaded =
      new text::ChatTemplate(text::ChatTemplate::load(kModel).value());
  return *kLoaded;
}

}  // namespace

const text::Tokenizer& tokenizer() {
  static const auto* const kLoaded = [] {
    std::ifstream bundled(std::string(kModel) + "/tokenizer.json");
    Json file = Json::parse(bundled);
    file["post_processor"] = Json::parse(R"({
        "type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "〈|EOS|〉"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"〈|EOS|〉": {"id": "〈|EOS|〉", "ids": [2]}}})");
    const std::string path = testing::TempDir() + "/service_test_tokenizer.json";
    std::ofstream(path) << file.dump();
    return text::Tokenizer::load(path).value().release();
  }();
  return *kLoaded;
}

Response parse_response(const std::string& text) {
  Response response;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return response;
  response.status = std::stoi(text.substr(9, 3));
  response.head = text.substr(0, end + 2);
  response.body = text.substr(end + 4);
  auto json = parse_json(response.body);
  if (json.ok()) response.parsed = std::make_shared<Json>(std::move(json).value());
  return response;
}

std::vector<std::string> events_of(const std::string& stream) {
  std::string text;
  size_t at = stream.find("\r\n\r\n") + 4;
  while (at < stream.size()) {
    const size_t line = stream.find("\r\n", at);
    const size_t length = std::stoul(stream.substr(at, line - at), nullptr, 16);
    text += stream.substr(line + 2, length);
    at = line + 2 + length + 2;
  }
  std::vector<std::string> events;
  while (!text.empty()) {
    size_t end = text.find("\n\n");
    if (text.starts_with("event: ")) {
      const size_t name_end = text.find('\n');
      const std::string name = text.substr(7, name_end - 7);
      EXPECT_TRUE(text.substr(name_end).starts_with("\ndata: {\"type\":\"" + name + "\"")) << text;
      text.erase(0, name_end + 1);
      end -= name_end + 1;
    }
    if (end == std::string::npos || !text.starts_with("data: ")) {
      ADD_FAILURE() << text;
      break;
    }
    events.push_back(text.substr(6, end - 6));
    text.erase(0, end + 2);
  }
  return events;
}

std::string post(const std::string& path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", path,
                     body.size(), body);
}

ServiceTest::ServiceTest() : engine_(tokenizer()) {
  restart("");
}

ServiceTest::~ServiceTest() {
  server_.reset();
  service_.reset();
}

void ServiceTest::restart(const std::string& template_kwargs) {
  ServiceOptions options;
  options.default_template_kwargs = template_kwargs;
  restart(std::move(options));
}

void ServiceTest::restart(ServiceOptions options) {
  server_.reset();
  options.model_names = {"nano", "second"};
  options.model_root = "/models/nano";
  options.default_sampling = {.temperature = 0.7F, .top_k = 20, .top_p = 0.95F};
  auto made = Service::create(options, engine_, tokenizer(), chat_template(), metrics_);
  ASSERT_TRUE(made.ok());
  service_ = std::move(made).value();
  auto started = net::Server::start({.port = 0}, [this](auto request, auto responder) {
    service_->handle(std::move(request), std::move(responder));
  });
  ASSERT_TRUE(started.ok());
  server_ = std::move(started).value();
}

Response ServiceTest::send(const std::string& request) {
  auto client = connect();
  client.send(request);
  return parse_response(client.read_response());
}

Response ServiceTest::get(const std::string& path) {
  return send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

std::string ServiceTest::answered(const std::string& path, const std::string& body,
                                  const std::vector<std::string>& steps, bool stream) {
  engine::Event last;
  last.stop_token = 5;
  return answered(path, body, steps, stream, std::move(last));
}

std::string ServiceTest::answered(const std::string& path, const std::string& body,
                                  const std::vector<std::string>& steps, bool stream,
                                  engine::Event last) {
  Json json = *parse_json(body);
  json["stream"] = stream;
  auto client = connect();
  client.send(post(path, json.dump()));
  const size_t i = asked_++;
  engine_.request(i);
  for (const std::string& step : steps) engine_.say(i, step);
  engine_.finish(i, std::move(last));
  return stream ? client.read_until("\r\n0\r\n\r\n") : client.read_response();
}

bool ServiceTest::is_cancelled(size_t i) {
  for (int wait = 0; wait < 1000 && !engine_.cancelled(i); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return engine_.cancelled(i);
}

Response ServiceTest::refused(const std::string& path, const std::string& body) {
  const size_t before = engine_.requests();
  auto response = send(post(path, body));
  EXPECT_EQ(engine_.requests(), before);
  return response;
}

}  // namespace lagoon::api
