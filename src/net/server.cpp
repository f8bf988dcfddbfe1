#include "net/server.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "net/exchange.h"
#include "net/http_text.h"
#include "net/listener.h"

namespace lagoon::net {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;  // TCP and Unix sockets alike

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMostAhead = 1 << 20;  // of requests behind the one that is being answered
constexpr size_t kEncryptedBytes = 16 << 10;
constexpr size_t kGatheredBuffers = 16;                 // of one write
constexpr std::chrono::milliseconds kLinger{2'000};     // for the client to see the last answer
constexpr std::chrono::milliseconds kAcceptRetry{100};  // when file descriptors have run out
// Connections beyond the limit that are told so; more are closed without a word.
constexpr size_t kRefusedConnections = 64;

class Connection;

// What all connections share. Used on the I/O thread only, apart from `io`, whose queue is safe,
// and what the mutex guards.
struct Core {
  Core(const ServerOptions& server_options, Handler request_handler)
      : options(server_options), handler(std::move(request_handler)) {}

  // A request that the handler has had is answered, or its client gone.
  void end_request() {
    if (--requests == 0 && ending) say_drained();
  }
  void say_drained() {
    const std::lock_guard lock(mutex);
    drained = true;
    drained_changed.notify_all();
  }

  const ServerOptions options;
  const Handler handler;
  asio::io_context io{1};
  asio::basic_socket_acceptor<Protocol> acceptor{io};
  asio::steady_timer accept_timer{io};
  bool stopping = false;  // the server is being destroyed
  bool ending = false;    // drain() has been called
  size_t requests = 0;    // that the handler has, of before drain()
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;

  std::mutex mutex;
  std::condition_variable drained_changed;
  bool drained = false;
};

// One client. Reads one request, hands it to the handler, writes its answer, and begins again.
// While the answer is being made a read stays pending, so that a client that leaves is noticed;
// what it sends meanwhile (the next request, pipelined) waits in `input_`.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Core> core, Protocol::socket socket)
      : core_(std::move(core)), socket_(std::move(socket)), timer_(core_->io) {
    if (!core_->options.tls) return;
    tls_ = core_->options.tls->accept();
    encrypted_.resize(kEncryptedBytes);
  }

  void start() {
    const size_t before = core_->connections.size();
    const size_t limit = core_->options.max_connections;
    if (before >= limit + kRefusedConnections) return;  // closed with the socket
    core_->connections.emplace(this, shared_from_this());
    error_code ignored;  // a Unix socket has no such option
    ignored = socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    begin_request();
    if (before < limit) return;
    if (tls_) {
      close();  // no answer can be given before a handshake, which would cost more than it tells
    } else {
      fail(503, "The server has as many connections as it takes; try again later.",
           {{"Retry-After", "1"}});
    }
  }

  // The answer that is being made, if any, is the last.
  void end_with_answer() {
    if (exchange_) exchange_->end_connection();
  }

  // Ends the connection; safe to call again.
  void close() {
    if (state_ == State::kClosed) return;
    const auto self = shared_from_this();
    state_ = State::kClosed;
    timer_.cancel();
    error_code ignored;
    ignored = socket_.close(ignored);
    core_->connections.erase(this);
    if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->gone();
    uncount();
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  enum class State { kReading, kAnswering, kLingering, kClosed };

  struct Buffer {
    std::string data;
    uint64_t unread;  // of the exchange's unread bytes; told to it when the whole buffer is sent
  };

  void begin_request() {
    state_ = State::kReading;
    handled_ = false;
    header_read_ = false;
    complete_ = false;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(core_->options.max_header_bytes));
    parser_->body_limit(core_->options.max_body_bytes);
    parser_->eager(false);
    receive_deadline_ = {};
    if (input_.size() == 0 && !(tls_ && first_)) {
      arm_timer(core_->options.idle_timeout);
    } else {
      arm_read_timer();
    }
    first_ = false;
    parse();
    if (state_ == State::kReading && end_of_input_) close();
    read_more();
  }

  void read_more() {
    if (reading_ || end_of_input_ || state_ == State::kClosed) return;
    // A client that sends ahead of the answer without end is cut off: if it were not read any
    // further, it could not be seen to leave.
    if (state_ == State::kAnswering && input_.size() > core_->options.max_header_bytes) {
      if (handled_ && input_.size() > core_->options.max_header_bytes + kMostAhead) close();
      if (!handled_ || state_ == State::kClosed) return;
    }
    reading_ = true;
    const auto buffer = tls_ ? asio::mutable_buffer(encrypted_.data(), encrypted_.size())
                             : asio::mutable_buffer(input_.prepare(kReadBytes));
    socket_.async_read_some(buffer, [self = shared_from_this()](error_code error, size_t bytes) {
      self->reading_ = false;
      self->on_read(error, bytes);
    });
  }

  // What came is decrypted into the input. False where that ends the connection, or its input.
  bool decrypt(size_t bytes) {
    std::string plain;
    std::string reply;
    const bool fine = tls_->receive({encrypted_.data(), bytes}, plain, reply);
    boost::asio::buffer_copy(input_.prepare(plain.size()), asio::buffer(plain));
    input_.commit(plain.size());
    if (!reply.empty()) {
      output_.push_back({std::move(reply), 0});
      write_more();
    }
    if (fine && !tls_->peer_has_ended()) return true;
    if (state_ == State::kReading && input_.size() > 0) parse();
    if (fine) {
      on_end_of_input(asio::error::eof);
    } else if (state_ != State::kClosed) {
      send_now();  // the alert that says why
      close();
    }
    return false;
  }

  // Writes what there is, as far as the socket takes it at once.
  void send_now() {
    for (; !output_.empty() && !writing_; output_.pop_front()) {
      const std::string& data = output_.front().data;
      [[maybe_unused]] const ssize_t sent =
          ::send(socket_.native_handle(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

  void on_read(error_code error, size_t bytes) {
    if (state_ == State::kClosed) return;
    if (error) {
      on_end_of_input(error);
      return;
    }
    if (tls_) {
      const size_t before = input_.size();
      if (!decrypt(bytes)) return;
      if (state_ == State::kReading && input_.size() == before) {  // of the handshake only
        read_more();
        return;
      }
    } else {
      input_.commit(bytes);
    }
    if (state_ == State::kReading) {
      // A header has one deadline from its first byte; a body has one for each of its reads.
      if (header_read_ || !parser_->got_some()) arm_read_timer();
      parse();
    } else if (state_ == State::kLingering) {
      input_.consume(input_.size());
    }
    read_more();
  }

  void on_end_of_input(error_code error) {
    end_of_input_ = true;
    const bool half_closed = error == asio::error::eof;
    if (half_closed && state_ == State::kAnswering) {
      if (exchange_) exchange_->gone();
    } else if (half_closed && state_ == State::kReading && parser_->got_some()) {
      fail(400, "The request ended before it was complete.");
    } else {
      close();
    }
  }

  // Feeds the parser with what has been read.
  void parse() {
    while (state_ == State::kReading && (input_.size() > 0 || parser_->is_done())) {
      if (!parser_->is_done()) {
        error_code error;
        input_.consume(parser_->put(input_.data(), error));
        if (error == http::error::need_more) return;
        if (error) {
          on_parse_error(error);
          return;
        }
      }
      if (!header_read_ && parser_->is_header_done()) {
        header_read_ = true;
        if (!check_header()) return;
      }
      if (parser_->is_done()) dispatch();
    }
  }

  void on_parse_error(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      fail(431, fmt::format("The request's header is larger than {} bytes.",
                            core_->options.max_header_bytes));
    } else if (error == http::error::body_limit) {
      fail(413, fmt::format("The request's body is larger than {} bytes.",
                            core_->options.max_body_bytes));
    } else {
      fail(400, fmt::format("The request is not valid HTTP: {}.", error.message()));
    }
  }

  // What the parser leaves to us. False where the request has been refused.
  bool check_header() {
    const auto& head = parser_->get();
    if (head.version() == 11 && head.count(http::field::host) != 1) {
      fail(400, "The request has no Host header, or more than one.");
      return false;
    }
    const auto coding = head[http::field::transfer_encoding];
    if (!coding.empty() && !equals_ignoring_case({coding.data(), coding.size()}, "chunked")) {
      fail(501, "The request's transfer encoding is not supported; use chunked or Content-Length.");
      return false;
    }
    const auto expect = head[http::field::expect];
    if (expect.empty() || head.version() == 10) return true;
    if (!equals_ignoring_case({expect.data(), expect.size()}, "100-continue")) {
      fail(417, "The request's Expect header is not supported.");
      return false;
    }
    if (!parser_->is_done()) {
      push_output(fmt::format("HTTP/1.1 100 {}\r\n\r\n", reason_phrase(100)), 0);
      write_more();
    }
    return true;
  }

  std::shared_ptr<Exchange> make_exchange(bool keep_alive) {
    const auto& head = parser_->get();
    return std::make_shared<Exchange>(
        Exchange::Settings{.version = head.version() == 10 ? 10 : 11,
                           .head_only = head.method() == http::verb::head,
                           .keep_alive = keep_alive,
                           .max_unread = core_->options.max_unread_bytes},
        [core = core_, weak = weak_from_this()] {
          asio::post(core->io, [weak] {
            if (const auto self = weak.lock()) self->flush();
          });
        });
  }

  void push_output(std::string data, uint64_t unread) {
    if (tls_) {
      std::string wire;
      tls_->send(data, wire);
      data = std::move(wire);
    }
    output_.push_back({std::move(data), unread});
  }

  // The request counts for drain() until uncount().
  void count() {
    if (core_->ending) return;
    counted_ = true;
    ++core_->requests;
  }
  void uncount() {
    if (std::exchange(counted_, false)) core_->end_request();
  }

  void dispatch() {
    state_ = State::kAnswering;
    handled_ = true;
    timer_.cancel();
    count();
    const auto exchange = make_exchange(parser_->keep_alive() && !core_->ending);
    exchange_ = exchange;
    if (end_of_input_) exchange->gone();
    core_->handler(take_request(), make_responder(exchange));
  }

  // Answers a request that cannot be read, and serves no other on this connection.
  void fail(int status, std::string_view message, const Headers& headers = {}) {
    state_ = State::kAnswering;
    timer_.cancel();
    exchange_ = make_exchange(false);
    exchange_->respond(status, "application/json", error_body(status, message), headers);
  }

  HttpRequest take_request() {
    auto message = parser_->release();
    HttpRequest request;
    request.method = std::string(message.method_string());
    std::string target(message.target());
    // RFC 9112, 3.2.2: a target may be absolute, "http://host/path".
    if (const size_t scheme = target.find("://"); scheme != std::string::npos && target[0] != '/') {
      const size_t path = target.find('/', scheme + 3);
      target = path == std::string::npos ? "/" : target.substr(path);
    }
    const size_t question = target.find('?');
    request.path = target.substr(0, question);
    if (question != std::string::npos) request.query = target.substr(question + 1);
    for (const auto& field : message) {
      request.headers.emplace_back(field.name_string(), field.value());
    }
    request.body = std::move(message.body());
    return request;
  }

  // Takes over what the answer has come to, and goes on when it is complete and written.
  void flush() {
    if (state_ != State::kAnswering || !exchange_) return;
    auto taken = exchange_->take();
    if (taken.cut) {
      close();
      return;
    }
    for (auto& buffer : taken.buffers) {
      const uint64_t unread = buffer.size();
      push_output(std::move(buffer), unread);
    }
    complete_ = taken.complete;
    keep_alive_ = taken.keep_alive;
    if (writing_) return;
    if (!output_.empty()) {
      write_more();
    } else if (complete_) {
      end_answer();
    }
  }

  void write_more() {
    if (writing_) return;
    std::vector<asio::const_buffer> buffers;
    for (size_t i = 0; i < std::min(output_.size(), kGatheredBuffers); ++i) {
      const size_t skip = i == 0 ? output_written_ : 0;
      buffers.emplace_back(output_[i].data.data() + skip, output_[i].data.size() - skip);
    }
    writing_ = true;
    if (state_ == State::kAnswering) arm_timer(core_->options.write_timeout);
    socket_.async_write_some(buffers, [self = shared_from_this()](error_code error, size_t bytes) {
      self->writing_ = false;
      self->on_write(error, bytes);
    });
  }

  void on_write(error_code error, size_t bytes) {
    if (state_ == State::kClosed) return;
    if (error) {
      close();
      return;
    }
    while (bytes > 0) {
      const size_t n = std::min(bytes, output_.front().data.size() - output_written_);
      bytes -= n;
      output_written_ += n;
      if (output_written_ == output_.front().data.size()) {
        if (exchange_) exchange_->sent(output_.front().unread);
        output_.pop_front();
        output_written_ = 0;
      }
    }
    if (state_ == State::kAnswering) timer_.cancel();
    if (!output_.empty()) {
      write_more();
    } else {
      flush();
    }
  }

  void end_answer() {
    exchange_.reset();
    uncount();
    if (keep_alive_ && !core_->ending && (!end_of_input_ || input_.size() > 0)) {
      begin_request();
    } else {
      linger();
    }
  }

  // Closing at once while the client still sends would reset the connection and could take the
  // answer away from it; so our side is closed first and the rest of the input dropped.
  void linger() {
    if (end_of_input_) {
      close();
      return;
    }
    state_ = State::kLingering;
    if (tls_) {
      std::string wire;
      tls_->end(wire);
      output_.push_back({std::move(wire), 0});
      send_now();
    }
    error_code ignored;
    ignored = socket_.shutdown(Protocol::socket::shutdown_send, ignored);
    input_.consume(input_.size());
    arm_timer(kLinger);
    read_more();
  }

  // Until the next bytes of a request, and at most until all of it has to be there.
  void arm_read_timer() {
    using std::chrono::milliseconds;
    const auto now = std::chrono::steady_clock::now();
    if (receive_deadline_ == std::chrono::steady_clock::time_point()) {
      receive_deadline_ = now + core_->options.receive_timeout;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(receive_deadline_ - now);
    arm_timer(std::clamp(left, milliseconds(0), core_->options.read_timeout));
  }

  void arm_timer(std::chrono::milliseconds time) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      // A timer that was set anew after it fired has its expiry in the future.
      if (error || self->timer_.expiry() > asio::steady_timer::clock_type::now()) return;
      self->on_timeout();
    });
  }

  void on_timeout() {
    if (state_ == State::kReading && parser_->got_some()) {
      fail(408, "The request did not arrive in time.");
    } else if (state_ != State::kAnswering || writing_) {
      close();
    }
  }

  const std::shared_ptr<Core> core_;
  Protocol::socket socket_;
  std::unique_ptr<TlsSession> tls_;  // null: plain HTTP
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point receive_deadline_;  // for all of the request
  State state_ = State::kReading;
  bool first_ = true;     // no request has begun yet
  bool counted_ = false;  // in the core's requests

  std::vector<char> encrypted_;  // TLS: what comes, before it is input
  boost::beast::flat_buffer input_;
  bool reading_ = false;
  bool end_of_input_ = false;
  std::optional<Parser> parser_;
  bool header_read_ = false;
  bool handled_ = false;  // while answering: by the handler; else it was refused here

  std::shared_ptr<Exchange> exchange_;
  std::deque<Buffer> output_;
  size_t output_written_ = 0;  // bytes of output_.front()
  bool writing_ = false;
  bool complete_ = false;
  bool keep_alive_ = false;
};

void accept_next(const std::shared_ptr<Core>& core) {
  core->acceptor.async_accept([core](error_code error, Protocol::socket socket) {
    if (core->stopping) return;
    if (!error) {
      std::make_shared<Connection>(core, std::move(socket))->start();
      accept_next(core);
      return;
    }
    LOG(warning, "a connection could not be accepted: {}", error.message());
    core->accept_timer.expires_after(kAcceptRetry);
    core->accept_timer.async_wait([core](error_code cancelled) {
      if (!cancelled && !core->stopping) accept_next(core);
    });
  });
}

class AsioServer : public Server {
 public:
  AsioServer(std::shared_ptr<Core> core, uint16_t port)
      : core_(std::move(core)), port_(port), thread_([core = core_] {
          // Kept running while the acceptor or a connection waits for something.
          accept_next(core);
          core->io.run();
        }) {}

  // NOLINTNEXTLINE(bugprone-exception-escape): nothing to be done when memory has run out
  ~AsioServer() override {
    asio::post(core_->io, [core = core_] {
      core->stopping = true;
      error_code ignored;
      ignored = core->acceptor.close(ignored);
      core->accept_timer.cancel();
      while (!core->connections.empty()) core->connections.begin()->second->close();
    });
    thread_.join();
    if (!core_->options.socket_path.empty()) ::unlink(core_->options.socket_path.c_str());
  }

  uint16_t port() const override { return port_; }

  bool drain(std::chrono::milliseconds timeout) override {
    asio::post(core_->io, [core = core_] {
      core->ending = true;
      for (const auto& [_, connection] : core->connections) connection->end_with_answer();
      if (core->requests == 0) core->say_drained();
    });
    std::unique_lock lock(core_->mutex);
    return core_->drained_changed.wait_for(lock, timeout, [this] { return core_->drained; });
  }

 private:
  std::shared_ptr<Core> core_;
  uint16_t port_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Handler handler) {
  LAGOON_ASSIGN(const Listener listener, options.socket_path.empty()
                                             ? listen_on_port(options.host, options.port)
                                             : listen_on_path(options.socket_path));
  auto core = std::make_shared<Core>(options, std::move(handler));
  error_code error;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener.socket, reinterpret_cast<sockaddr*>(&address), &size);
  error = core->acceptor.assign(Protocol(address.ss_family, 0), listener.socket, error);
  if (error) {
    ::close(listener.socket);
    return Error{ErrorCode::kInternal,
                 fmt::format("the listening socket cannot be used: {}", error.message())};
  }
  return {std::make_unique<AsioServer>(std::move(core), listener.port)};
}

}  // namespace lagoon::net
