#include "app/serve.h"

#include <fmt/core.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <thread>
#include <utility>

#include "api/service.h"
#include "app/load.h"
#include "base/log.h"
#include "base/process_metrics.h"
#include "net/middleware.h"
#include "net/server.h"

namespace lagoon::app {
namespace {

constexpr rlim_t kOtherFiles = 64;  // file descriptors that are no connections

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// SIGINT and SIGTERM, taken by a thread of their own: while the model is being loaded they end the
// program at once, later they wake wait(). Signals are blocked for all threads started afterwards.
class StopSignal {
 public:
  StopSignal() : signals_(stop_signals()), state_(std::make_shared<State>()) {
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::thread([signals = signals_, state = state_] {
      int number = 0;
      sigwait(&signals, &number);
      if (state->loading) std::_Exit(128 + number);
      state->number = number;
      state->raised.release();
    }).detach();
  }

  // From now on a signal is waited for.
  void loaded() { state_->loading = false; }

  // Sleeps until a signal comes; a second one ends the program at once.
  int wait() {
    state_->raised.acquire();
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    return state_->number;
  }

 private:
  // Outlives a serve() that returns early.
  struct State {
    std::atomic<bool> loading{true};
    std::atomic<int> number{0};
    std::binary_semaphore raised{0};
  };
  sigset_t signals_;
  std::shared_ptr<State> state_;
};

// Requests go to the service while it is open; before and after they are told to come back.
class Entrance {
 public:
  void open(api::Service* service) { service_.store(service); }
  // Only metrics are still to be had.
  void close() { closed_ = true; }

  void handle(net::HttpRequest request, std::shared_ptr<net::Responder> responder) {
    api::Service* const service = service_.load();
    if (service != nullptr && (!closed_ || request.path == "/metrics")) {
      service->handle(std::move(request), std::move(responder));
      return;
    }
    if (request.path == "/health") {
      api::respond_health(
          *responder,
          {.ready = false, .phase = service == nullptr ? "loading" : "draining", .percent = 0},
          nullptr);
      return;
    }
    const char* const message =
        service == nullptr ? "The model is being loaded." : "The server is shutting down.";
    responder->respond(503, "application/json",
                       fmt::format(R"({{"error":{{"message":"{}","type":"ServiceUnavailableError",)"
                                   R"("param":null,"code":503}}}})",
                                   message),
                       {{"Retry-After", service == nullptr ? "1" : "5"}});
  }

 private:
  std::atomic<api::Service*> service_{nullptr};
  std::atomic<bool> closed_{false};
};

// The start-up line on thinking, from --default-chat-template-kwargs (checked by the service).
std::string thinking_line(const std::string& kwargs) {
  const auto json = nlohmann::json::parse(kwargs, nullptr, false);
  const bool on = json.is_object() && json.contains("enable_thinking") &&
                  json["enable_thinking"].is_boolean() && json["enable_thinking"].get<bool>();
  if (on) {
    return "thinking: on unless a request sets chat_template_kwargs {\"enable_thinking\": false} "
           "(--default-chat-template-kwargs)";
  }
  return "thinking: off unless a request asks for it with chat_template_kwargs "
         "{\"enable_thinking\": true} or reasoning_effort";
}

api::ServiceOptions service_options(const ServeOptions& options, const LoadedModel& model) {
  api::ServiceOptions service;
  service.model_names = options.served_names;
  if (service.model_names.empty()) {
    service.model_names = {model.name};
    if (options.model.model != model.name) service.model_names.push_back(options.model.model);
  }
  service.model_root = model.directory;
  service.default_template_kwargs = options.default_template_kwargs;
  service.default_sampling = model.default_sampling;
  service.force_include_usage = options.force_include_usage;
  service.strict_model_name = options.strict_model_name;
  service.thinking_signatures = options.thinking_signatures;
  service.max_response_store_bytes = static_cast<size_t>(options.max_response_store_bytes);
  return service;
}

net::MiddlewareOptions middleware_options(const ServeOptions& options) {
  net::MiddlewareOptions middleware;
  middleware.api_keys = options.api_keys;
  middleware.cors = {.origins = options.allowed_origins,
                     .methods = options.allowed_methods,
                     .headers = options.allowed_headers,
                     .credentials = options.allow_credentials};
  middleware.root_path = options.root_path;
  if (options.log_requests) {
    middleware.logged_body_bytes = static_cast<size_t>(options.max_log_bytes);
  }
  middleware.endpoints = api::endpoints();
  return middleware;
}

Result<net::ServerOptions> server_options(const ServeOptions& options) {
  using std::chrono::seconds;
  net::ServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.socket_path = options.socket_path;
  server.max_body_bytes = static_cast<uint64_t>(options.max_body_bytes);
  server.max_connections = static_cast<size_t>(options.max_connections);
  server.idle_timeout = seconds(options.idle_timeout);
  server.read_timeout = seconds(options.read_timeout);
  server.receive_timeout = seconds(options.receive_timeout);
  server.write_timeout = seconds(options.write_timeout);
  if (!options.tls_certificate.empty()) {
    LAGOON_ASSIGN(server.tls,
                  net::TlsContext::load({.certificate = options.tls_certificate,
                                         .key = options.tls_key,
                                         .client_ca = options.tls_client_ca,
                                         .clients = static_cast<net::ClientCertificates>(
                                             options.tls_client_certificates)}));
  }
  return server;
}

// A connection is a file descriptor, and the default is often 1,024 of them. "" where
// `connections` can be had, else a remark.
std::string allow_connections(int connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  const rlim_t wanted = static_cast<rlim_t>(connections) + kOtherFiles;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= wanted) return "";
  return fmt::format(
      "--max-connections is {}, and the limit of open files ({}) allows about {}: raise it with "
      "ulimit -n or LimitNOFILE=",
      connections, limit.rlim_cur, limit.rlim_cur - std::min(kOtherFiles, limit.rlim_cur));
}

std::string address(const ServeOptions& options, uint16_t port) {
  if (!options.socket_path.empty()) return "unix:" + options.socket_path;
  const std::string& host = options.host;
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return fmt::format("{}://{}{}{}:{}", options.tls_certificate.empty() ? "http" : "https",
                     bare_ipv6 ? "[" : "", host, bare_ipv6 ? "]" : "", port);
}

void set_up_log(const ServeOptions& options) {
  set_log_format(options.json_log ? LogFormat::kJson : LogFormat::kText);
  set_log_level(options.log_level == "debug"     ? LogLevel::debug
                : options.log_level == "warning" ? LogLevel::warning
                : options.log_level == "error"   ? LogLevel::error
                                                 : LogLevel::info);
}

void print_remarks(const ServeOptions& options) {
  for (const std::string& remark : options.remarks) print_line(remark);
  if (const std::string few = allow_connections(options.max_connections); !few.empty()) {
    print_line(few);
  }
  if (!options.api_keys.empty()) {
    print_line(fmt::format("requests to /v1 need an API key ({} known)", options.api_keys.size()));
  }
  if (options.log_requests) print_line("prompts are logged (--enable-log-requests)");
}

}  // namespace

Result<void> serve(const ServeOptions& options) {
  StopSignal stop;  // before any other thread is started
  set_up_log(options);
  LAGOON_RETURN_IF_ERROR(api::parse_template_kwargs(options.default_template_kwargs));
  LAGOON_ASSIGN(const net::ServerOptions listening, server_options(options));
  // The port comes before the model: that it is taken should be said before loading costs anything.
  Entrance entrance;
  const auto metrics = std::make_shared<MetricsRegistry>();
  const net::Middleware middleware(
      middleware_options(options), *metrics,
      [&](auto request, const auto& responder) { entrance.handle(std::move(request), responder); });
  LAGOON_ASSIGN(auto server, net::Server::start(listening, [&](auto request, auto responder) {
                  middleware.handle(std::move(request), std::move(responder));
                }));
  LAGOON_ASSIGN(const auto model,
                load_model(options.model,
                           {.served_name = options.served_names.empty() ? std::string()
                                                                        : options.served_names[0],
                            .lines = stdout,
                            .metrics = metrics,
                            .log_stats = options.log_stats}));
  add_process_metrics(*metrics);
  print_line(thinking_line(options.default_template_kwargs));
  print_remarks(options);
  const auto made = service_options(options, *model);
  LAGOON_ASSIGN(const auto service, api::Service::create(made, *model->engine, *model->tokenizer,
                                                         *model->chat_template, *metrics));
  stop.loaded();
  entrance.open(service.get());
  print_line("Application startup complete.");
  print_line(
      fmt::format("Serving {} on {}", made.model_names[0], address(options, server->port())));

  LOG(info, "stopping: signal {}", stop.wait());
  entrance.close();
  if (!server->drain(std::chrono::seconds(options.shutdown_timeout))) {
    LOG(warning, "requests that still run after {} s are ended (--shutdown-timeout)",
        options.shutdown_timeout);
    // They are told so; who does not read that in time is cut off.
    model->engine->shutdown();
    server->drain(std::chrono::seconds(1));
  }
  // Sockets first: nothing reaches the service any more, and requests of clients are cancelled.
  server.reset();
  model->engine->shutdown();
  return {};
}

}  // namespace lagoon::app
