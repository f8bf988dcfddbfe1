#include "app/serve.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/service.h"
#include "app/entrance.h"
#include "app/load.h"
#include "app/status.h"
#include "app/stop_signal.h"
#include "app/supervise.h"
#include "base/log.h"
#include "base/process_metrics.h"
#include "net/middleware.h"
#include "net/server.h"
#include "plan/memory_floor.h"

namespace lagoon::app {
namespace {

constexpr rlim_t kOtherFiles = 64;  // file descriptors that are no connections

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

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
  // The port comes before the model: that it is taken should be said before loading costs anything,
  // and who waits for the server can ask how far it is.
  Status status;
  Entrance entrance(status);
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
                            .log_stats = options.log_stats,
                            .progress = &status.progress(),
                            .warm_up = true,
                            .test_draft = true}));
  add_process_metrics(*metrics);
  print_line(thinking_line(options.default_template_kwargs));
  print_remarks(options);
  auto made = service_options(options, *model);
  plan::MemoryFloor floor(model->memory_floor);
  made.health = [&status] { return status.health(); };
  made.refusal = [&floor] { return floor.refusal(); };
  LAGOON_ASSIGN(const auto service, api::Service::create(made, *model->engine, *model->tokenizer,
                                                         *model->chat_template, *metrics));
  stop.loaded();
  status.enter(Stage::kServing);
  entrance.open(service.get());
  print_line("Application startup complete.");
  print_line(
      fmt::format("Serving {} on {}", made.model_names[0], address(options, server->port())));

  const auto ended = supervise({.status = status,
                                .engine = *model->engine,
                                .service = *service,
                                .server = *server,
                                .drain = std::chrono::seconds(options.shutdown_timeout),
                                .stall = std::chrono::seconds(options.stall_timeout)},
                               stop);
  // Sockets first: nothing reaches the service any more, and requests of clients are cancelled.
  server.reset();
  model->engine->shutdown();
  return ended;
}

}  // namespace lagoon::app
