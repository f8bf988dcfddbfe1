// For tests of the HTTP interface over real sockets, with an engine that says what the test tells
// it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/fake_engine.h"
#include "api/json.h"
#include "api/service.h"
#include "net/test_client.h"

namespace lagoon::api {

inline constexpr const char* kHello = R"("messages":[{"role":"user","content":"Hello"}])";
inline constexpr const char* kChat = "/v1/chat/completions";

// The bundled one, with a token in front of plain texts as in the full-size models; loaded once.
const text::Tokenizer& tokenizer();

struct Response {
  int status = 0;
  std::string head;
  std::string body;
  std::shared_ptr<Json> parsed;  // the body, null where it is not JSON

  Json& json() const { return *parsed; }
};

Response parse_response(const std::string& text);

// The data of each event of a chunked stream; one that has a name has it as its data's type, too.
std::vector<std::string> events_of(const std::string& stream);

std::string post(const std::string& path, const std::string& body);

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest();
  ~ServiceTest() override;

  // Serves from now on with these variables of the template, as JSON.
  void restart(const std::string& template_kwargs);
  void restart(ServiceOptions options);

  net::TestClient connect() { return net::TestClient(server_->port()); }
  Response send(const std::string& request);
  Response get(const std::string& path);
  // The answer to a request as the engine says it: each of `steps` in one step, then the end of the
  // turn, or `last`. All that came, a stream to its end.
  std::string answered(const std::string& path, const std::string& body,
                       const std::vector<std::string>& steps, bool stream);
  std::string answered(const std::string& path, const std::string& body,
                       const std::vector<std::string>& steps, bool stream, engine::Event last);
  // Waits until request i is cancelled; false: it never was.
  bool is_cancelled(size_t i);
  // A request that the engine does not get to see.
  Response refused(const std::string& path, const std::string& body);

  size_t asked_ = 0;  // requests sent by loops in a test
  FakeEngine engine_;
  MetricsRegistry metrics_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<net::Server> server_;
};

}  // namespace lagoon::api
