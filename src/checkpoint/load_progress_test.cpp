#include "checkpoint/load_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lagoon::checkpoint {
namespace {

using ::testing::StartsWith;

TEST(LoadProgress, NothingIsKnownAtFirst) {
  const LoadProgress progress;
  const LoadProgress::State state = progress.state();
  EXPECT_EQ(phase_name(state.phase), "checking files");
  EXPECT_EQ(state.percent(), 0);
  EXPECT_EQ(state.rate(), 0);
  EXPECT_FALSE(state.seconds_left().has_value());
}

TEST(LoadProgress, PercentIsRoundedDown) {
  LoadProgress::State state;
  state.bytes_done = 999;
  state.bytes_total = 1000;
  EXPECT_EQ(state.percent(), 99);
  state.bytes_done = 1000;
  EXPECT_EQ(state.percent(), 100);
  state = {};  // a model without weights
  state.phase = LoadPhase::kPreparing;
  EXPECT_EQ(state.percent(), 100);
}

TEST(LoadProgress, RateAndTimeLeft) {
  LoadProgress::State state;
  state.phase = LoadPhase::kReadingTarget;
  state.bytes_done = 2'000'000'000;
  state.bytes_total = 8'000'000'000;
  state.seconds = 4;
  EXPECT_EQ(state.rate(), 5e8);
  EXPECT_EQ(state.seconds_left(), 12);
  EXPECT_EQ(summary(state), "read 2.00 GB in 4.00 s: 0.50 GB/s");
  state.method = "direct I/O, io_uring";
  EXPECT_EQ(summary(state), "read 2.00 GB in 4.00 s: 0.50 GB/s (direct I/O, io_uring)");
  EXPECT_EQ(describe(state), "2.00 of 8.00 GB (25 %), 0.50 GB/s, 12 s left");
}

TEST(LoadProgress, TheClockRunsWhileItIsRead) {
  LoadProgress progress;
  EXPECT_EQ(progress.state().seconds, 0);
  progress.enter(LoadPhase::kReadingTarget);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  progress.enter(LoadPhase::kReadingDraft);
  EXPECT_GT(progress.state().seconds, 0.0015);
  progress.enter(LoadPhase::kPreparing);
  const double read = progress.state().seconds;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  progress.enter(LoadPhase::kReady);
  EXPECT_EQ(progress.state().seconds, read);
}

TEST(LoadProgress, ThreadsAddUp) {
  LoadProgress progress;
  progress.set_total(4000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) progress.add_bytes(1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(progress.state().percent(), 100);
  EXPECT_THAT(describe(progress.state()), StartsWith("0.00 of 0.00 GB (100 %)"));
}

}  // namespace
}  // namespace lagoon::checkpoint
