// One request's answer on its way from any thread to the I/O thread: what Responder promises,
// without sockets. Worker threads fill the queue; the connection empties it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/http_text.h"
#include "net/server.h"

namespace lagoon::net {

// Shared by the responder and the connection. Bytes in it are framed already.
class Exchange {
 public:
  struct Settings {
    int version = 11;
    bool head_only = false;   // a HEAD request: no body is sent
    bool keep_alive = true;   // what client and server have agreed on
    uint64_t max_unread = 0;  // bytes
  };

  // What the connection takes out.
  struct Output {
    std::vector<std::string> buffers;
    bool complete = false;   // nothing follows
    bool cut = false;        // the connection must be closed at once
    bool keep_alive = true;  // whether the connection serves on after a complete answer
  };

  // `wake` is called on any thread when there is something to take; it must not call back.
  Exchange(const Settings& settings, std::function<void()> wake);

  // For the responder.
  void respond(int status, std::string_view content_type, std::string body, const Headers& headers);
  void start_stream(int status, std::string_view content_type, const Headers& headers);
  bool write(std::string data);
  void finish();
  void on_gone(std::function<void()> callback);
  // The responder is no more: an answer not begun becomes a 500, one not finished is cut.
  void abandon();

  // For the connection, on the I/O thread.
  // The connection is to end with this answer, which says so where it has not begun.
  void end_connection();
  Output take();
  // `bytes` of what was taken have been accepted by the operating system.
  void sent(uint64_t bytes) { unread_.fetch_sub(bytes, std::memory_order_relaxed); }
  // The client closed its side or the connection broke: calls on_gone's callback unless the answer
  // is complete. A whole answer given later is still passed on, in case only one side was closed.
  void gone();

 private:
  enum class Stage { kOpen, kStreaming, kComplete };

  void push(std::string data);  // with mutex_ held
  void wake_once(std::unique_lock<std::mutex> lock);

  const Settings settings_;
  const std::function<void()> wake_;
  std::atomic<uint64_t> unread_{0};
  size_t largest_ = 0;  // event so far
  std::mutex mutex_;
  std::vector<std::string> queue_;
  Stage stage_ = Stage::kOpen;
  bool keep_alive_;
  bool chunked_ = false;
  bool cut_ = false;
  bool gone_ = false;
  bool woken_ = false;
  std::function<void()> callback_;
};

// The Responder that handlers hold.
std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange);

}  // namespace lagoon::net
