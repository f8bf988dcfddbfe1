// An HTTP/1.1 server with streaming responses. Boost is hidden in server.cpp. One I/O thread does
// sockets only; handlers run on it and must hand real work to other threads. Requests that cannot
// be read are answered here, with JSON bodies of the shape
// {"error":{"message","type","param","code"}}.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/tls.h"

namespace lagoon::net {

struct HttpRequest {
  std::string method;                                        // upper case
  std::string path;                                          // without the query
  std::string query;                                         // after '?', as sent
  std::vector<std::pair<std::string, std::string>> headers;  // as sent
  std::string body;

  // First header of that name (compared without case), or "".
  std::string_view header(std::string_view name) const;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// The answer to one request. Methods may be called from any thread, in this order: either respond()
// once, or start_stream(), write()..., finish(). After the client has gone they do nothing.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void respond(int status, std::string_view content_type, std::string body,
                       Headers headers = {}) = 0;
  virtual void start_stream(int status, std::string_view content_type, Headers headers = {}) = 0;
  // False once the client is gone, or has not read for so long that its buffer is full: the stream
  // is then cut and on_gone() is called.
  virtual bool write(std::string data) = 0;
  virtual void finish() = 0;
  // `callback` is called once if the connection ends before the answer does: on the I/O thread, or
  // at once on the caller's if it already has.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;                     // 0: any free one
  std::string socket_path = {};             // of a Unix socket, in place of host and port; or ""
  std::shared_ptr<TlsContext> tls = {};     // null: plain HTTP
  uint64_t max_body_bytes = 64ull << 20;    // more is 413
  uint64_t max_header_bytes = 64u << 10;    // more is 431
  uint64_t max_unread_bytes = 16ull << 20;  // of a stream, then it is cut
  size_t max_connections = 4096;            // one more is 503, and closed
  // A connection is closed when no request comes for `idle`; when a request has begun and its
  // header is not there after `read`, its body does not grow for `read`, or all of it is not there
  // after `receive` (408); and when the client takes nothing of an answer for `write`.
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds read_timeout{30'000};
  std::chrono::milliseconds receive_timeout{300'000};
  std::chrono::milliseconds write_timeout{120'000};
};

class Server {
 public:
  // Opens the port (error: the address is taken, or not ours) and answers on a thread of its own.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, Handler handler);
  virtual ~Server() = default;        // closes all connections and joins the thread
  virtual uint16_t port() const = 0;  // 0: a Unix socket
  // Connections end with their next answer from now on. Waits until all requests that the handler
  // has had before this call are answered or dropped, at most for `timeout`; false:
  // some are not. Requests still reach the handler, which should refuse them.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace lagoon::net
