#include "plan/memory_floor.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"

namespace lagoon::plan {
namespace {

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

}  // namespace

MemoryFloor::MemoryFloor(int64_t floor_bytes, std::function<Result<HostMemory>()> read,
                         std::chrono::milliseconds remembered)
    : floor_bytes_(floor_bytes),
      read_(read ? std::move(read) : [] { return read_host_memory(); }),
      remembered_(remembered) {}

std::optional<std::string> MemoryFloor::refusal() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (asked_ && now - *asked_ < remembered_) return refusal_;
  asked_ = now;
  const auto memory = read_();
  const bool refused = refusal_.has_value();
  refusal_.reset();
  if (memory.ok() && memory->free_bytes() < floor_bytes_) {
    refusal_ = fmt::format(
        "The machine has {:.2f} GiB of memory left ({}), and below {:.2f} GiB no request is taken. "
        "Try again later.",
        gib(memory->free_bytes()), memory->limited_by(), gib(floor_bytes_));
    const std::string holders = describe(largest_holders(3));
    if (!refused) LOG(warning, "{}{}", *refusal_, holders.empty() ? "" : " " + holders + ".");
  } else if (refused) {
    LOG(info, "there is memory again: requests are taken");
  }
  return refusal_;
}

}  // namespace lagoon::plan
