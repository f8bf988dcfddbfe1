#include "net/http_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>

namespace lagoon::net {
namespace {

// RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) out.push_back(c == '\r' || c == '\n' ? ' ' : c);
  out.append("\r\n");
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (equals_ignoring_case(key, name)) return value;
  }
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string format_head(const ResponseHead& head) {
  std::string out = fmt::format("HTTP/1.{} {} {}\r\n", head.version == 10 ? 0 : 1, head.status,
                                reason_phrase(head.status));
  append_header(out, "Server", "lagoon");
  append_header(out, "Date", http_date());
  if (!head.content_type.empty()) append_header(out, "Content-Type", head.content_type);
  switch (head.framing) {
    case Framing::kLength:
      if (head.status != 204) append_header(out, "Content-Length", fmt::format("{}", head.length));
      break;
    case Framing::kChunked:
      append_header(out, "Transfer-Encoding", "chunked");
      break;
    case Framing::kClose:
      break;
  }
  if (!head.keep_alive) {
    append_header(out, "Connection", "close");
  } else if (head.version == 10) {
    append_header(out, "Connection", "keep-alive");
  }
  if (head.more != nullptr) {
    for (const auto& [name, value] : *head.more) append_header(out, name, value);
  }
  out.append("\r\n");
  return out;
}

std::string format_chunk(std::string_view data) {
  std::string out = fmt::format("{:x}\r\n", data.size());
  out.reserve(out.size() + data.size() + 2);
  out.append(data).append("\r\n");
  return out;
}

std::string error_body(int status, std::string_view message) {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":{}}}}})",
                     message, reason_phrase(status), status);
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace lagoon::net
