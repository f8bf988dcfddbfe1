// Test only: an engine over the fake model, and what a caller sees of a request.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "engine/engine.h"
#include "engine/fake_model.h"
#include "text/tokenizer.h"

namespace lagoon::engine {

// The tokenizer of the bundled model.
const text::Tokenizer& test_tokenizer();

// Events of one request put together. Fails the test on an event after the last.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<Piece> pieces;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  std::string text;  // tail included
  int events = 0;
  bool finished = false;
  Event last;
};

class Collector {
 public:
  EventSink sink();
  // Sleeps until the last event (or fails the test after a minute).
  Outcome wait();
  // Sleeps until `events` events have come.
  void wait_for_events(int events);
  Outcome now();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Outcome outcome;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Set the members, then start(). Chunks of prompts are as long as the options allow, however long
// steps take.
class Rig {
 public:
  Rig() { options.max_prefill_stall = 1e9; }

  FakeTarget target;
  FakeOptions fake;
  Options options;
  Proposer proposer;
  MetricsRegistry metrics;
  std::shared_ptr<FakeRecord> record = std::make_shared<FakeRecord>();
  std::unique_ptr<Engine> engine;

  void start();
  // Submits, CHECKs that it is taken, and waits for the end.
  Outcome run(Request request);

  // Values of the metrics, by name and the label that is not the engine's.
  uint64_t counter(const std::string& name, const Labels& more = {});
  double gauge(const std::string& name);
  // Observations in all buckets; -1 where there is no such histogram yet.
  int observations(const std::string& name) const;
};

// `count` different tokens derived from `seed`.
std::vector<int32_t> test_prompt(int count, int seed = 1);
Request test_request(std::vector<int32_t> prompt, int max_tokens);

}  // namespace lagoon::engine
