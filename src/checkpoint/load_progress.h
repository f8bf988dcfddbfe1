// How far loading is: written by whoever loads, read by whoever reports it (the log, a progress
// bar, the answer to a health check). Every member may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace lagoon::checkpoint {

// In the order in which a start goes through them.
enum class LoadPhase {
  kChecking,       // configs, headers, what the memory has room for; no weight is read
  kReadingTarget,  // the target's weights
  kReadingDraft,   // the draft's weights
  kPreparing,      // caches, self-test: all weights are there
  kReady,
};

// "checking files", "reading the target", ...
std::string_view phase_name(LoadPhase phase);

class LoadProgress {
 public:
  struct State {
    LoadPhase phase = LoadPhase::kChecking;
    uint64_t bytes_done = 0;   // of weights, target and draft together
    uint64_t bytes_total = 0;  // 0 until it is known
    double seconds = 0;        // since the first byte was asked for, until the last one came
    std::string method;        // how they are read: "direct I/O, io_uring"

    int percent() const;  // 0 to 100, rounded down; 100 only if everything is read
    // Bytes per second; 0 as long as there is no telling.
    double rate() const;
    // At that rate; nothing as long as there is no telling.
    std::optional<double> seconds_left() const;
  };

  // Bytes that will be read, before the first of them is.
  void set_total(uint64_t bytes) { bytes_total_.store(bytes); }
  // Entering a reading phase starts the clock, if it does not run; leaving the last one stops it.
  void enter(LoadPhase phase);
  void add_bytes(uint64_t bytes) { bytes_done_.fetch_add(bytes); }
  void set_method(std::string method);

  State state() const;

 private:
  std::atomic<LoadPhase> phase_{LoadPhase::kChecking};
  std::atomic<uint64_t> bytes_done_{0};
  std::atomic<uint64_t> bytes_total_{0};
  std::atomic<int64_t> started_{0};  // nanoseconds of the steady clock; 0: not yet
  std::atomic<int64_t> ended_{0};
  mutable std::mutex mutex_;
  std::string method_;  // guarded by mutex_
};

// "4.20 of 71.92 GB (5 %), 2.81 GB/s, 24 s left"
std::string describe(const LoadProgress::State& state);
// Of a load that is complete: "read 71.92 GB in 14.2 s: 5.06 GB/s (direct I/O, io_uring)"
std::string summary(const LoadProgress::State& state);

}  // namespace lagoon::checkpoint
