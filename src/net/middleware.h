// What every request passes before it reaches the API: API keys, CORS, the path's prefix, request
// ids, the HTTP metrics, and the log of bodies where it is asked for.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "net/server.h"

namespace lagoon::net {

// Cross-origin requests of browsers (https://fetch.spec.whatwg.org/#http-cors-protocol). In each
// list "*" stands for all. No origins: no CORS headers at all.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;
};

// A path with metrics of its own. Requests to all other paths are counted together.
struct Endpoint {
  std::string path;     // "/v1/models/{name}": up to the brace is a prefix
  std::string methods;  // "GET, HEAD, OPTIONS"
  std::string unauthorized = R"({"error":"Unauthorized"})";  // body of a 401
};

struct MiddlewareOptions {
  std::vector<std::string> api_keys;  // of paths under /v1; empty: no key is asked for
  CorsOptions cors;
  std::string root_path;         // taken off the front of paths where it is there; "" for none
  size_t logged_body_bytes = 0;  // of each body under /v1; 0: bodies are not logged
  std::vector<Endpoint> endpoints;
};

class Middleware {
 public:
  // Registers the metrics http_requests_total, http_request_duration_seconds,
  // http_request_size_bytes and http_response_size_bytes, for each endpoint but those of health,
  // version and metrics. `metrics` outlives the object and all responders it has handed out.
  Middleware(MiddlewareOptions options, MetricsRegistry& metrics, Handler handler);

  // For Server::start(). The handler sees the request with an X-Request-Id: the client's, where it
  // is one that can be used (1 to 128 visible ASCII characters), else a random one. The answer
  // carries it, too, also as Request-Id.
  void handle(HttpRequest request, std::shared_ptr<Responder> responder) const;

 private:
  struct Route;
  struct State;
  const std::shared_ptr<const State> state_;
};

// Whether `given` is one of the keys, in a time that depends on neither which nor how much of it.
bool is_api_key(std::string_view given, const std::vector<std::string>& keys);

}  // namespace lagoon::net
