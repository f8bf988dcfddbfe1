#include "net/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::net {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kText =
    ": a comment\n\ndata: one\n\nevent: x\nid: 3\ndata:two\r\ndata:  three\r\n\r\n"
    "retry: 5\n\ndata\n\ndata: a:b\r\rdatas: no\n\ndata: unfinished";
const std::vector<std::string> kEvents = {"one", "two\n three", "", "a:b"};

TEST(SseReader, Events) {
  SseReader reader;
  EXPECT_EQ(reader.push(kText), kEvents);
}

TEST(SseReader, WhereverThePiecesEnd) {
  for (size_t size = 1; size < 12; ++size) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < kText.size(); at += size) {
      for (std::string& event : reader.push(kText.substr(at, size))) events.push_back(event);
    }
    EXPECT_EQ(events, kEvents) << size;
  }
}

TEST(SseReader, NothingBeforeAnEventEnds) {
  SseReader reader;
  EXPECT_THAT(reader.push(""), IsEmpty());
  EXPECT_THAT(reader.push("data: {\"a\":1}\n"), IsEmpty());
  EXPECT_THAT(reader.push("\n"), ElementsAre("{\"a\":1}"));
}

}  // namespace
}  // namespace lagoon::net
