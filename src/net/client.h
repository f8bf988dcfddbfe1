// An HTTP/1.1 client for one request at a time, with bodies that arrive piece by piece. Boost is
// hidden in client.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::net {

// http://HOST[:PORT][/PREFIX]
struct Url {
  std::string host;  // without the brackets of an IPv6 address
  std::string port = "80";
  std::string prefix;  // of every path, "" or "/v1": without a slash at the end
};

// Errors: another scheme than http, no host, a port that is none, a query or user.
Result<Url> parse_url(std::string_view text);

struct ClientRequest {
  std::string method = "GET";
  std::string path;  // behind the URL's prefix: "/v1/models"
  std::string body;  // JSON, sent where it is not empty
};

struct ClientResponse {
  int status = 0;
  std::string content_type;
  std::string body;  // empty where it went to a BodySink
};

struct ClientTimeouts {
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds silence{600'000};  // between two pieces of an answer
};

// Takes a piece of the body of an answer with a status of 2xx.
using BodySink = std::function<void(std::string_view piece)>;

// Sends a request on a connection of its own and returns when its answer is complete. With `sink`
// the body goes there as it arrives, unless the status is an error's: then it is in the response.
// Any thread. Errors name host and port and what went wrong: no such host, no connection, a silence
// or an end too early, what is not HTTP, a body of more than 64 MB that is not sunk.
Result<ClientResponse> send_request(const Url& url, const ClientRequest& request,
                                    const ClientTimeouts& timeouts = {},
                                    const BodySink& sink = nullptr);

}  // namespace lagoon::net
