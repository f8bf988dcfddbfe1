// One request on its way through the engine: from a worker thread in, and its events back out to
// the client, streamed or whole.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/errors.h"
#include "api/request_log.h"
#include "api/workers.h"
#include "engine/engine.h"
#include "net/server.h"

namespace lagoon::api {

// How one endpoint writes an answer, which has one choice or several. Used by one thread at a time.
class Answer {
 public:
  virtual ~Answer() = default;
  // Streamed: what comes before the first event, what an event of a choice gives ("" for nothing;
  // of its last event, the end of the choice too), and what follows the end of all choices.
  virtual std::string stream_begin() = 0;
  virtual std::string stream_event(size_t choice, const engine::Event& event) = 0;
  virtual std::string stream_end(const engine::Usage& total) = 0;
  // What follows where the answer fails; nothing comes after it.
  virtual std::string stream_error(const ApiError& error);
  // A sign of life in a stream that is silent: a comment, unless the dialect has an event for it.
  virtual std::string stream_alive();
  // Whole: the body, after add() of every event.
  virtual void add(size_t choice, const engine::Event& event) = 0;
  virtual std::string body(const engine::Usage& total) = 0;
};

// What an endpoint makes of a request's body.
struct Prepared {
  std::vector<engine::Request> requests;  // one for each choice, at least one
  size_t choices_of_a_prompt = 1;         // so many requests in a row have the same prompt
  std::unique_ptr<Answer> answer;
  bool stream = false;
  // Not empty: a stream that says why the request is refused, for clients that look for it there.
  // The rest is empty then.
  std::string refusal = {};
  int refusal_status = 400;  // for the log
  ErrorWriter write_error = to_json;
};

class Streams;

// Events arrive on the engine's thread and are queued; a worker writes them. Both hold the object,
// so it lives until the last event. A client that leaves cancels the engine's requests.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Submits the requests, and answers with the error where the engine refuses one of them. On a
  // worker. The answer is added to `streams`.
  static void start(engine::Engine& engine, std::shared_ptr<Workers> workers, Streams& streams,
                    Prepared prepared, RequestLog log, std::shared_ptr<net::Responder> responder);

  Generation(engine::Engine& engine, std::shared_ptr<Workers> workers, Prepared prepared,
             RequestLog log, std::shared_ptr<net::Responder> responder);

  // Writes a sign of life into the stream where nothing was written since the last call. On a
  // worker.
  void keep_alive();
  // As if the engine had ended it with this error. Any thread.
  void fail_from_outside(const std::string& sentence);

 private:
  using ChoiceEvent = std::pair<size_t, engine::Event>;

  void submit(std::vector<engine::Request> requests, Streams& streams);
  bool submit_all(std::vector<engine::Request> requests);
  void cancel_all();
  void on_gone();
  void on_event(size_t choice, engine::Event event);
  void drain();
  // Handles one event; false after the last.
  bool handle(size_t choice, const engine::Event& event);
  void fail(const ApiError& error);
  void complete(std::string text);
  void write(std::string text);
  engine::Usage total() const;
  bool client_gone();

  engine::Engine* const engine_;
  const std::shared_ptr<Workers> workers_;
  const std::unique_ptr<Answer> answer_;
  const bool stream_;
  const ErrorWriter write_error_;
  const size_t choices_of_a_prompt_;
  const RequestLog log_;
  // Used by the thread that drains:
  std::shared_ptr<net::Responder> responder_;  // until the answer is given
  std::vector<engine::Usage> usages_;          // of each choice, so far
  size_t unfinished_;                          // choices

  std::mutex mutex_;
  std::vector<ChoiceEvent> events_;  // that wait for a worker
  std::vector<uint64_t> submitted_;  // the engine's requests
  bool draining_ = true;             // a worker has the object, or will: start() does, at first
  bool sign_due_ = false;
  bool written_ = false;  // something was, since the last keep_alive()
  bool gone_ = false;
  bool over_ = false;  // nothing more is written
};

// The answers that are being given, so that streams can be kept alive, and all of them ended. Any
// thread.
class Streams {
 public:
  void add(const std::shared_ptr<Generation>& generation);
  // Generation::keep_alive() of each.
  void keep_alive();
  // Generation::fail_from_outside() of each, and of all that are added later.
  void fail_all(const std::string& sentence);

 private:
  std::vector<std::shared_ptr<Generation>> open();

  std::mutex mutex_;
  std::vector<std::weak_ptr<Generation>> open_;
  size_t clean_at_ = 64;
  std::optional<std::string> failure_;
};

// The answer to a request that was refused.
void respond_error(net::Responder& responder, const ApiError& error,
                   ErrorWriter write_error = to_json);
// A stream that ends with `text`.
void respond_stream(net::Responder& responder, std::string text);

}  // namespace lagoon::api
