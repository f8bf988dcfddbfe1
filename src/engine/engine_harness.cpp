#include "engine/engine_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace lagoon::engine {
namespace {

constexpr std::chrono::minutes kPatience{1};

Labels labels_of(const Labels& more) {
  Labels labels = {{"engine", "0"}, {"model_name", "fake"}};
  labels.insert(labels.end(), more.begin(), more.end());
  std::sort(labels.begin(), labels.end());
  return labels;
}

}  // namespace

const text::Tokenizer& test_tokenizer() {
  static const std::unique_ptr<text::Tokenizer> kTokenizer =
      text::Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json").value();
  return *kTokenizer;
}

EventSink Collector::sink() {
  return [state = state_](Event event) {
    const std::lock_guard lock(state->mutex);
    Outcome& outcome = state->outcome;
    EXPECT_FALSE(outcome.finished) << "an event after the last";
    for (const Piece& piece : event.pieces) {
      outcome.tokens.push_back(piece.token);
      outcome.text += piece.text;
      outcome.pieces.push_back(piece);
    }
    if (!event.prompt_logprobs.empty()) {
      EXPECT_EQ(outcome.events, 0) << "log-probabilities of the prompt after the first event";
      outcome.prompt_logprobs = event.prompt_logprobs;
    }
    outcome.text += event.tail;
    ++outcome.events;
    outcome.finished = event.finished;
    outcome.last = std::move(event);
    state->changed.notify_all();
  };
}

Outcome Collector::wait() {
  std::unique_lock lock(state_->mutex);
  EXPECT_TRUE(state_->changed.wait_for(lock, kPatience, [this] {
    return state_->outcome.finished;
  })) << "no last event";
  return state_->outcome;
}

void Collector::wait_for_events(int events) {
  std::unique_lock lock(state_->mutex);
  EXPECT_TRUE(state_->changed.wait_for(lock, kPatience, [this, events] {
    return state_->outcome.events >= events;
  })) << "no event";
}

Outcome Collector::now() {
  const std::lock_guard lock(state_->mutex);
  return state_->outcome;
}

void Rig::start() {
  engine = Engine::start(std::make_unique<FakeModel>(target, fake, record), test_tokenizer(),
                         metrics, "fake", options, proposer);
}

Outcome Rig::run(Request request) {
  Collector collector;
  const Result<uint64_t> id = engine->submit(std::move(request), collector.sink());
  if (!id) {
    ADD_FAILURE() << id.error().message;
    return {};
  }
  return collector.wait();
}

uint64_t Rig::counter(const std::string& name, const Labels& more) {
  return metrics.counter(name, "", labels_of(more)).value();
}

double Rig::gauge(const std::string& name) {
  return metrics.gauge(name, "", labels_of({})).value();
}

int Rig::observations(const std::string& name) const {
  const std::string text = metrics.render();
  const std::string start = name + "_count{engine=\"0\",model_name=\"fake\"} ";
  const size_t at = text.find(start);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + start.size());
}

std::vector<int32_t> test_prompt(int count, int seed) {
  std::vector<int32_t> prompt;
  prompt.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) prompt.push_back(300 + (i * 37 + seed * 101) % 1000);
  return prompt;
}

Request test_request(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace lagoon::engine
