#include "net/middleware.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"
#include "net/http_text.h"

namespace lagoon::net {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kRequestId = "X-Request-Id";
constexpr size_t kMaxRequestId = 128;
constexpr size_t kLoggedPath = 200;  // bytes
constexpr int kClientGone = 499;     // stands for an answer that nobody was there to read

// Paths that watchers ask for every few seconds: not counted, as in vLLM.
constexpr std::array<std::string_view, 4> kUncounted = {"/health", "/metrics", "/ping", "/version"};
// As in the histograms of vLLM's HTTP metrics, and longer ones for answers of thousands of tokens.
const std::vector<double> kDurationBounds = {0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600};

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool has_star(const std::vector<std::string>& list) {
  return contains(list, "*");
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& part : list) text += (text.empty() ? "" : ", ") + part;
  return text;
}

bool is_visible_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string random_id() {
  static std::atomic<uint64_t> count{std::random_device{}()};
  thread_local std::mt19937_64 generator((uint64_t{std::random_device{}()} << 32) ^
                                         count.fetch_add(1));
  return fmt::format("{:016x}{:016x}", generator(), generator());
}

// Spaces and commas around the names in Access-Control-Request-Headers.
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, end);
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

// The key in "Authorization: Bearer KEY", or in "x-api-key: KEY"; "" where there is none.
std::string_view key_of(const HttpRequest& request) {
  std::string_view value = request.header("Authorization");
  if (value.empty()) return request.header("x-api-key");
  const size_t space = value.find(' ');
  if (space == std::string_view::npos || !equals_ignoring_case(value.substr(0, space), "Bearer")) {
    return request.header("x-api-key");  // a proxy's own Authorization may stand beside it
  }
  value.remove_prefix(space + 1);
  return value;
}

// Headers that let the origin's scripts read the answer; empty where it may not.
Headers cors_headers(const CorsOptions& cors, std::string_view origin) {
  if (origin.empty() || cors.origins.empty()) return {};
  Headers headers;
  if (has_star(cors.origins) && !cors.credentials) {
    headers.emplace_back("Access-Control-Allow-Origin", "*");
  } else if (has_star(cors.origins) || contains(cors.origins, origin)) {
    // With credentials browsers accept the origin only by its name.
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Vary", "Origin");
  } else {
    return {};
  }
  if (cors.credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

bool is_preflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() &&
         !request.header("Access-Control-Request-Method").empty();
}

// Answers what a browser asks before it sends a request to another origin.
void answer_preflight(const CorsOptions& cors, const HttpRequest& request, bool origin_allowed,
                      Responder& responder) {
  const std::string_view method = request.header("Access-Control-Request-Method");
  const std::string_view names = request.header("Access-Control-Request-Headers");
  std::string refused;
  if (!origin_allowed) refused = "origin";
  if (!has_star(cors.methods) && !contains(cors.methods, method)) {
    refused += refused.empty() ? "method" : ", method";
  }
  for (const std::string& name : names_in(names)) {
    const auto same = [&](const auto& known) { return equals_ignoring_case(known, name); };
    if (has_star(cors.headers) || std::any_of(cors.headers.begin(), cors.headers.end(), same)) {
      continue;
    }
    refused += refused.empty() ? "headers" : ", headers";
    break;
  }
  if (!refused.empty()) {
    responder.respond(400, "text/plain; charset=utf-8", "Disallowed CORS " + refused);
    return;
  }
  Headers headers;
  headers.emplace_back("Access-Control-Allow-Methods",
                       has_star(cors.methods) ? "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
                                              : joined(cors.methods));
  if (!names.empty()) {
    headers.emplace_back("Access-Control-Allow-Headers",
                         has_star(cors.headers) ? std::string(names) : joined(cors.headers));
  }
  headers.emplace_back("Access-Control-Max-Age", "600");
  responder.respond(200, "text/plain; charset=utf-8", "OK", std::move(headers));
}

// The metrics of one path and method. `requests` is by class of status: 2xx, 4xx, 5xx.
struct RequestMetrics {
  std::array<Counter*, 3> requests{};
  Histogram* duration = nullptr;
  Summary* request_size = nullptr;
  Summary* response_size = nullptr;

  void observe(int status, Clock::time_point start, size_t received, size_t sent) const {
    requests.at(status < 400 ? 0 : status < 500 ? 1 : 2)->add();
    duration->observe(std::chrono::duration<double>(Clock::now() - start).count());
    request_size->observe(static_cast<double>(received));
    response_size->observe(static_cast<double>(sent));
  }
};

RequestMetrics make_metrics(MetricsRegistry& registry, const std::string& path,
                            const std::string& method) {
  RequestMetrics metrics;
  const std::array<const char*, 3> classes = {"2xx", "4xx", "5xx"};
  for (size_t i = 0; i < classes.size(); ++i) {
    metrics.requests.at(i) =
        &registry.counter("http_requests_total", "Requests by handler, method and status class.",
                          {{"handler", path}, {"method", method}, {"status", classes.at(i)}});
  }
  metrics.duration = &registry.histogram("http_request_duration_seconds",
                                         "Time from a request to the end of its answer.",
                                         kDurationBounds, {{"handler", path}, {"method", method}});
  metrics.request_size = &registry.summary("http_request_size_bytes", "Bytes of requests' bodies.",
                                           {{"handler", path}});
  metrics.response_size = &registry.summary("http_response_size_bytes", "Bytes of answers' bodies.",
                                            {{"handler", path}});
  return metrics;
}

// Adds headers to an answer, and counts it when it has ended.
class CountingResponder : public Responder {
 public:
  CountingResponder(std::shared_ptr<Responder> next, Headers headers, const RequestMetrics* metrics,
                    size_t received)
      : next_(std::move(next)),
        headers_(std::move(headers)),
        metrics_(metrics),
        received_(received) {
    next_->on_gone([client = client_] { client->leave(); });
  }
  ~CountingResponder() override {
    // Neither answered nor finished: dropped by the handler, or since the client has gone.
    if (client_->has_left()) end(kClientGone);
    end(500);
  }

  void respond(int status, std::string_view content_type, std::string body,
               Headers headers) override {
    sent_ += body.size();
    end(status);
    next_->respond(status, content_type, std::move(body), with_ours(std::move(headers)));
  }
  void start_stream(int status, std::string_view content_type, Headers headers) override {
    status_ = status;
    next_->start_stream(status, content_type, with_ours(std::move(headers)));
  }
  bool write(std::string data) override {
    sent_ += data.size();
    return next_->write(std::move(data));
  }
  void finish() override {
    end(status_);
    next_->finish();
  }
  void on_gone(std::function<void()> callback) override {
    client_->set_callback(std::move(callback));
  }

 private:
  // Whether the client has left, which may be told before or after the handler wants to know.
  class Client {
   public:
    void leave() {
      std::function<void()> callback;
      {
        const std::lock_guard lock(mutex_);
        left_ = true;
        callback = std::exchange(callback_, nullptr);
      }
      if (callback) callback();
    }
    void set_callback(std::function<void()> callback) {
      {
        const std::lock_guard lock(mutex_);
        if (!left_) {
          callback_ = std::move(callback);
          return;
        }
      }
      callback();
    }
    bool has_left() {
      const std::lock_guard lock(mutex_);
      return left_;
    }

   private:
    std::mutex mutex_;
    std::function<void()> callback_;
    bool left_ = false;
  };

  Headers with_ours(Headers headers) const {
    for (const auto& ours : headers_) {
      const bool there = std::any_of(headers.begin(), headers.end(), [&](const auto& header) {
        return equals_ignoring_case(header.first, ours.first);
      });
      if (!there) headers.push_back(ours);
    }
    return headers;
  }
  void end(int status) {
    if (std::exchange(ended_, true) || metrics_ == nullptr) return;
    metrics_->observe(client_->has_left() ? kClientGone : status, start_, received_, sent_);
  }

  const std::shared_ptr<Responder> next_;
  const Headers headers_;
  const RequestMetrics* const metrics_;  // null: not counted
  const size_t received_;                // bytes of the request's body
  const Clock::time_point start_ = Clock::now();
  const std::shared_ptr<Client> client_ = std::make_shared<Client>();
  std::atomic<size_t> sent_{0};
  int status_ = 500;
  bool ended_ = false;
};

}  // namespace

// An endpoint and the metrics of its methods.
struct Middleware::Route {
  std::string path;     // up to the brace
  bool prefix = false;  // anything may follow
  std::string unauthorized;
  std::vector<std::pair<std::string, RequestMetrics>> metrics;

  bool matches(std::string_view target) const {
    return prefix ? target.starts_with(path) : target == path;
  }
};

struct Middleware::State {
  State(MiddlewareOptions given, MetricsRegistry& metrics, Handler next)
      : options(std::move(given)), handler(std::move(next)) {
    for (const Endpoint& endpoint : options.endpoints) {
      if (contains({kUncounted.begin(), kUncounted.end()}, endpoint.path)) continue;
      Route route;
      route.path = endpoint.path.substr(0, endpoint.path.find('{'));
      route.prefix = route.path != endpoint.path;
      route.unauthorized = endpoint.unauthorized;
      for (const std::string& method : names_in(endpoint.methods)) {
        if (method == "HEAD" || method == "OPTIONS") continue;  // no work; counted with the rest
        route.metrics.emplace_back(method, make_metrics(metrics, endpoint.path, method));
      }
      routes.push_back(std::move(route));
    }
    other = make_metrics(metrics, "none", "none");
  }

  std::string unauthorized(const HttpRequest& request) const {
    for (const Route& route : routes) {
      if (route.matches(request.path)) return route.unauthorized;
    }
    return Endpoint().unauthorized;
  }

  // Null: not counted.
  const RequestMetrics* metrics_of(const HttpRequest& request) const {
    const auto same = [&](std::string_view path) { return path == request.path; };
    if (std::any_of(kUncounted.begin(), kUncounted.end(), same)) return nullptr;
    for (const Route& route : routes) {
      if (!route.matches(request.path)) continue;
      for (const auto& [method, metrics] : route.metrics) {
        if (method == request.method) return &metrics;
      }
    }
    return &other;
  }

  MiddlewareOptions options;
  Handler handler;
  std::vector<Route> routes;
  RequestMetrics other;  // of paths and methods that are not known
};

Middleware::Middleware(MiddlewareOptions options, MetricsRegistry& metrics, Handler handler)
    : state_(std::make_shared<State>(std::move(options), metrics, std::move(handler))) {}

bool is_api_key(std::string_view given, const std::vector<std::string>& keys) {
  unsigned found = 0;
  for (const std::string& key : keys) {
    if (key.empty()) continue;
    unsigned difference = key.size() == given.size() ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i) {
      difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
    }
    found |= static_cast<unsigned>(difference == 0);
  }
  return found != 0;
}

void Middleware::handle(HttpRequest request, std::shared_ptr<Responder> responder) const {
  const MiddlewareOptions& options = state_->options;
  if (const std::string& root = options.root_path;
      !root.empty() && request.path.starts_with(root + "/")) {
    request.path.erase(0, root.size());
  }
  std::string id(request.header(kRequestId));
  const bool use_id = !id.empty() && id.size() <= kMaxRequestId && is_visible_ascii(id);
  if (!use_id) {
    id = random_id();
    std::erase_if(request.headers, [](const auto& header) {
      return equals_ignoring_case(header.first, kRequestId);
    });
    request.headers.emplace_back(kRequestId, id);
  }

  Headers headers = cors_headers(options.cors, request.header("Origin"));
  const bool origin_allowed = !headers.empty();
  headers.emplace_back(kRequestId, id);
  headers.emplace_back("Request-Id", id);  // where Anthropic's clients look
  auto counting = std::make_shared<CountingResponder>(
      std::move(responder), std::move(headers), state_->metrics_of(request), request.body.size());

  if (is_preflight(request) && !options.cors.origins.empty()) {
    answer_preflight(options.cors, request, origin_allowed, *counting);
    return;
  }
  const bool guarded = request.path == "/v1" || request.path.starts_with("/v1/");
  if (guarded && !options.api_keys.empty() && request.method != "OPTIONS" &&
      !is_api_key(key_of(request), options.api_keys)) {
    LOG_FOR(id, info, "{} {} 401: no API key that is known", request.method,
            request.path.substr(0, kLoggedPath));
    counting->respond(401, "application/json", state_->unauthorized(request),
                      {{"WWW-Authenticate", "Bearer"}});
    return;
  }
  if (options.logged_body_bytes > 0 && guarded && !request.body.empty()) {
    const std::string_view body = request.body;
    const bool cut = body.size() > options.logged_body_bytes;
    LOG_FOR(id, info, "{} {} with {} bytes: {}{}", request.method, request.path, body.size(),
            to_valid_utf8(body.substr(0, options.logged_body_bytes)), cut ? "..." : "");
  }
  state_->handler(std::move(request), std::move(counting));
}

}  // namespace lagoon::net
