#include "api/service.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/context.h"
#include "api/generation.h"
#include "api/json.h"
#include "api/workers.h"
#include "base/log.h"

namespace lagoon::api {
namespace {

constexpr size_t kMaxWaitingBodies = 1024;  // requests not read yet; more are told to come back

using Prepare = ApiResult<Prepared> (*)(const Context&, const Json&, const std::string& id);
using AnswerBody = ApiResult<std::string> (*)(const Context&, const Json&, const std::string& id);

struct Route {
  std::string_view path;
  std::string_view methods;  // of Allow
  bool get;
  // POST, one of these:
  Prepare prepare = nullptr;    // starts a generation
  AnswerBody answer = nullptr;  // is an answer by itself
  std::string_view id_prefix = "req-";
  ErrorWriter write_error = to_json;
};

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kPing = "/ping";  // GET or POST
constexpr std::string_view kResponses = "/v1/responses/";
constexpr std::string_view kModels = "/v1/models/";
constexpr std::array<Route, 18> kRoutes = {{
    {"/v1/chat/completions", kPost, false, prepare_chat, nullptr, "chatcmpl-"},
    {"/v1/chat/completions/render", kPost, false, nullptr, render_chat, "chatcmpl-"},
    {"/v1/completions", kPost, false, prepare_completion, nullptr, "cmpl-"},
    {"/v1/completions/render", kPost, false, nullptr, render_completion, "cmpl-"},
    {"/v1/messages", kPost, false, prepare_messages, nullptr, "msg_", to_anthropic_json},
    {"/v1/messages/render", kPost, false, nullptr, render_messages, "msg_", to_anthropic_json},
    {"/v1/messages/count_tokens", kPost, false, nullptr, count_message_tokens, "req-",
     to_anthropic_json},
    {"/v1/responses", kPost, false, prepare_response, nullptr, "resp_"},
    {"/v1/responses/render", kPost, false, nullptr, render_response, "resp_"},
    {"/tokenize", kPost, false, nullptr, tokenize},
    {"/detokenize", kPost, false, nullptr, detokenize},
    {"/v1/models", kGet, true},
    {"/health", kGet, true},
    {"/metrics", kGet, true},
    {"/version", kGet, true},
    {kPing, "GET, HEAD, POST, OPTIONS", true},
    {kModels, kGet, true},                             // and a model's name
    {kResponses, "GET, HEAD, DELETE, OPTIONS", true},  // and the id of one that is kept
}};

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
  }
  for (const Route& route : kRoutes) {
    if (route.path.ends_with('/') && path.starts_with(route.path)) return &route;
  }
  return nullptr;
}

// The client's name for its request, which net::Middleware has checked, or a random one.
std::string request_id(const net::HttpRequest& request) {
  const std::string_view given = request.header("X-Request-Id");
  return given.empty() ? make_id("") : std::string(given);
}

// "%2F" is "/"; what is no such code stays.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* begin = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(begin, begin + 2, value, 16).ptr == begin + 2) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// What follows the route in a path.
std::string name_in(std::string_view path, std::string_view route) {
  return percent_decoded(path.substr(route.size()));
}

void respond_json(net::Responder& responder, ApiResult<std::string> answer) {
  if (const auto* error = std::get_if<ApiError>(&answer)) {
    respond_error(responder, *error);
  } else {
    responder.respond(200, "application/json", std::move(std::get<std::string>(answer)));
  }
}

class HttpService : public Service {
 public:
  HttpService(Context context, MetricsRegistry& metrics)
      : context_(std::move(context)),
        metrics_(metrics),
        // Twice as often: a stream that wrote since the last look is passed over once.
        workers_(std::make_shared<Workers>(context_.options.workers,
                                           context_.options.keep_alive / 2,
                                           [this] { streams_.keep_alive(); })) {}
  ~HttpService() override { workers_->stop(); }

  void handle(net::HttpRequest request, std::shared_ptr<net::Responder> responder) override;
  void fail_all(const std::string& sentence) override { streams_.fail_all(sentence); }

 private:
  void get(const std::string& path, net::Responder& responder);
  void refuse(const net::HttpRequest& request, const Route* route, net::Responder& responder);
  void post(net::HttpRequest request, const Route& route,
            const std::shared_ptr<net::Responder>& responder);
  void read_and_start(const std::string& body, const Route& route, RequestLog log,
                      const std::shared_ptr<net::Responder>& responder);

  const Context context_;
  MetricsRegistry& metrics_;
  Streams streams_;
  const std::shared_ptr<Workers> workers_;
};

void HttpService::handle(net::HttpRequest request, std::shared_ptr<net::Responder> responder) {
  const Route* route = find_route(request.path);
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  const bool is_post = request.method == "POST";
  if (route != nullptr && request.method == "OPTIONS") {
    responder->respond(204, "", "", {{"Allow", std::string(route->methods)}});
  } else if (route != nullptr && is_post && (route->prepare || route->answer)) {
    post(std::move(request), *route, responder);
  } else if (route != nullptr && ((is_get && route->get) || (is_post && route->path == kPing))) {
    get(request.path, *responder);
  } else if (route != nullptr && route->path == kResponses && request.method == "DELETE") {
    respond_json(*responder, delete_response(context_, name_in(request.path, kResponses)));
  } else {
    refuse(request, route, *responder);
  }
}

void HttpService::get(const std::string& path, net::Responder& responder) {
  constexpr std::string_view kJson = "application/json";
  if (path == "/v1/models") {
    responder.respond(200, kJson, models_json(context_));
  } else if (path == "/metrics") {
    responder.respond(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.render());
  } else if (path == "/version") {
    responder.respond(200, kJson, fmt::format(R"({{"version":"{}"}})", LAGOON_VERSION));
  } else if (path.starts_with(kModels)) {
    respond_json(responder, model_json(context_, name_in(path, kModels)));
  } else if (path.starts_with(kResponses)) {
    respond_json(responder, stored_response(context_, name_in(path, kResponses)));
  } else if (path == "/health") {
    const engine::Progress progress = context_.engine->progress();
    Health health = context_.options.health ? context_.options.health() : Health();
    if (progress.failed) health = {.ready = false, .phase = "failed", .percent = 0};
    respond_health(responder, health, &progress);
  } else {
    responder.respond(200, "", "");  // /ping
  }
}

void HttpService::refuse(const net::HttpRequest& request, const Route* route,
                         net::Responder& responder) {
  const RequestLog log("req-" + request_id(request), request.method, request.path);
  if (route == nullptr) {
    const ApiError error{.status = 404,
                         .type = "NotFoundError",
                         .message = fmt::format("There is no {} here.", request.path)};
    log.done(404);
    respond_error(responder, error);
    return;
  }
  const ApiError error{.status = 405,
                       .type = "MethodNotAllowedError",
                       .message = fmt::format("{} does not take {}; it takes {}.", route->path,
                                              request.method, route->methods)};
  log.done(405);
  responder.respond(405, "application/json", route->write_error(error),
                    {{"Allow", std::string(route->methods)}});
}

void HttpService::post(net::HttpRequest request, const Route& route,
                       const std::shared_ptr<net::Responder>& responder) {
  RequestLog log(std::string(route.id_prefix) + request_id(request), request.method, request.path);
  // Who leaves while the request waits for a worker spares it the work.
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  responder->on_gone([gone] { *gone = true; });
  auto task = [this, &route, log, responder, gone, body = std::move(request.body)] {
    if (*gone) {
      log.done(499);
      return;
    }
    read_and_start(body, route, log, responder);
  };
  if (workers_->try_post(std::move(task), kMaxWaitingBodies)) return;
  log.done(429);
  respond_error(*responder,
                {.status = 429,
                 .type = "TooManyRequestsError",
                 .message = "Too many requests are waiting to be read."},
                route.write_error);
}

void HttpService::read_and_start(const std::string& body, const Route& route, RequestLog log,
                                 const std::shared_ptr<net::Responder>& responder) {
  const auto refuse_with = [&](const ApiError& error) {
    log.done(error.status);
    respond_error(*responder, error, route.write_error);
  };
  if (route.prepare != nullptr && context_.options.refusal) {
    if (const auto why = context_.options.refusal()) {
      refuse_with(from_error({ErrorCode::kUnavailable, *why}));
      return;
    }
  }
  const auto json = parse_json(body);
  if (!json.ok()) {
    refuse_with(invalid_body(fmt::format("Invalid JSON: {}", json.error().message)));
    return;
  }
  if (!json->is_object()) {
    refuse_with(invalid_body("Input should be a JSON object."));
    return;
  }
  if (route.answer != nullptr) {
    auto answer = route.answer(context_, *json, log.id());
    if (const auto* error = std::get_if<ApiError>(&answer)) {
      refuse_with(*error);
    } else {
      log.done(200);
      responder->respond(200, "application/json", std::move(std::get<std::string>(answer)));
    }
    return;
  }
  auto prepared = route.prepare(context_, *json, log.id());
  if (const auto* error = std::get_if<ApiError>(&prepared)) {
    refuse_with(*error);
    return;
  }
  auto& ready = std::get<Prepared>(prepared);
  if (!ready.refusal.empty()) {
    log.done(ready.refusal_status);
    respond_stream(*responder, std::move(ready.refusal));
    return;
  }
  ready.write_error = route.write_error;
  Generation::start(*context_.engine, workers_, streams_, std::move(ready), std::move(log),
                    responder);
}

}  // namespace

void respond_health(net::Responder& responder, const Health& health,
                    const engine::Progress* progress) {
  std::string body =
      fmt::format(R"({{"status":"{}","phase":{},"percent":{})", health.ready ? "ok" : "unavailable",
                  json_string(health.phase), health.percent);
  if (health.seconds_left) body += fmt::format(R"(,"seconds_left":{:.1f})", *health.seconds_left);
  if (progress != nullptr) {
    body += fmt::format(
        R"(,"running":{},"waiting":{},"kv_cache_usage":{:.4f},"seconds_since_progress":{:.3f})",
        progress->running, progress->waiting, progress->kv_usage, progress->seconds_since_progress);
  }
  net::Headers headers;
  if (!health.ready) headers.emplace_back("Retry-After", "1");
  responder.respond(health.ready ? 200 : 503, "application/json", body + "}", std::move(headers));
}

std::vector<net::Endpoint> endpoints() {
  std::vector<net::Endpoint> list;
  for (const Route& route : kRoutes) {
    const bool prefix = route.path.ends_with('/');
    const char* const rest = route.path == kResponses ? "{id}" : "{name}";
    list.push_back({.path = fmt::format("{}{}", route.path, prefix ? rest : ""),
                    .methods = std::string(route.methods)});
    if (route.write_error != to_json) {
      list.back().unauthorized =
          route.write_error({.status = 401, .message = "The API key is missing or wrong."});
    }
  }
  return list;
}

Result<text::jinja::Dict> parse_template_kwargs(const std::string& json) {
  if (json.empty()) return text::jinja::Dict();
  const auto kwargs = parse_json(json);
  if (!kwargs.ok() || !kwargs->is_object()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--default-chat-template-kwargs must be a JSON object such as "
                    "{{\"enable_thinking\": true}}, and this is {}",
                    kwargs.ok() ? "another JSON value" : "not JSON: " + kwargs.error().message)};
  }
  const text::jinja::Value values = to_value(*kwargs);
  if (const auto fine = text::check_template_kwargs(values.dict()); !fine.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--default-chat-template-kwargs: " + fine.error().message};
  }
  return values.dict();
}

Result<std::unique_ptr<Service>> Service::create(const ServiceOptions& options,
                                                 engine::Engine& engine,
                                                 const text::Tokenizer& tokenizer,
                                                 const text::ChatTemplate& chat_template,
                                                 MetricsRegistry& metrics) {
  CHECK(!options.model_names.empty());
  Context context;
  context.options = options;
  context.engine = &engine;
  context.tokenizer = &tokenizer;
  context.chat_template = &chat_template;
  context.created = std::time(nullptr);
  context.responses = std::make_shared<ResponseStore>(options.max_response_store_bytes);
  LAGOON_ASSIGN(context.default_template_kwargs,
                parse_template_kwargs(options.default_template_kwargs));
  return {std::make_unique<HttpService>(std::move(context), metrics)};
}

}  // namespace lagoon::api
