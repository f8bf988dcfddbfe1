// Threads that run tasks in the order they came, and one task at intervals.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lagoon::api {

class Workers {
 public:
  // `tick` runs on one of the threads every `interval`, later where all are at work. An interval of
  // 0: never.
  explicit Workers(int threads, std::chrono::milliseconds interval = {},
                   std::function<void()> tick = nullptr);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // From any thread. After stop() the task is dropped.
  void post(std::function<void()> task);
  // As post(), unless `limit` tasks are waiting already: then false, and nothing happens.
  bool try_post(std::function<void()> task, size_t limit);
  // Lets running tasks end, drops those that wait, joins the threads. Not from a task.
  void stop();

 private:
  void work();
  // The next thing to do, in `task`; false at the end.
  bool next(std::function<void()>& task);
  static void run(const std::function<void()>& task);

  const std::chrono::milliseconds interval_;
  const std::function<void()> tick_;

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  std::chrono::steady_clock::time_point next_tick_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lagoon::api
