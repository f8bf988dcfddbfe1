// A fixed team of threads for data-parallel loops with a static partition: part i of a loop is the
// same range whatever the timing, so results cannot depend on it. Between loops that follow each
// other closely (one decode step is about a hundred) the threads wait actively for some tens of
// microseconds, which spares each loop the system calls of sleeping and waking; after that they
// sleep, so an idle program uses no CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace lagoon {

class ThreadPool {
 public:
  // `threads` >= 1 counts the calling thread: threads - 1 workers are started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) once for each of threads() contiguous parts of [0, count) that is not
  // empty, one part on the caller, and returns when all have ended. One loop at a time, from one
  // thread at a time; body must not throw and must not call back into the pool.
  void parallel_for(int64_t count, const std::function<void(int64_t, int64_t)>& body);

  // Calls body(part) for each part in [0, threads()) at the same time, part 0 on the caller, and
  // returns when all have ended. As for parallel_for, one at a time, no exceptions, not from
  // within.
  void run(const std::function<void(int)>& body);
  // Within run(): returns once every part has called it as often as the caller. What a part wrote
  // before is then seen by all.
  void barrier();

 private:
  void work(int part);

  std::vector<std::thread> workers_;
  std::chrono::microseconds spin_time_;

  // What runs. Written by the caller while no worker runs, and published to the workers by the
  // increment of generation_.
  const std::function<void(int)>* body_ = nullptr;
  bool stopping_ = false;

  // On cache lines of their own: one side spins on what the other writes. 32 bits, because that is
  // what a futex waits on.
  alignas(64) std::atomic<uint32_t> generation_{0};  // runs started
  alignas(64) std::atomic<uint32_t> running_{0};     // workers not done with this run
  alignas(64) std::atomic<uint32_t> arrived_{0};     // parts that wait at the barrier
  alignas(64) std::atomic<uint32_t> passed_{0};      // barriers passed
};

}  // namespace lagoon
