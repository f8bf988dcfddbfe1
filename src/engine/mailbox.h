// What callers on any thread tell the engine's thread, and what they may ask of it without waiting
// for a step. It holds the only lock of the engine, and counts the requests inside, so that a full
// queue is refused at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "engine/engine.h"

namespace lagoon::engine {

using Clock = std::chrono::steady_clock;
using Now = std::function<Clock::time_point()>;

// A request on its way through the engine.
struct Job {
  uint64_t id = 0;
  Request request;
  EventSink sink;
  Clock::time_point arrival;
};

class Mailbox {
 public:
  // At most `max_running` + `max_waiting` requests are inside. The gauges outlive the mailbox.
  Mailbox(int max_running, int max_waiting, Gauge& running, Gauge& waiting, Now now);

  // Any thread. Errors: kResourceExhausted (full), kUnavailable (after stop() or fail()).
  Result<uint64_t> submit(Request request, EventSink sink);
  void cancel(uint64_t id);
  void stop();
  // Any thread: all but the usage of the cache.
  Progress progress() const;

  struct Letters {
    std::vector<Job> arrived;
    std::vector<uint64_t> cancelled;  // perhaps of requests that are not inside any more
    bool stopping = false;            // nothing arrives after this
  };
  // The engine's thread, as all below. Takes all that has come; sleeps until something has, or for
  // `patience` where it is given.
  Letters take(std::optional<Clock::duration> patience);
  // A request inside began to run, or went back to wait; one that ran, or only waited, has ended.
  void count_start();
  void count_preemption();
  void count_end(bool ran);
  // A step has ended.
  void count_progress();
  // Nothing is taken any more, for this reason.
  void fail(const std::string& why);

 private:
  void set_gauges();

  const int capacity_;
  const int max_waiting_;
  Gauge& running_gauge_;
  Gauge& waiting_gauge_;
  const Now now_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Letters letters_;
  std::optional<std::string> failure_;
  uint64_t last_id_ = 0;
  int inside_ = 0;
  int running_ = 0;
  Clock::time_point last_progress_;
};

}  // namespace lagoon::engine
