#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace lagoon {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges ranges_of(ThreadPool& pool, int64_t count) {
  std::mutex mutex;
  Ranges ranges;
  pool.parallel_for(count, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

// User and system time of this process so far, in seconds.
double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, VisitsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 8, 100, 1001}) {
      std::vector<int> visits(count, 0);  // plain ints: parts must not overlap
      pool.parallel_for(count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }))
          << count << " indices on " << threads << " threads";
    }
  }
}

TEST(ThreadPool, PartsAreTheSameEveryTime) {
  ThreadPool pool(3);
  const Ranges expected = {{0, 33}, {33, 66}, {66, 100}};
  for (int i = 0; i < 50; ++i) ASSERT_EQ(ranges_of(pool, 100), expected);
}

TEST(ThreadPool, EmptyPartsAreNotCalled) {
  ThreadPool pool(4);
  EXPECT_EQ(ranges_of(pool, 2), (Ranges{{0, 1}, {1, 2}}));
  EXPECT_TRUE(ranges_of(pool, 0).empty());
}

TEST(ThreadPool, OnePartRunsOnTheCallerAndTheOthersDoNot) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread::id> ran_on(2);
  pool.parallel_for(2, [&](int64_t begin, int64_t) { ran_on[begin] = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on[0], caller);
  EXPECT_NE(ran_on[1], caller);
}

TEST(ThreadPool, LoopsSeeWhatEarlierLoopsWrote) {
  ThreadPool pool(4);
  constexpr int64_t kSize = 64;
  std::vector<int64_t> current(kSize, 1);
  std::vector<int64_t> next(kSize, 0);
  for (int round = 0; round < 2000; ++round) {
    // Each element is read by another part than the one that wrote it.
    pool.parallel_for(kSize, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) next[i] = current[(i + kSize / 2 + 1) % kSize] + 1;
    });
    std::swap(current, next);
  }
  EXPECT_TRUE(std::all_of(current.begin(), current.end(), [](int64_t n) { return n == 2001; }));
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // well beyond the active wait
    EXPECT_EQ(ranges_of(pool, 3).size(), 3u);
  }
}

TEST(ThreadPool, CallerWaitsForASlowWorker) {
  ThreadPool pool(2);
  bool done = false;
  pool.parallel_for(2, [&](int64_t begin, int64_t) {
    if (begin == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, RunsEveryPartAtOnceAndBarriersOrderThem) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<int64_t> current(threads, 1);
    std::vector<int64_t> next(threads, 0);
    for (int round = 0; round < 20; ++round) {
      pool.run([&](int part) {
        for (int i = 0; i < 50; ++i) {
          // Each part reads what its neighbour wrote before the barrier.
          std::vector<int64_t>& from = i % 2 == 0 ? current : next;
          std::vector<int64_t>& to = i % 2 == 0 ? next : current;
          to[part] = from[(part + 1) % threads] + 1;
          pool.barrier();
        }
      });
    }
    EXPECT_EQ(current, std::vector<int64_t>(threads, 1001));
  }
}

TEST(ThreadPool, UsesNoProcessorTimeWhenIdle) {
  ThreadPool pool(4);
  ranges_of(pool, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // One spinning thread alone would use 0.3 s.
  EXPECT_LT(processor_seconds() - before, 0.05);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(1 + i % 4);
}

TEST(ThreadPoolDeath, NeedsAThread) {
  EXPECT_DEATH(ThreadPool pool(0), "CHECK failed");
}

}  // namespace
}  // namespace lagoon
