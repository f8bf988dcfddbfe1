#include "api/generation.h"

#include <algorithm>
#include <utility>

#include "net/sse.h"

namespace lagoon::api {
namespace {

// vLLM has no such answer; 499 is what web servers log for a client that closed its request.
constexpr int kClientClosed = 499;

ApiError event_error(const engine::Event& last) {
  if (last.reason == engine::FinishReason::kError) {
    return {.status = 500, .type = "InternalServerError", .message = last.error};
  }
  return {.status = 503,
          .type = "ServiceUnavailableError",
          .message = "The request was stopped because the server is shutting down."};
}

bool failed(const engine::Event& event) {
  return event.finished && (event.reason == engine::FinishReason::kError ||
                            event.reason == engine::FinishReason::kAborted);
}

void start_event_stream(net::Responder& responder) {
  responder.start_stream(200, net::kEventStream,
                         {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
}

}  // namespace

std::string Answer::stream_error(const ApiError& error) {
  return net::sse_event(to_json(error)) + net::sse_done();
}

std::string Answer::stream_alive() {
  return net::sse_comment("keep-alive");
}

void respond_error(net::Responder& responder, const ApiError& error, ErrorWriter write_error) {
  net::Headers headers;
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  responder.respond(error.status, "application/json", write_error(error), std::move(headers));
}

void respond_stream(net::Responder& responder, std::string text) {
  start_event_stream(responder);
  responder.write(std::move(text));
  responder.finish();
}

void Streams::add(const std::shared_ptr<Generation>& generation) {
  const std::lock_guard lock(mutex_);
  if (failure_) generation->fail_from_outside(*failure_);
  // What has ended goes before the list doubles.
  if (open_.size() >= clean_at_) {
    std::erase_if(open_, [](const auto& stream) { return stream.expired(); });
    clean_at_ = 2 * open_.size() + 64;
  }
  open_.push_back(generation);
}

std::vector<std::shared_ptr<Generation>> Streams::open() {
  std::vector<std::shared_ptr<Generation>> open;
  const std::lock_guard lock(mutex_);
  for (const auto& stream : open_) {
    if (auto generation = stream.lock()) open.push_back(std::move(generation));
  }
  return open;
}

void Streams::keep_alive() {
  for (const auto& stream : open()) stream->keep_alive();
}

void Streams::fail_all(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = sentence;
  }
  for (const auto& stream : open()) stream->fail_from_outside(sentence);
}

void Generation::start(engine::Engine& engine, std::shared_ptr<Workers> workers, Streams& streams,
                       Prepared prepared, RequestLog log,
                       std::shared_ptr<net::Responder> responder) {
  auto requests = std::move(prepared.requests);
  const auto generation = std::make_shared<Generation>(
      engine, std::move(workers), std::move(prepared), std::move(log), std::move(responder));
  generation->submit(std::move(requests), streams);
}

Generation::Generation(engine::Engine& engine, std::shared_ptr<Workers> workers, Prepared prepared,
                       RequestLog log, std::shared_ptr<net::Responder> responder)
    : engine_(&engine),
      workers_(std::move(workers)),
      answer_(std::move(prepared.answer)),
      stream_(prepared.stream),
      write_error_(prepared.write_error),
      choices_of_a_prompt_(prepared.choices_of_a_prompt),
      log_(std::move(log)),
      responder_(std::move(responder)),
      unfinished_(0) {}

void Generation::submit(std::vector<engine::Request> requests, Streams& streams) {
  responder_->on_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_gone();
  });
  if (client_gone()) {
    log_.done(kClientClosed);
    return;
  }
  usages_.resize(requests.size());
  unfinished_ = requests.size();
  // Before the engine has it: whoever ends all answers must not miss this one.
  streams.add(shared_from_this());
  if (!submit_all(std::move(requests))) return;
  if (stream_) {
    // The client has its headers now, however long the queue and the prompt are.
    start_event_stream(*responder_);
    write(answer_->stream_begin());
  }
  drain();
}

// False where the engine has refused one: then the others are cancelled and the client knows.
bool Generation::submit_all(std::vector<engine::Request> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto submitted = engine_->submit(std::move(requests[i]),
                                           [self = shared_from_this(), i](engine::Event event) {
                                             self->on_event(i, std::move(event));
                                           });
    if (!submitted.ok()) {
      {
        const std::lock_guard lock(mutex_);
        over_ = true;
      }
      cancel_all();
      const ApiError error = from_error(submitted.error());
      log_.done(error.status);
      respond_error(*responder_, error, write_error_);
      return false;
    }
    std::unique_lock lock(mutex_);
    submitted_.push_back(*submitted);
    const bool gone = gone_;
    lock.unlock();
    if (gone) engine_->cancel(*submitted);
  }
  return true;
}

void Generation::cancel_all() {
  std::unique_lock lock(mutex_);
  const auto submitted = submitted_;
  lock.unlock();
  for (const uint64_t request : submitted) engine_->cancel(request);
}

void Generation::on_gone() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  cancel_all();
}

bool Generation::client_gone() {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void Generation::on_event(size_t choice, engine::Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    events_.emplace_back(choice, std::move(event));
    if (std::exchange(draining_, true)) return;
  }
  workers_->post([self = shared_from_this()] { self->drain(); });
}

void Generation::keep_alive() {
  {
    const std::lock_guard lock(mutex_);
    if (!stream_ || over_ || gone_ || std::exchange(written_, false)) return;
    sign_due_ = true;
    if (std::exchange(draining_, true)) return;
  }
  drain();
}

void Generation::fail_from_outside(const std::string& sentence) {
  engine::Event event;
  event.finished = true;
  event.reason = engine::FinishReason::kError;
  event.error = sentence;
  on_event(0, std::move(event));
}

void Generation::drain() {
  while (true) {
    std::vector<ChoiceEvent> events;
    bool sign = false;
    {
      const std::lock_guard lock(mutex_);
      sign = std::exchange(sign_due_, false) && events_.empty() && !gone_;
      if (events_.empty() && !sign) {
        draining_ = false;
        return;
      }
      events.swap(events_);
    }
    if (sign) responder_->write(answer_->stream_alive());
    for (const auto& [choice, event] : events) {
      if (!handle(choice, event)) return;
    }
  }
}

void Generation::write(std::string text) {
  if (text.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    written_ = true;
  }
  responder_->write(std::move(text));
}

engine::Usage Generation::total() const {
  engine::Usage sum;
  for (size_t i = 0; i < usages_.size(); ++i) {
    const engine::Usage& usage = usages_[i];
    // A prompt counts once, however many answers it has.
    if (i % choices_of_a_prompt_ == 0) {
      sum.prompt_tokens += usage.prompt_tokens;
      sum.cached_tokens += usage.cached_tokens;
    }
    sum.completion_tokens += usage.completion_tokens;
    sum.steps += usage.steps;
    sum.drafts += usage.drafts;
    sum.drafted_tokens += usage.drafted_tokens;
    sum.accepted_tokens += usage.accepted_tokens;
  }
  return sum;
}

bool Generation::handle(size_t choice, const engine::Event& event) {
  usages_[choice] = event.usage;
  if (event.finished) --unfinished_;
  if (client_gone()) {
    if (unfinished_ > 0) return true;
    // Dropping the responder cuts a stream, so a client that only closed its sending side does not
    // take what it got for the whole answer.
    const auto usage = total();
    log_.done(kClientClosed, &usage);
    complete("");
    return false;
  }
  if (failed(event)) {
    fail(event_error(event));
    return false;
  }
  std::string text;
  if (stream_) {
    text = answer_->stream_event(choice, event);
  } else {
    answer_->add(choice, event);
  }
  if (unfinished_ > 0) {
    write(std::move(text));
    return true;
  }
  const auto usage = total();
  // Logged before the client can know that the answer is complete, so that what it then reads in
  // /metrics includes this request.
  log_.done(200, &usage);
  if (stream_) {
    complete(text + answer_->stream_end(usage));
  } else {
    responder_->respond(200, "application/json", answer_->body(usage));
    complete("");
  }
  return false;
}

// One choice that fails ends the whole answer.
void Generation::fail(const ApiError& error) {
  const auto usage = total();
  log_.done(stream_ ? 200 : error.status, &usage);
  if (stream_) {
    complete(answer_->stream_error(error));
  } else {
    respond_error(*responder_, error, write_error_);
    complete("");
  }
  cancel_all();
}

// The end of a stream, where `text` is not empty; nothing is written any more.
void Generation::complete(std::string text) {
  if (!text.empty()) {
    responder_->write(std::move(text));
    responder_->finish();
  }
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    events_.clear();
  }
  responder_.reset();
}

}  // namespace lagoon::api
