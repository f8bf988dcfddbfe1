#include "net/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::net {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Fixture {
  explicit Fixture(Exchange::Settings settings = {.max_unread = 1000})
      : exchange(std::make_shared<Exchange>(settings, [this] { ++wakes; })),
        responder(make_responder(exchange)) {}

  // Takes what there is and tells the exchange it was sent.
  std::string sent() {
    std::string all;
    for (const std::string& buffer : exchange->take().buffers) all += buffer;
    exchange->sent(all.size());
    return all;
  }

  int wakes = 0;
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<Responder> responder;
};

TEST(Exchange, WholeAnswer) {
  Fixture f;
  EXPECT_FALSE(f.exchange->take().complete);
  f.responder->respond(200, "text/plain", "hi");
  EXPECT_EQ(f.wakes, 1);
  const auto output = f.exchange->take();
  ASSERT_EQ(output.buffers.size(), 2U);
  EXPECT_EQ(output.buffers[1], "hi");
  EXPECT_TRUE(output.complete);
  EXPECT_TRUE(output.keep_alive);
}

TEST(Exchange, StreamIsChunkedAndWakesOncePerTake) {
  Fixture f;
  f.responder->start_stream(200, "text/event-stream");
  EXPECT_TRUE(f.responder->write("abc"));
  EXPECT_TRUE(f.responder->write(""));
  EXPECT_EQ(f.wakes, 1);
  EXPECT_THAT(f.sent(), EndsWith("\r\n\r\n3\r\nabc\r\n"));
  f.responder->finish();
  EXPECT_EQ(f.wakes, 2);
  const auto output = f.exchange->take();
  EXPECT_EQ(output.buffers, std::vector<std::string>{"0\r\n\r\n"});
  EXPECT_TRUE(output.complete);
}

TEST(Exchange, StreamToHttp10EndsWithTheConnection) {
  Fixture f({.version = 10, .max_unread = 1000});
  f.responder->start_stream(200, "text/plain");
  f.responder->write("abc");
  f.responder->finish();
  const auto output = f.exchange->take();
  EXPECT_THAT(output.buffers.front(), HasSubstr("Connection: close"));
  EXPECT_EQ(output.buffers.back(), "abc");
  EXPECT_FALSE(output.keep_alive);
}

TEST(Exchange, HeadRequestGetsNoBody) {
  Fixture f({.head_only = true, .max_unread = 1000});
  f.responder->respond(200, "text/plain", "four");
  const std::string all = f.sent();
  EXPECT_THAT(all, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(all, EndsWith("\r\n\r\n"));
}

TEST(Exchange, UnreadBytesCutAStream) {
  Fixture f;
  f.responder->start_stream(200, "text/plain");
  EXPECT_TRUE(f.responder->write(std::string(500, 'x')));
  EXPECT_TRUE(
      f.responder->write(std::string(5000, 'x')));  // one event may be larger than all of it
  EXPECT_TRUE(f.responder->write("y"));
  EXPECT_FALSE(f.responder->write(std::string(500, 'x')));
  EXPECT_FALSE(f.responder->write("y"));
  EXPECT_TRUE(f.exchange->take().cut);
}

TEST(Exchange, SentBytesMakeRoom) {
  Fixture f;
  f.responder->start_stream(200, "text/plain");
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(f.responder->write(std::string(500, 'x'))) << i;
    f.sent();
  }
}

TEST(Exchange, GoneIsToldOnceAndOnlyBeforeTheEnd) {
  Fixture f;
  int told = 0;
  f.responder->on_gone([&] { ++told; });
  f.responder->start_stream(200, "text/plain");
  f.exchange->gone();
  f.exchange->gone();
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(f.responder->write("x"));
  f.responder->on_gone([&] { ++told; });
  EXPECT_EQ(told, 2);

  Fixture done;
  done.responder->on_gone([&] { ++told; });
  done.responder->respond(200, "text/plain", "x");
  done.exchange->gone();
  EXPECT_EQ(told, 2);
}

TEST(Exchange, ADroppedResponderIsAnError) {
  Fixture f;
  f.responder.reset();
  EXPECT_THAT(f.sent(), StartsWith("HTTP/1.1 500 "));

  Fixture streaming;
  streaming.responder->start_stream(200, "text/plain");
  streaming.responder.reset();
  EXPECT_TRUE(streaming.exchange->take().cut);
}

}  // namespace
}  // namespace lagoon::net
