// A server with OpenAI's interface: POST /v1/completions or /v1/chat/completions, streamed with
// usage, and vLLM's counters in /metrics where it has them.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "bench/subject.h"
#include "net/client.h"

namespace lagoon::bench {

struct ServerOptions {
  net::Url url;       // without /v1
  std::string model;  // in requests; "": the first that GET /v1/models lists
  net::ClientTimeouts timeouts;
};

class ServerSubject : public Subject {
 public:
  // The model's name in requests.
  virtual const std::string& model() const = 0;
};

// Asks the server for its models. Errors: it cannot be reached, or answers otherwise than such a
// server does; they quote its answer.
Result<std::unique_ptr<ServerSubject>> connect_server(const ServerOptions& options);

}  // namespace lagoon::bench
