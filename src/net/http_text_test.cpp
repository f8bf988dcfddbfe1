#include "net/http_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/sse.h"

namespace lagoon::net {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HttpText, HeadOfAnAnswerWithALength) {
  const Headers more = {{"Retry-After", "1"}};
  const std::string head =
      format_head({.status = 429, .content_type = "application/json", .length = 12, .more = &more});
  EXPECT_THAT(head, StartsWith("HTTP/1.1 429 Too Many Requests\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 12\r\n"));
  EXPECT_THAT(head, EndsWith("\r\nRetry-After: 1\r\n\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Connection:")));
}

TEST(HttpText, ConnectionHeaderFollowsVersion) {
  EXPECT_THAT(format_head({.version = 10}), HasSubstr("HTTP/1.0 200 OK\r\n"));
  EXPECT_THAT(format_head({.version = 10}), HasSubstr("\r\nConnection: keep-alive\r\n"));
  EXPECT_THAT(format_head({.keep_alive = false}), HasSubstr("\r\nConnection: close\r\n"));
}

TEST(HttpText, LineBreaksCannotAddHeaders) {
  const Headers more = {{"X-Name", "a\r\nSet-Cookie: b"}};
  EXPECT_THAT(format_head({.more = &more}), HasSubstr("X-Name: a  Set-Cookie: b\r\n"));
}

TEST(HttpText, ChunkSizesAreHexadecimal) {
  EXPECT_EQ(format_chunk("hello"), "5\r\nhello\r\n");
  EXPECT_EQ(format_chunk(std::string(26, 'x')).substr(0, 4), "1a\r\n");
}

TEST(HttpText, ErrorBody) {
  EXPECT_EQ(error_body(404, "No."),
            R"({"error":{"message":"No.","type":"Not Found","param":null,"code":404}})");
}

TEST(HttpText, HeaderNamesIgnoreCase) {
  HttpRequest request;
  request.headers = {{"content-TYPE", "a"}, {"Content-Type", "b"}};
  EXPECT_EQ(request.header("Content-Type"), "a");
  EXPECT_EQ(request.header("Accept"), "");
}

TEST(Sse, Framing) {
  EXPECT_EQ(sse_event("{}"), "data: {}\n\n");
  EXPECT_EQ(sse_done(), "data: [DONE]\n\n");
}

}  // namespace
}  // namespace lagoon::net
