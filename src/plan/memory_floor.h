// A floor of free memory, kept while a server runs: below it no request is taken, so that the host
// does not suffer. It is looked at when a request comes; no thread watches it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "plan/host_memory.h"

namespace lagoon::plan {

class MemoryFloor {
 public:
  // Half of what the plan leaves to the rest of the machine. `read`, for tests, is the memory at
  // the moment; null: that of this machine. What cannot be read refuses nothing.
  explicit MemoryFloor(int64_t floor_bytes, std::function<Result<HostMemory>()> read = nullptr,
                       std::chrono::milliseconds remembered = std::chrono::milliseconds(100));

  // Why no request can be taken now; none: they can. Any thread. The machine is asked again once
  // the last answer is older than `remembered`.
  std::optional<std::string> refusal();

 private:
  const int64_t floor_bytes_;
  const std::function<Result<HostMemory>()> read_;
  const std::chrono::milliseconds remembered_;
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::optional<std::string> refusal_;
};

}  // namespace lagoon::plan
