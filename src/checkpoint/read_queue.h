// Many reads in flight at once: by io_uring, or where that is refused (containers often do) by
// threads that read. One thread uses a queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace lagoon::checkpoint {

struct ReadRequest {
  int descriptor = -1;
  uint64_t offset = 0;
  std::byte* into = nullptr;  // must live until the read is done
  size_t bytes = 0;
  uint64_t tag = 0;  // comes back with the result
};

struct ReadDone {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes, fewer than asked for at the end of a file; below 0: -errno
};

class ReadQueue {
 public:
  // Waits for what is in flight.
  virtual ~ReadQueue() = default;
  ReadQueue() = default;
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  // "io_uring" or "pread".
  virtual std::string_view name() const = 0;
  // Starts a read; fewer than the queue's depth are in flight.
  virtual void submit(const ReadRequest& request) = 0;
  // The next one that is done, in any order; at least one is in flight.
  virtual ReadDone wait() = 0;
};

// Null where the system refuses (an old kernel, a seccomp filter, kernel.io_uring_disabled).
std::unique_ptr<ReadQueue> make_uring_queue(unsigned depth);
std::unique_ptr<ReadQueue> make_thread_queue(unsigned depth);

}  // namespace lagoon::checkpoint
