#include "net/client.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "net/server.h"

namespace lagoon::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(ParseUrl, HostPortAndPrefix) {
  const auto parts = [](const char* text) {
    const auto url = parse_url(text);
    return url.ok() ? fmt::format("{}|{}|{}", url->host, url->port, url->prefix)
                    : url.error().message;
  };
  EXPECT_EQ(parts("http://localhost:8000"), "localhost|8000|");
  EXPECT_EQ(parts("http://host"), "host|80|");
  EXPECT_EQ(parts("http://10.0.0.1:1/v1/"), "10.0.0.1|1|/v1");
  EXPECT_EQ(parts("http://[::1]:8000/a/b"), "::1|8000|/a/b");
  EXPECT_EQ(parts("http://[::1]"), "::1|80|");
  EXPECT_THAT(parts("https://host"), HasSubstr("is encrypted"));
  EXPECT_THAT(parts("localhost:8000"), HasSubstr("does not begin with http://"));
  EXPECT_THAT(parts("http://"), HasSubstr("names no host"));
  EXPECT_THAT(parts("http://:80"), HasSubstr("names no host"));
  for (const char* text : {"http://h:0", "http://h:65536", "http://h:", "http://h:8x",
                           "http://[::1]x", "http://h:-1"}) {
    EXPECT_THAT(parts(text), HasSubstr("has a port that is none")) << text;
  }
  EXPECT_THAT(parts("http://[::1"), HasSubstr("without ']'"));
  EXPECT_THAT(parts("http://u@h"), HasSubstr("has a user"));
  EXPECT_THAT(parts("http://h/?q"), HasSubstr("a query"));
}

Url local(uint16_t port) {
  return {.host = "127.0.0.1", .port = fmt::format("{}", port), .prefix = ""};
}

// /echo, /large, /stream in pieces, /error with status 500, /cut in the middle, /silent.
void handle(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  if (request.path == "/p/echo") {
    responder->respond(
        200, "text/plain",
        fmt::format("{} {} {}", request.method, request.header("Content-Type"), request.body));
  } else if (request.path == "/large") {
    responder->respond(200, "text/plain", std::string(300'000, 'x'));
  } else if (request.path == "/stream") {
    responder->start_stream(200, "text/event-stream");
    for (int i = 0; i < 3; ++i) responder->write(fmt::format("piece {};", i));
    responder->finish();
  } else if (request.path == "/error") {
    responder->respond(500, "text/plain", "broken");
  } else if (request.path == "/cut") {
    responder->start_stream(200, "text/plain");
    responder->write("half");  // and the responder goes
  } else if (request.path == "/silent") {
    static std::shared_ptr<Responder> held;
    held = responder;
  }
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = Server::start({.port = 0}, handle);
    ASSERT_TRUE(started.ok());
    server_ = std::move(started).value();
    url_ = local(server_->port());
  }
  Result<ClientResponse> get(const std::string& path, const BodySink& sink = nullptr) {
    return send_request(url_, {.method = "GET", .path = path, .body = ""}, timeouts_, sink);
  }

  std::unique_ptr<Server> server_;
  Url url_;
  ClientTimeouts timeouts_;
};

TEST_F(ClientTest, SendsMethodPrefixTypeAndBody) {
  url_.prefix = "/p";
  const auto response =
      send_request(url_, {.method = "POST", .path = "/echo", .body = "{\"a\":1}"}, timeouts_);
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->content_type, "text/plain");
  EXPECT_EQ(response->body, "POST application/json {\"a\":1}");
}

TEST_F(ClientTest, WholeAndStreamedBodies) {
  EXPECT_EQ(get("/large")->body, std::string(300'000, 'x'));
  EXPECT_EQ(get("/stream")->body, "piece 0;piece 1;piece 2;");
  std::string sunk;
  const auto response = get("/stream", [&](std::string_view piece) { sunk += piece; });
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->body, "");
  EXPECT_EQ(sunk, "piece 0;piece 1;piece 2;");
}

TEST_F(ClientTest, AnErrorsBodyIsNotSunk) {
  const auto response = get("/error", [](std::string_view) { FAIL(); });
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 500);
  EXPECT_EQ(response->body, "broken");
}

TEST_F(ClientTest, AnAnswerThatBreaksOff) {
  const auto response = get("/cut", [](std::string_view) {});
  ASSERT_FALSE(response.ok());
  // Whether the head was still sent is the server's to say; WhatIsNotHttp has both.
  EXPECT_THAT(response.error().message, HasSubstr("127.0.0.1:" + url_.port));
  EXPECT_THAT(response.error().message, HasSubstr("it closed the connection"));
}

TEST_F(ClientTest, AServerThatIsSilent) {
  timeouts_.silence = milliseconds(100);
  const auto response = get("/silent");
  ASSERT_FALSE(response.ok());
  EXPECT_THAT(response.error().message, HasSubstr("does not answer: nothing came in time"));
}

TEST_F(ClientTest, NobodyThere) {
  server_.reset();
  const auto refused = get("/");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("cannot be connected to: Connection refused"));
  url_.host = "no-such-host.invalid";
  const auto unknown = get("/");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("no-such-host.invalid"));
}

// One connection, one answer of these bytes.
class RawServer {
 public:
  explicit RawServer(std::string bytes) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    socklen_t size = sizeof address;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      const int client = ::accept(socket_, nullptr, nullptr);
      char buffer[4096];
      if (::recv(client, buffer, sizeof buffer, 0) > 0) {
        ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      ::shutdown(client, SHUT_WR);
      while (::recv(client, buffer, sizeof buffer, 0) > 0) {
      }
      ::close(client);
    });
  }
  ~RawServer() {
    thread_.join();
    ::close(socket_);
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;
  uint16_t port() const { return port_; }

 private:
  int socket_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(Client, WhatIsNotHttp) {
  const auto answer = [](const std::string& bytes) {
    const RawServer server(bytes);
    const auto response =
        send_request(local(server.port()), {.method = "GET", .path = "/", .body = ""}, {});
    return response.ok() ? fmt::format("{} {}", response->status, response->body)
                         : response.error().message;
  };
  EXPECT_THAT(answer("SSH-2.0-OpenSSH_9\r\n"), HasSubstr("does not answer"));
  EXPECT_THAT(answer(""), HasSubstr("does not answer: it closed the connection"));
  EXPECT_THAT(answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"),
              HasSubstr("breaks its answer off: it closed the connection"));
  EXPECT_THAT(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
              HasSubstr("breaks its answer off"));
  // Without a length the end of the connection ends the body.
  EXPECT_EQ(answer("HTTP/1.0 200 OK\r\n\r\nall of it"), "200 all of it");
  EXPECT_EQ(answer("HTTP/1.1 204 No Content\r\n\r\n"), "204 ");
}

}  // namespace
}  // namespace lagoon::net
