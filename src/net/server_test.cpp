#include "net/server.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "net/sse.h"
#include "net/test_client.h"

namespace lagoon::net {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Waits up to ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

// Echoes method, path, query and body; /slow answers when told to; /stream streams what it is told.
class ServerTest : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}) {
    options.port = 0;
    auto started =
        Server::start(options, [this](HttpRequest request, std::shared_ptr<Responder> responder) {
          handle(std::move(request), std::move(responder));
        });
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(started).value();
  }
  TestClient connect(int receive_buffer = 0) { return TestClient(server_->port(), receive_buffer); }

  void handle(HttpRequest request, std::shared_ptr<Responder> responder) {
    ++requests_;
    if (request.path == "/held") {
      responder->on_gone([this] { ++gone_; });
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(responder));
    } else if (request.path == "/forgotten") {
      responder.reset();
    } else {
      responder->respond(200, "text/plain",
                         fmt::format("{} {} {} {} {}", request.method, request.path, request.query,
                                     request.body.size(), request.body.substr(0, 40)));
    }
  }
  std::shared_ptr<Responder> held(size_t i = 0) {
    eventually([&] {
      const std::lock_guard lock(mutex_);
      return held_.size() > i;
    });
    const std::lock_guard lock(mutex_);
    return held_.at(i);
  }

  std::atomic<int> requests_{0};
  std::atomic<int> gone_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Responder>> held_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, KeepsAConnectionOverRequests) {
  start();
  auto client = connect();
  for (int i = 0; i < 3; ++i) {
    client.send(fmt::format("GET /a?q={} HTTP/1.1\r\nHost: x\r\n\r\n", i));
    const std::string answer = client.read_response();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, EndsWith(fmt::format("GET /a q={} 0 ", i)));
  }
  client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.read_response(), HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, Http10ClosesUnlessAskedToKeep) {
  start();
  auto client = connect();
  client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.read_response(), HasSubstr("Connection: keep-alive\r\n"));
  client.send("GET /b HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.0 200 OK\r\n"));
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, ReadsARequestInAnyPieces) {
  start();
  auto client = connect();
  const std::string request =
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n7;x=y\r\n world!\r\n0\r\n\r\n";
  for (const char c : request) {
    client.send(std::string_view(&c, 1));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_THAT(client.read_response(), EndsWith("POST /p  12 hello world!"));
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  auto client = connect();
  client.send(
      "GET /held HTTP/1.1\r\nHost: x\r\n\r\n"
      "POST /two HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
      "GET /three HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto first = held();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(requests_, 1);
  first->respond(200, "text/plain", "one");
  EXPECT_THAT(client.read_response(), EndsWith("\r\n\r\none"));
  EXPECT_THAT(client.read_response(), EndsWith("POST /two  2 ab"));
  EXPECT_THAT(client.read_response(), EndsWith("GET /three  0 "));
}

TEST_F(ServerTest, AClientThatSendsAheadIsSeenToLeave) {
  start();
  for (const size_t ahead : {size_t{300} << 10, size_t{8} << 20}) {
    const int gone = gone_;
    {
      auto client = connect();
      client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
      const auto responder = held();
      client.send(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", ahead));
      client.send(std::string(ahead, 'x'));
    }
    for (int i = 0; i < 400 && gone_ == gone; ++i) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(gone_, gone + 1) << ahead;
  }
}

TEST_F(ServerTest, TakesALargeBodyAndRefusesALargerOne) {
  start({.max_body_bytes = 8 << 20});
  auto client = connect();
  const std::string body(8 << 20, 'x');
  client.send(fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.size()));
  client.send(body);
  EXPECT_THAT(client.read_response(), HasSubstr(fmt::format(" {} xxxx", body.size())));

  client.send(
      fmt::format("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.size() + 1));
  const std::string refused = client.read_response();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(refused, HasSubstr(R"("code":413)"));
  EXPECT_TRUE(client.at_end());

  auto chunked = connect();
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800001\r\n");
  chunked.send(body);
  chunked.send("x\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.read_response(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(ServerTest, RefusesALargeHeader) {
  start({.max_header_bytes = 4096});
  auto client = connect();
  client.send("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(8192, 'x') + "\r\n\r\n");
  EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 431 "));
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, RefusesWhatIsNotHttp) {
  start();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x16\x03\x01\x02", "400"},
      {"hello\r\n\r\n", "400"},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost x\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0",
       "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n", "417"},
  };
  for (const auto& [request, status] : cases) {
    auto client = connect();
    client.send(request);
    const std::string answer = client.read_response();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status)) << request;
    EXPECT_THAT(answer, HasSubstr(R"({"error":{"message":")")) << request;
    EXPECT_TRUE(client.at_end()) << request;
  }
  EXPECT_EQ(requests_, 0);
}

TEST_F(ServerTest, AnIncompleteRequestIsRefusedAtItsEnd) {
  start();
  auto client = connect();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  client.close_sending_side();
  EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 400 "));
}

TEST_F(ServerTest, SaysContinueBeforeTheBody) {
  start();
  auto client = connect();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_THAT(client.read_response(), EndsWith("POST /  2 ab"));
}

TEST_F(ServerTest, HeadAnswersWithoutBody) {
  start();
  auto client = connect();
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: 11\r\n"));
  EXPECT_THAT(client.read_response(), EndsWith("GET /b  0 "));
}

TEST_F(ServerTest, AbsoluteTargets) {
  start();
  auto client = connect();
  client.send("GET http://example.com:80/a/b?c HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_response(), EndsWith("GET /a/b c 0 "));
}

TEST_F(ServerTest, StreamsChunks) {
  start();
  auto client = connect();
  client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held();
  responder->start_stream(200, kEventStream);
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_TRUE(responder->write("one"));
  EXPECT_EQ(client.read_until("one\r\n"), "3\r\none\r\n");  // before anything else is written
  EXPECT_TRUE(responder->write("two"));
  responder->finish();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "3\r\ntwo\r\n0\r\n\r\n");
  client.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_response(), EndsWith("GET /next  0 "));
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, NoticesAClientThatLeaves) {
  start();
  {
    auto client = connect();
    client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    held();
  }
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  held()->start_stream(200, kEventStream);
  EXPECT_FALSE(held()->write("x"));
  held()->finish();

  auto streaming = connect();
  streaming.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  held(1)->start_stream(200, kEventStream);
  held(1)->write("x");
  streaming.read_until("1\r\nx\r\n");
  streaming.close();
  EXPECT_TRUE(eventually([&] { return gone_ == 2; }));
  EXPECT_FALSE(held(1)->write("x"));
}

TEST_F(ServerTest, ASendingSideThatClosesStillGetsAWholeAnswer) {
  start();
  auto client = connect();
  client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  client.close_sending_side();
  EXPECT_THAT(client.read_response(), EndsWith("GET /a  0 "));
  EXPECT_THAT(client.read_response(), EndsWith("GET /b  0 "));
  EXPECT_TRUE(client.at_end());
}

TEST_F(ServerTest, CutsAStreamThatIsNotRead) {
  start({.max_unread_bytes = 1 << 20});
  auto client = connect(4096);
  client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held();
  responder->start_stream(200, kEventStream);
  const std::string block(64 << 10, 'x');
  EXPECT_TRUE(eventually([&] { return !responder->write(block); }));
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
}

TEST_F(ServerTest, ASlowReaderGetsEverything) {
  start();
  auto client = connect(4096);
  client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held();
  std::string expected;
  for (int i = 0; i < 100'000; ++i) expected += fmt::format("{} ", i);
  responder->respond(200, "text/plain", expected);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_THAT(client.read_response(), EndsWith("\r\n\r\n" + expected));
}

TEST_F(ServerTest, TimesOut) {
  start({.idle_timeout = milliseconds(300),
         .read_timeout = milliseconds(100),
         .write_timeout = milliseconds(200)});
  auto idle = connect();
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.at_end());

  auto slow_header = connect();
  slow_header.send("GET / HTTP/1.1\r\n");
  EXPECT_THAT(slow_header.read_response(), StartsWith("HTTP/1.1 408 "));

  auto slow_body = connect();
  slow_body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_THAT(slow_body.read_response(), StartsWith("HTTP/1.1 408 "));

  auto not_reading = connect(4096);
  not_reading.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto responder = held();
  responder->start_stream(200, kEventStream);
  responder->write(std::string(12 << 20, 'x'));
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));

  // An answer that takes long is not a timeout.
  auto patient = connect();
  patient.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto late = held(1);
  std::this_thread::sleep_for(milliseconds(500));
  late->respond(200, "text/plain", "late");
  EXPECT_THAT(patient.read_response(), EndsWith("late"));
}

TEST_F(ServerTest, AForgottenRequestIsA500) {
  start();
  auto client = connect();
  client.send("GET /forgotten HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 500 "));
}

TEST_F(ServerTest, FiveHundredStreamsAtOnce) {
  constexpr size_t kStreams = 400;  // client and server share this process's file descriptors
  constexpr int kEvents = 20;
  start();
  std::vector<TestClient> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n")) << i;
  }
  held(kStreams - 1);
  std::vector<std::thread> writers;
  writers.reserve(2);
  for (size_t part = 0; part < 2; ++part) {
    writers.emplace_back([&, part] {
      for (size_t i = part; i < kStreams; i += 2) held_[i]->start_stream(200, kEventStream);
      for (int event = 0; event < kEvents; ++event) {
        for (size_t i = part; i < kStreams; i += 2) {
          EXPECT_TRUE(held_[i]->write(sse_event(fmt::format("{}", event))));
        }
      }
      for (size_t i = part; i < kStreams; i += 2) held_[i]->finish();
    });
  }
  for (auto& writer : writers) writer.join();
  for (auto& client : clients) {
    const std::string all = client.read_until("\r\n0\r\n\r\n");
    size_t at = 0;
    for (int event = 0; event < kEvents; ++event) {
      at = all.find(fmt::format("data: {}\n\n", event), at);
      ASSERT_NE(at, std::string::npos) << all;
    }
  }
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServerTest, ClosingTheServerEndsWhatIsOpen) {
  start();
  auto idle = connect();
  auto busy = connect();
  busy.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  held();
  server_.reset();
  EXPECT_TRUE(idle.at_end());
  EXPECT_TRUE(busy.at_end());
  EXPECT_EQ(gone_, 1);
  held()->respond(200, "text/plain", "too late");  // and nothing happens
}

TEST_F(ServerTest, SaysWhyThePortCannotBeOpened) {
  start();
  const auto handler = [](const HttpRequest&, const std::shared_ptr<Responder>&) {};
  const auto taken = Server::start({.port = server_->port()}, handler);
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message,
              HasSubstr(fmt::format("127.0.0.1:{}: the port is in use", server_->port())));
  EXPECT_THAT(taken.error().message, HasSubstr("--port"));

  const auto foreign = Server::start({.host = "203.0.113.1", .port = 0}, handler);
  ASSERT_FALSE(foreign.ok());
  EXPECT_THAT(foreign.error().message, HasSubstr("203.0.113.1:0"));
  EXPECT_THAT(foreign.error().message, HasSubstr("--host"));

  const auto nowhere = Server::start({.host = "no.such.host.invalid", .port = 0}, handler);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, HasSubstr("no.such.host.invalid:0"));
}

TEST_F(ServerTest, ABodyThatTricklesInIsGivenUp) {
  start({.read_timeout = milliseconds(2000), .receive_timeout = milliseconds(300)});
  auto client = connect();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  std::thread trickle([&] {
    for (int i = 0; i < 100 && client.send("x"); ++i) std::this_thread::sleep_for(milliseconds(20));
  });
  EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 408 "));
  trickle.join();
  EXPECT_EQ(requests_, 0);
}

TEST_F(ServerTest, OneConnectionTooMany) {
  start({.max_connections = 2});
  auto first = connect();
  auto second = connect();
  for (auto* client : {&first, &second}) {
    client->send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client->read_response(), EndsWith("GET /a  0 "));
  }
  auto third = connect();
  const std::string refused = third.read_response();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(refused, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_TRUE(third.at_end());
  first.close();
  EXPECT_TRUE(eventually([&] {
    auto again = connect();
    again.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    return again.read_response().starts_with("HTTP/1.1 200 ");
  }));
}

TEST_F(ServerTest, DrainingWaitsForWhatHasBegun) {
  start();
  auto busy = connect();
  busy.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  held();
  auto idle = connect();
  EXPECT_FALSE(server_->drain(milliseconds(50)));
  // What comes now is the handler's to refuse, is the connection's last, and is not waited for.
  idle.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  held(1);
  std::atomic<bool> drained{false};
  std::thread waiting([&] { drained = server_->drain(std::chrono::seconds(10)); });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(drained);
  held(0)->respond(200, "text/plain", "done");
  const std::string last = busy.read_response();
  EXPECT_THAT(last, EndsWith("done"));
  EXPECT_THAT(last, HasSubstr("Connection: close\r\n"));
  waiting.join();
  EXPECT_TRUE(drained);
  held(1)->respond(503, "text/plain", "later");
  EXPECT_THAT(idle.read_response(), EndsWith("later"));
  EXPECT_TRUE(idle.at_end());
  EXPECT_TRUE(busy.at_end());
}

TEST_F(ServerTest, ClientsThatLeaveAreNotWaitedFor) {
  start();
  auto client = connect();
  client.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
  held();
  std::thread waiting([&] { EXPECT_TRUE(server_->drain(std::chrono::seconds(10))); });
  std::this_thread::sleep_for(milliseconds(50));
  client.close();
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  {
    const std::lock_guard lock(mutex_);
    held_.clear();  // as a handler does that is told
  }
  waiting.join();
}

TEST_F(ServerTest, ListensOnAUnixSocket) {
  const std::string path = fmt::format("{}/server_test_{}", testing::TempDir(), ::getpid());
  start({.socket_path = path});
  EXPECT_EQ(server_->port(), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int s = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  constexpr std::string_view kRequest = "GET /unix HTTP/1.0\r\n\r\n";
  ASSERT_EQ(::send(s, kRequest.data(), kRequest.size(), 0), static_cast<ssize_t>(kRequest.size()));
  std::string answer;
  char bytes[1024];
  for (ssize_t n = 0; (n = ::recv(s, bytes, sizeof bytes, 0)) > 0;) {
    answer.append(bytes, static_cast<size_t>(n));
  }
  ::close(s);
  EXPECT_THAT(answer, EndsWith("GET /unix  0 "));
  server_.reset();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(Tls, FilesThatCannotBeUsedAreNamed) {
  const auto missing = TlsContext::load({.certificate = "/no/cert.pem", .key = "/no/key.pem"});
  ASSERT_FALSE(missing.ok());
  if (missing.error().code == ErrorCode::kUnsupported) GTEST_SKIP() << missing.error().message;
  EXPECT_THAT(missing.error().message, HasSubstr("--ssl-certfile /no/cert.pem cannot be read"));
  const auto wrong = TlsContext::load({.certificate = "/proc/self/stat", .key = "/proc/self/stat"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("--ssl-certfile /proc/self/stat cannot be used"));
}

TEST_F(ServerTest, ListensOnIpv6) {
  const auto handler = [](const HttpRequest&, const std::shared_ptr<Responder>& responder) {
    responder->respond(200, "text/plain", "six");
  };
  const auto started = Server::start({.host = "[::1]", .port = 0}, handler);
  if (!started.ok()) GTEST_SKIP() << "no IPv6 here: " << started.error().message;
  const int s = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons((*started)->port());
  address.sin6_addr = in6addr_loopback;
  ASSERT_EQ(::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  constexpr std::string_view kRequest = "GET / HTTP/1.0\r\n\r\n";
  ASSERT_EQ(::send(s, kRequest.data(), kRequest.size(), 0), static_cast<ssize_t>(kRequest.size()));
  std::string answer;
  char bytes[1024];
  for (ssize_t n = 0; (n = ::recv(s, bytes, sizeof bytes, 0)) > 0;) {
    answer.append(bytes, static_cast<size_t>(n));
  }
  ::close(s);
  EXPECT_THAT(answer, EndsWith("six"));
}

}  // namespace
}  // namespace lagoon::net
