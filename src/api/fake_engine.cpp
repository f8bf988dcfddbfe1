#include "api/fake_engine.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace lagoon::api {
namespace {

engine::TokenLogprob logprob_of(int32_t token, int rank) {
  return {token, static_cast<float>(-token) / 1000, rank};
}

std::vector<engine::TokenLogprob> likeliest(int32_t token, int count) {
  std::vector<engine::TokenLogprob> top;
  top.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) top.push_back(logprob_of(token + i, i + 1));
  return top;
}

}  // namespace

FakeEngine::FakeEngine(const text::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  info_.vocab = tokenizer.vocab_size();
  info_.bos = 2;
  info_.eos = {2, 5};
}

Result<uint64_t> FakeEngine::submit(engine::Request request, engine::EventSink sink) {
  const std::lock_guard lock(mutex_);
  if (refusal_ && still_taken_ == 0) return *refusal_;
  if (refusal_) --still_taken_;
  engine::Usage usage;
  usage.prompt_tokens = static_cast<int>(request.prompt.size());
  const text::Detokenizer detokenizer(*tokenizer_, request.skip_special_tokens);
  running_.push_back({std::move(request), std::move(sink), detokenizer, usage, false, false});
  changed_.notify_all();
  return static_cast<uint64_t>(running_.size() - 1);
}

void FakeEngine::cancel(uint64_t request) {
  engine::EventSink sink;
  {
    const std::lock_guard lock(mutex_);
    running_.at(request).cancelled = true;
    sink = std::exchange(running_[request].sink, nullptr);
  }
  engine::Event last;
  last.finished = true;
  last.reason = engine::FinishReason::kAborted;
  if (sink) sink(std::move(last));
}

engine::Request FakeEngine::request(size_t i) {
  std::unique_lock lock(mutex_);
  CHECK(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return running_.size() > i; }));
  return running_[i].request;
}

size_t FakeEngine::requests() {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

bool FakeEngine::cancelled(size_t i) {
  const std::lock_guard lock(mutex_);
  return running_.at(i).cancelled;
}

void FakeEngine::say(size_t i, const std::string& text) {
  request(i);
  engine::Event event;
  engine::EventSink sink;
  {
    const std::lock_guard lock(mutex_);
    Running& running = running_[i];
    const engine::Request& asked = running.request;
    for (const int32_t token : tokenizer_->encode(text)) {
      event.pieces.push_back({token, running.detokenizer.push(token)});
      ++running.usage.completion_tokens;
      if (asked.logprobs < 0) continue;
      event.pieces.back().logprob = logprob_of(token, 1);
      event.pieces.back().top = likeliest(token, asked.logprobs);
    }
    if (asked.prompt_logprobs >= 0 && !std::exchange(running.begun, true)) {
      for (const int32_t token : asked.prompt) {
        auto entry = likeliest(token, asked.prompt_logprobs);
        entry.insert(entry.begin(), logprob_of(token, 1));
        event.prompt_logprobs.push_back(std::move(entry));
      }
      event.prompt_logprobs.front().clear();
    }
    event.usage = running.usage;
    sink = running.sink;
  }
  if (sink) sink(std::move(event));
}

void FakeEngine::finish(size_t i, engine::Event last) {
  request(i);
  engine::EventSink sink;
  {
    const std::lock_guard lock(mutex_);
    last.finished = true;
    last.tail += running_[i].detokenizer.finish();
    last.usage = running_[i].usage;
    sink = std::exchange(running_[i].sink, nullptr);
  }
  if (sink) sink(std::move(last));
}

void FakeEngine::end_of_turn(size_t i) {
  engine::Event last;
  last.reason = engine::FinishReason::kStop;
  last.stop_token = info_.eos.back();
  finish(i, std::move(last));
}

void FakeEngine::refuse(Error error, size_t taken) {
  const std::lock_guard lock(mutex_);
  refusal_ = std::move(error);
  still_taken_ = taken;
}

}  // namespace lagoon::api
