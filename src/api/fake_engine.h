// An engine for tests: it keeps requests and gives out the events that the test tells it to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace lagoon::api {

class FakeEngine : public engine::Engine {
 public:
  explicit FakeEngine(const text::Tokenizer& tokenizer);

  Result<uint64_t> submit(engine::Request request, engine::EventSink sink) override;
  void cancel(uint64_t request) override;
  int64_t max_length() const override { return 1000; }
  const model::ModelInfo& model_info() const override { return info_; }
  engine::Progress progress() const override {
    return {.running = 2,
            .waiting = 1,
            .seconds_since_progress = 0.25,
            .kv_usage = 0.5,
            .failed = failed_};
  }

  // Request i, once it has come (waits up to ten seconds for it).
  engine::Request request(size_t i);
  size_t requests();
  bool cancelled(size_t i);

  // Events of request i: tokens of `text` in one step; the end. Log probabilities are told where
  // the request asks: -token / 1000, rank 1 for the token itself, then of the tokens that follow
  // it.
  void say(size_t i, const std::string& text);
  void finish(size_t i, engine::Event last);
  void end_of_turn(size_t i);  // finish() with the end-of-sequence token

  // What progress() says from now on.
  void set_failed() { failed_ = true; }

  // What submit() answers from now on, instead of taking the request; `taken` are taken before.
  void refuse(Error error, size_t taken = 0);

 private:
  struct Running {
    engine::Request request;
    engine::EventSink sink;
    text::Detokenizer detokenizer;
    engine::Usage usage;
    bool begun = false;
    bool cancelled = false;
  };

  const text::Tokenizer* tokenizer_;
  model::ModelInfo info_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Running> running_;
  std::atomic<bool> failed_ = false;
  std::optional<Error> refusal_;
  size_t still_taken_ = 0;
};

}  // namespace lagoon::api
