#include "engine/mailbox.h"

#include <fmt/core.h>

#include <utility>

namespace lagoon::engine {

Mailbox::Mailbox(int max_running, int max_waiting, Gauge& running, Gauge& waiting, Now now)
    : capacity_(max_running + max_waiting),
      max_waiting_(max_waiting),
      running_gauge_(running),
      waiting_gauge_(waiting),
      now_(std::move(now)) {}

Result<uint64_t> Mailbox::submit(Request request, EventSink sink) {
  const Clock::time_point arrival = now_();
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (letters_.stopping) return Error{ErrorCode::kUnavailable, "The server is shutting down."};
    if (failure_) {
      return Error{
          ErrorCode::kUnavailable,
          fmt::format("The model has failed and the server must be restarted: {}", *failure_)};
    }
    if (inside_ >= capacity_) {
      return Error{ErrorCode::kResourceExhausted,
                   fmt::format("The queue is full: {} requests are waiting, which is the limit. "
                               "Try again later.",
                               max_waiting_)};
    }
    if (inside_ == 0) last_progress_ = arrival;
    id = ++last_id_;
    ++inside_;
    letters_.arrived.push_back({id, std::move(request), std::move(sink), arrival});
    set_gauges();
  }
  wake_.notify_one();
  return id;
}

void Mailbox::cancel(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    letters_.cancelled.push_back(id);
  }
  wake_.notify_one();
}

void Mailbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    letters_.stopping = true;
  }
  wake_.notify_one();
}

Progress Mailbox::progress() const {
  const Clock::time_point now = now_();
  const std::lock_guard lock(mutex_);
  Progress progress;
  progress.running = running_;
  progress.waiting = inside_ - running_;
  progress.failed = failure_.has_value();
  progress.failure = failure_.value_or("");
  if (inside_ > 0 && now > last_progress_) {
    progress.seconds_since_progress = std::chrono::duration<double>(now - last_progress_).count();
  }
  return progress;
}

Mailbox::Letters Mailbox::take(std::optional<Clock::duration> patience) {
  const auto has_come = [this] {
    return !letters_.arrived.empty() || !letters_.cancelled.empty() || letters_.stopping;
  };
  std::unique_lock lock(mutex_);
  if (!patience) {
    wake_.wait(lock, has_come);
  } else if (*patience > Clock::duration::zero()) {
    wake_.wait_for(lock, *patience, has_come);
  }
  Letters taken;
  std::swap(taken, letters_);
  letters_.stopping = taken.stopping;
  return taken;
}

void Mailbox::count_start() {
  const std::lock_guard lock(mutex_);
  ++running_;
  set_gauges();
}

void Mailbox::count_preemption() {
  const std::lock_guard lock(mutex_);
  --running_;
  set_gauges();
}

void Mailbox::count_end(bool ran) {
  const std::lock_guard lock(mutex_);
  --inside_;
  if (ran) --running_;
  set_gauges();
}

void Mailbox::count_progress() {
  const Clock::time_point now = now_();
  const std::lock_guard lock(mutex_);
  last_progress_ = now;
}

void Mailbox::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  failure_ = why;
}

void Mailbox::set_gauges() {
  running_gauge_.set(running_);
  waiting_gauge_.set(inside_ - running_);
}

}  // namespace lagoon::engine
