#include "bench/server_subject.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/code_text.h"
#include "bench/prompt_text.h"
#include "net/sse_reader.h"

namespace lagoon::bench {
namespace {

using Json = nlohmann::json;

// What a server says is wrong: error.message of its JSON, else the beginning of its text.
std::string quoted_answer(const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  std::string text = body;
  if (json.is_object()) {
    const Json& error = json.contains("error") ? json["error"] : json;
    const auto message = error.is_object() ? error.find("message") : error.end();
    if (error.is_object() && message != error.end() && message->is_string()) {
      text = message->get<std::string>();
    } else if (error.is_string()) {
      text = error.get<std::string>();
    }
  }
  constexpr size_t kShown = 300;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text.empty() ? "nothing more" : text;
}

Error refused(const std::string& method, const std::string& path,
              const net::ClientResponse& response) {
  return {ErrorCode::kUnavailable,
          fmt::format("the server answered {} {} with status {}: {}", method, path, response.status,
                      quoted_answer(response.body))};
}

// Follows one streamed answer.
class Stream {
 public:
  explicit Stream(bool chat) : chat_(chat) {}

  void take(std::string_view piece) {
    const Clock::time_point now = Clock::now();
    for (const std::string& data : reader_.push(piece)) event(data, now);
  }

  // After the end of the body.
  Result<Answer> answer() const {
    if (!error_.empty()) return Error{ErrorCode::kUnavailable, error_};
    if (!has_first_) {
      return Error{ErrorCode::kUnavailable, "the server's stream ended without a token"};
    }
    if (!has_usage_) {
      return Error{ErrorCode::kUnavailable,
                   "the server's stream has no usage with token counts: it must support "
                   "stream_options {\"include_usage\": true}"};
    }
    return answer_;
  }

 private:
  void event(const std::string& data, Clock::time_point now) {
    if (data == "[DONE]" || !error_.empty()) return;
    const Json json = Json::parse(data, nullptr, false);
    if (!json.is_object()) {
      error_ = fmt::format("the server's stream has an event that is no JSON object: {}",
                           data.substr(0, 200));
      return;
    }
    if (json.contains("error")) {
      error_ = fmt::format("the server's stream ended with an error: {}", quoted_answer(data));
      return;
    }
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      read_usage(*usage);
    }
    const auto choices = json.find("choices");
    if (choices == json.end() || !choices->is_array() || choices->empty()) return;
    choice((*choices)[0], now);
  }

  void read_usage(const Json& usage) {
    const auto prompt = usage.find("prompt_tokens");
    const auto completion = usage.find("completion_tokens");
    if (prompt == usage.end() || !prompt->is_number_integer()) return;
    if (completion == usage.end() || !completion->is_number_integer()) return;
    answer_.prompt_tokens = prompt->get<int>();
    answer_.completion_tokens = completion->get<int>();
    has_usage_ = true;
  }

  // A chunk of tokens. Text may be empty where a token is part of a character, but a chat's first
  // chunk, which tells the role, comes before any token.
  void choice(const Json& choice, Clock::time_point now) {
    if (!choice.is_object()) return;
    if (chat_ && !has_first_ && is_role_only(choice)) return;
    if (!has_first_) answer_.first = now;
    has_first_ = true;
    answer_.last = now;
  }

  static bool is_role_only(const Json& choice) {
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) return true;
    for (const auto& item : delta->items()) {
      const bool text =
          item.value().is_string() && !item.value().get_ref<const std::string&>().empty();
      if (item.key() != "role" && (text || item.value().is_array())) return false;
    }
    const auto reason = choice.find("finish_reason");
    return reason == choice.end() || reason->is_null();
  }

  const bool chat_;
  net::SseReader reader_;
  Answer answer_;
  bool has_first_ = false;
  bool has_usage_ = false;
  std::string error_;
};

class HttpSubject : public ServerSubject {
 public:
  HttpSubject(ServerOptions options, std::string model)
      : options_(std::move(options)), model_(std::move(model)) {}

  const std::string& model() const override { return model_; }

  Result<Prompt> make_prompt(const RequestShape& shape, uint64_t seed) override {
    if (calibrated_ != shape.input_length) LAGOON_RETURN_IF_ERROR(calibrate(shape));
    return Prompt{.tokens = {}, .text = make_code(seed, bytes_).substr(0, bytes_), .seed = seed};
  }

  Result<Answer> ask(const RequestShape& shape, const Prompt& prompt) override {
    Json body;
    body["model"] = model_;
    if (shape.chat) {
      body["messages"] = {{{"role", "user"}, {"content", chat_request(prompt.text)}}};
    } else {
      body["prompt"] = prompt.text;
    }
    body["max_tokens"] = shape.output_length;
    body["temperature"] = shape.temperature;
    if (shape.temperature > 0) body["seed"] = prompt.seed;
    if (!shape.stop_at_eos) body["ignore_eos"] = true;
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const std::string path = shape.chat ? "/v1/chat/completions" : "/v1/completions";

    Stream stream(shape.chat);
    const Clock::time_point sent = Clock::now();
    LAGOON_ASSIGN(
        const auto response,
        net::send_request(options_.url,
                          {.method = "POST",
                           .path = path,
                           .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)},
                          options_.timeouts, [&](std::string_view piece) { stream.take(piece); }));
    if (response.status != 200) return refused("POST", path, response);
    LAGOON_ASSIGN(Answer answer, stream.answer());
    answer.sent = sent;
    return answer;
  }

  Result<std::optional<Counts>> counts() override {
    LAGOON_ASSIGN(const auto response,
                  net::send_request(options_.url, {.method = "GET", .path = "/metrics", .body = ""},
                                    options_.timeouts));
    if (response.status != 200) return std::optional<Counts>();
    return std::optional<Counts>(parse_counts(response.body));
  }

 private:
  // Finds how many bytes of code the server counts as the tokens asked for, with requests for one
  // token. Their text is that of no later prompt, so that nothing of it is cached.
  Result<void> calibrate(const RequestShape& shape) {
    constexpr uint64_t kSeed = 0x63616c6962726174;
    constexpr int kMostTries = 6;
    RequestShape probe = shape;
    probe.output_length = 1;
    bytes_ = static_cast<size_t>(shape.input_length) * kBytesPerToken / 2;
    for (int attempt = 0; attempt < kMostTries; ++attempt) {
      const uint64_t seed = kSeed + static_cast<uint64_t>(attempt);
      LAGOON_ASSIGN(
          const Answer answer,
          ask(probe,
              {.tokens = {}, .text = make_code(seed, bytes_).substr(0, bytes_), .seed = seed}));
      if (answer.prompt_tokens < 1) {
        return Error{ErrorCode::kUnavailable, "the server counts no prompt_tokens in its usage"};
      }
      const double off = static_cast<double>(answer.prompt_tokens) / shape.input_length;
      if (off > 0.995 && off < 1.005) break;
      bytes_ = std::max<size_t>(1, static_cast<size_t>(static_cast<double>(bytes_) / off));
    }
    calibrated_ = shape.input_length;
    return {};
  }

  const ServerOptions options_;
  const std::string model_;
  size_t bytes_ = 0;
  int calibrated_ = -1;  // the input length that bytes_ is for
};

}  // namespace

Result<std::unique_ptr<ServerSubject>> connect_server(const ServerOptions& options) {
  constexpr const char* kPath = "/v1/models";
  LAGOON_ASSIGN(const auto response,
                net::send_request(options.url, {.method = "GET", .path = kPath, .body = ""},
                                  options.timeouts));
  if (response.status != 200) return refused("GET", kPath, response);
  const Json json = Json::parse(response.body, nullptr, false);
  const auto data = json.is_object() ? json.find("data") : json.end();
  if (!json.is_object() || data == json.end() || !data->is_array()) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("the server's answer to GET {} is no list of models: {}", kPath,
                             response.body.substr(0, 200))};
  }
  std::vector<std::string> names;
  for (const Json& model : *data) {
    const auto id = model.is_object() ? model.find("id") : model.end();
    if (model.is_object() && id != model.end() && id->is_string()) names.push_back(*id);
  }
  if (names.empty()) {
    return Error{ErrorCode::kUnavailable, "the server lists no model in GET /v1/models"};
  }
  std::string model = options.model.empty() ? names.front() : options.model;
  return std::unique_ptr<ServerSubject>(std::make_unique<HttpSubject>(options, std::move(model)));
}

}  // namespace lagoon::bench
