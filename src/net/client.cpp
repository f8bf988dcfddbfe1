#include "net/client.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <optional>

namespace lagoon::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint64_t kMaxBody = 64ull << 20;
constexpr size_t kPieceBytes = 16 << 10;

Error bad_url(std::string_view text, std::string_view what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("'{}' {}; a server's URL is http://HOST:PORT", text, what)};
}

std::string authority(const Url& url) {
  const bool ipv6 = url.host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", url.host, url.port)
              : fmt::format("{}:{}", url.host, url.port);
}

Error failed(const Url& url, std::string_view what, const error_code& error) {
  if (error == beast::error::timeout) {
    return {ErrorCode::kUnavailable,
            fmt::format("the server at {} {}: nothing came in time", authority(url), what)};
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message) {
    return {ErrorCode::kUnavailable,
            fmt::format("the server at {} {}: it closed the connection", authority(url), what)};
  }
  return {ErrorCode::kUnavailable,
          fmt::format("the server at {} {}: {}", authority(url), what, error.message())};
}

// One request on one connection. Each step is an asynchronous operation, which alone can time out,
// and is waited for.
class Exchange {
 public:
  Exchange(const Url& url, const ClientTimeouts& timeouts) : url_(url), timeouts_(timeouts) {}

  Result<void> connect() {
    tcp::resolver resolver(io_);
    error_code error;
    // A name that does not resolve is said by the system within its own time limits.
    const auto addresses = resolver.resolve(url_.host, url_.port, error);
    if (error) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("there is no host '{}': {}", url_.host, error.message())};
    }
    stream_.expires_after(timeouts_.connect);
    stream_.async_connect(addresses, [&](error_code e, const tcp::endpoint&) { error = e; });
    run();
    if (error) return failed(url_, "cannot be connected to", error);
    error_code ignored;
    ignored = stream_.socket().set_option(tcp::no_delay(true), ignored);
    return {};
  }

  Result<void> send(const ClientRequest& request) {
    http::request<http::string_body> message;
    message.method_string(request.method);
    message.target(url_.prefix + request.path);
    message.version(11);
    message.set(http::field::host, authority(url_));
    message.set(http::field::user_agent, "lagoon");
    message.set(http::field::accept, "*/*");
    message.set(http::field::connection, "close");
    if (!request.body.empty()) message.set(http::field::content_type, "application/json");
    message.body() = request.body;
    message.prepare_payload();
    error_code error;
    stream_.expires_after(timeouts_.silence);
    http::async_write(stream_, message, [&](error_code e, size_t) { error = e; });
    run();
    if (error) return failed(url_, "does not take the request", error);
    return {};
  }

  Result<ClientResponse> receive(const BodySink& sink) {
    parser_.body_limit(boost::none);
    error_code error;
    stream_.expires_after(timeouts_.silence);
    http::async_read_header(stream_, buffer_, parser_, [&](error_code e, size_t) { error = e; });
    run();
    if (error) return failed(url_, "does not answer", error);
    ClientResponse response;
    response.status = parser_.get().result_int();
    response.content_type = std::string(parser_.get()[http::field::content_type]);
    const bool sunk = sink && response.status >= 200 && response.status < 300;
    LAGOON_RETURN_IF_ERROR(read_body([&](std::string_view piece) {
      if (sunk) sink(piece);
      if (!sunk) response.body += piece;
      return sunk || response.body.size() <= kMaxBody;
    }));
    return response;
  }

 private:
  void run() {
    io_.restart();
    io_.run();
  }

  template <typename Take>
  Result<void> read_body(const Take& take) {
    std::array<char, kPieceBytes> piece{};
    while (!parser_.is_done()) {
      parser_.get().body().data = piece.data();
      parser_.get().body().size = piece.size();
      error_code error;
      stream_.expires_after(timeouts_.silence);
      http::async_read_some(stream_, buffer_, parser_, [&](error_code e, size_t) { error = e; });
      run();
      if (error == http::error::need_buffer) error = {};  // the piece is full
      const size_t filled = piece.size() - parser_.get().body().size;
      if (filled > 0 && !take(std::string_view(piece.data(), filled))) {
        return Error{ErrorCode::kInternal, fmt::format("the server at {} sends more than {} bytes",
                                                       authority(url_), kMaxBody)};
      }
      if (error) return failed(url_, "breaks its answer off", error);
    }
    return {};
  }

  const Url& url_;
  const ClientTimeouts& timeouts_;
  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
};

bool is_port(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) return bad_url(text, "is encrypted, which is not supported");
  if (!text.starts_with(kScheme)) return bad_url(text, "does not begin with http://");
  std::string_view rest = text.substr(kScheme.size());
  if (rest.find_first_of("?#@ \t\r\n") != std::string_view::npos) {
    return bad_url(text, "has a user, a query or a blank");
  }
  Url url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.prefix = rest.substr(slash);
  while (url.prefix.ends_with('/')) url.prefix.pop_back();
  std::string_view place = rest.substr(0, slash);
  size_t host_end = std::min(place.find(':'), place.size());
  if (place.starts_with('[')) {
    host_end = place.find(']');
    if (host_end == std::string_view::npos) return bad_url(text, "has '[' without ']'");
    url.host = place.substr(1, host_end - 1);
    ++host_end;
  } else {
    url.host = place.substr(0, host_end);
  }
  if (url.host.empty()) return bad_url(text, "names no host");
  if (host_end < place.size()) {
    if (place[host_end] != ':' || !is_port(place.substr(host_end + 1))) {
      return bad_url(text, "has a port that is none");
    }
    url.port = place.substr(host_end + 1);
  }
  return url;
}

Result<ClientResponse> send_request(const Url& url, const ClientRequest& request,
                                    const ClientTimeouts& timeouts, const BodySink& sink) {
  Exchange exchange(url, timeouts);
  LAGOON_RETURN_IF_ERROR(exchange.connect());
  LAGOON_RETURN_IF_ERROR(exchange.send(request));
  return exchange.receive(sink);
}

}  // namespace lagoon::net
