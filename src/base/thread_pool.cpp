#include "base/thread_pool.h"

#include "base/check.h"

namespace lagoon {
namespace {

// How long a thread waits actively before it sleeps. Waking a sleeper costs 5 to 50 us; the serial
// work between two loops of a step is shorter than this.
constexpr std::chrono::microseconds kSpinTime{50};

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // "yield" does nothing on the cores that matter; isb takes about 10 ns
#endif
}

// Returns once `value` differs from `old`: spins for `spin_time`, then sleeps.
uint32_t wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old,
                          std::chrono::microseconds spin_time) {
  constexpr int kPausesPerClockReading = 32;
  if (spin_time.count() > 0) {
    const auto deadline = std::chrono::steady_clock::now() + spin_time;
    do {
      for (int i = 0; i < kPausesPerClockReading; ++i) {
        const uint32_t now = value.load(std::memory_order_acquire);
        if (now != old) return now;
        relax();
      }
    } while (std::chrono::steady_clock::now() < deadline);
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1);
  // More threads than processors: one that spins keeps another from the work it waits for.
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  spin_time_ = threads <= processors ? kSpinTime : std::chrono::microseconds{0};
  workers_.reserve(threads - 1);
  for (int part = 1; part < threads; ++part) {
    workers_.emplace_back([this, part] { work(part); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t parts = threads();
  if (parts == 1 || count <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  run([&](int part) {
    const int64_t begin = count * part / parts;
    const int64_t end = count * (part + 1) / parts;
    if (begin < end) body(begin, end);
  });
}

void ThreadPool::run(const std::function<void(int)>& body) {
  if (workers_.empty()) {
    body(0);
    return;
  }
  CHECK(running_.load(std::memory_order_acquire) == 0);
  body_ = &body;
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);  // publishes body_ and running_
  generation_.notify_all();
  body(0);
  uint32_t running = running_.load(std::memory_order_acquire);
  while (running != 0) running = wait_while_equal(running_, running, spin_time_);
}

void ThreadPool::barrier() {
  if (workers_.empty()) return;
  // Nobody can pass this barrier, and so none of the next can begin, before the last has arrived.
  const uint32_t passed = passed_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == workers_.size()) {
    arrived_.store(0, std::memory_order_relaxed);
    passed_.fetch_add(1, std::memory_order_acq_rel);
    passed_.notify_all();
    return;
  }
  wait_while_equal(passed_, passed, spin_time_);
}

void ThreadPool::work(int part) {
  uint32_t seen = 0;
  for (;;) {
    // The next run cannot start before this worker has ended the last: none is missed.
    seen = wait_while_equal(generation_, seen, spin_time_);
    if (stopping_) return;
    (*body_)(part);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

}  // namespace lagoon
