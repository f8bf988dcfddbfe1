// The bytes of HTTP/1.x responses: heads, chunks, error bodies.
#pragma once

#include <string>
#include <string_view>

#include "net/server.h"

namespace lagoon::net {

// How the length of a response's body is told to the client.
enum class Framing {
  kLength,   // Content-Length
  kChunked,  // Transfer-Encoding: chunked (HTTP/1.1)
  kClose,    // the connection ends with the body (HTTP/1.0)
};

struct ResponseHead {
  int status = 200;
  std::string_view content_type = {};  // "" where there is no body
  Framing framing = Framing::kLength;
  size_t length = 0;       // kLength
  bool keep_alive = true;  // told in a Connection header
  int version = 11;        // of the request: 10 or 11
  const Headers* more = nullptr;
};

// "Not Found" for 404.
std::string_view reason_phrase(int status);

// Status line and headers, with the empty line that ends them. Line breaks inside header values are
// replaced by spaces.
std::string format_head(const ResponseHead& head);

// One chunk of a chunked body. `data` is not empty (an empty chunk would end the body).
std::string format_chunk(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// {"error":{"message":...,"type":...,"param":null,"code":status}}, with the reason phrase as type.
// `message` is plain ASCII without quotes or backslashes.
std::string error_body(int status, std::string_view message);

bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace lagoon::net
