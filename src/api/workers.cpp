#include "api/workers.h"

#include <exception>
#include <limits>
#include <utility>

#include "base/log.h"

namespace lagoon::api {

Workers::Workers(int threads, std::chrono::milliseconds interval, std::function<void()> tick)
    : interval_(interval),
      tick_(std::move(tick)),
      next_tick_(std::chrono::steady_clock::now() + interval) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
  }
}

void Workers::post(std::function<void()> task) {
  try_post(std::move(task), std::numeric_limits<size_t>::max());
}

bool Workers::try_post(std::function<void()> task, size_t limit) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return true;
    if (tasks_.size() >= limit) return false;
    tasks_.push_back(std::move(task));
  }
  ready_.notify_one();
  return true;
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock: a task may hold much
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

// What a task throws (out of memory, in practice) is the end of that task alone: its request is
// answered by net as one that was dropped.
void Workers::run(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& thrown) {
    LOG(error, "a request was dropped: {}", thrown.what());
  }
}

bool Workers::next(std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  const auto awake = [this] { return stopping_ || !tasks_.empty(); };
  const bool ticks = interval_.count() > 0;
  if (!ticks) {
    ready_.wait(lock, awake);
  } else {
    while (!awake() && std::chrono::steady_clock::now() < next_tick_) {
      ready_.wait_until(lock, next_tick_);
    }
  }
  if (stopping_) return false;
  // A queue that never empties must not keep the tick from coming.
  if (ticks && std::chrono::steady_clock::now() >= next_tick_) {
    next_tick_ = std::chrono::steady_clock::now() + interval_;
    task = tick_;
  } else if (!tasks_.empty()) {
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  return true;
}

void Workers::work() {
  while (true) {
    std::function<void()> task;
    if (!next(task)) return;
    if (task) run(task);
  }
}

}  // namespace lagoon::api
