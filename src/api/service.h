// The HTTP interface: OpenAI chat completions, completions, responses and models, Anthropic
// messages, tokens, health and metrics (docs/api.md). Parses and checks requests, renders and
// tokenises prompts, turns engine events into responses; all on worker threads of its own (models,
// metrics, kept responses and refusals are answered at once).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "engine/engine.h"
#include "net/middleware.h"
#include "net/server.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lagoon::api {

// How far the program is.
struct Health {
  bool ready = true;  // whether requests are taken
  std::string phase = "ready";
  int percent = 100;                        // of the phase
  std::optional<double> seconds_left = {};  // of it, where there is telling
};

// The answer to /health: 200 where the program is ready, else 503; the body says more. Also for who
// listens before there is a service. `progress`: the engine's, null where there is none yet.
void respond_health(net::Responder& responder, const Health& health,
                    const engine::Progress* progress);

struct ServiceOptions {
  std::vector<std::string> model_names;  // the first is echoed in responses; any is accepted
  std::string model_root;                // shown as `root` in /v1/models
  std::string default_template_kwargs;   // a JSON object, or ""
  kernels::Sampling default_sampling;    // where a request does not say (generation_config.json)
  bool force_include_usage = false;      // streams end with usage whether or not it is asked for
  // /v1/messages: only model_names are accepted; unless set, any name is, and is told back.
  bool strict_model_name = false;
  bool thinking_signatures = true;             // /v1/messages: thinking blocks carry a signature
  size_t max_response_store_bytes = 64 << 20;  // of the answers that /v1/responses keeps; 0: none
  int workers = 2;
  // A stream that was silent for so long gets a sign of life, so that nobody between here and the
  // client takes it for dead. 0: never.
  std::chrono::milliseconds keep_alive{10'000};
  std::function<Health()> health;  // for /health, from any thread; null: ready
  // Why no answer can be begun now (the machine is short of memory, say): a request for one is then
  // 503 with this sentence. Any thread; null: it always can.
  std::function<std::optional<std::string>()> refusal;
};

// Reads ServiceOptions::default_template_kwargs. An error names the option.
Result<text::jinja::Dict> parse_template_kwargs(const std::string& json);

// What a service answers, for the metrics.
std::vector<net::Endpoint> endpoints();

class Service {
 public:
  // All references outlive the service.
  static Result<std::unique_ptr<Service>> create(const ServiceOptions& options,
                                                 engine::Engine& engine,
                                                 const text::Tokenizer& tokenizer,
                                                 const text::ChatTemplate& chat_template,
                                                 MetricsRegistry& metrics);
  virtual ~Service() = default;
  // For net::Server: may be called on its I/O thread.
  virtual void handle(net::HttpRequest request, std::shared_ptr<net::Responder> responder) = 0;
  // Ends every answer that is being given with this error, whether or not the engine still does
  // anything. It does not wait for them to be written. Any thread.
  virtual void fail_all(const std::string& sentence) = 0;
};

}  // namespace lagoon::api
