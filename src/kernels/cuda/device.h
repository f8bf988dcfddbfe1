// The GPU: its stream, its memory, and what went wrong with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/launch.h"

struct CUevent_st;

namespace lagoon::kernels::cuda {

// Memory of the device, and of the host such that the device copies from and to it by itself. Null
// where there is no more. All memory of this backend is taken and given back here; each call counts
// in memory_calls(), of the whole process: a server that has started makes none.
uint8_t* take_device_memory(int64_t bytes);
uint8_t* take_host_memory(int64_t bytes);
void give_device_memory(uint8_t* memory);  // waits for all that uses it
void give_host_memory(uint8_t* memory);
int64_t memory_calls();

// Device memory in large pieces, handed out front to back, given back as a whole.
class Arena {
 public:
  // Sizes of the first piece and of later ones, at least.
  Arena(int64_t first, int64_t later) : first_(first), later_(later) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to 256 bytes. Null where the device has no more memory.
  uint8_t* take(int64_t bytes);
  // Makes a later take() of so many bytes succeed without an allocation; false as above.
  bool reserve(int64_t bytes);
  // All that was taken is free again. Several pieces become one.
  void clear();
  // All that was taken is free again, and the first `bytes` of one piece are handed out; null as
  // above. The address changes only where a larger piece is needed than ever before.
  uint8_t* take_whole(int64_t bytes);
  int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    uint8_t* memory = nullptr;
    int64_t bytes = 0;
    int64_t used = 0;
  };
  bool grow(int64_t bytes);
  void give_back();

  int64_t first_, later_;
  std::vector<Piece> pieces_;
  size_t current_ = 0;
  int64_t bytes_ = 0;
};

// Cuts the buffers of an operation out of one piece of memory, aligned to 256 bytes. Without memory
// it only adds up how much they take.
class Cutter {
 public:
  explicit Cutter(uint8_t* memory = nullptr) : memory_(memory) {}
  template <typename T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))));
  }
  int64_t used() const { return used_; }

 private:
  uint8_t* take_bytes(int64_t bytes);

  uint8_t* memory_;
  int64_t used_ = 0;
};

class CudaState;

class Device {
 public:
  // See make_backend() for the errors.
  static Result<std::unique_ptr<Device>> open();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Stream stream() const { return stream_; }
  const std::string& name() const { return name_; }
  int64_t free_bytes() const;
  int64_t total_bytes() const;
  // Whether its memory is the host's (an integrated GPU).
  bool shares_host_memory() const { return shares_host_memory_; }

  // Waits for the stream.
  void wait();
  // Waits for what was on the stream when the event was recorded.
  void wait_for(CUevent_st* event);
  // How often the host had to wait.
  int64_t waits() const { return waits_; }
  // How long that took so far, in seconds. Any thread.
  double waited() const { return waited_.load(std::memory_order_relaxed); }

  // The first failure of the driver, of the device or of memory is kept: nothing that comes after
  // it means anything, and nothing more is put on the stream.
  void check(int error, const char* what);
  void fail(Error error);
  bool failed() const { return failure_.has_value(); }
  const Error* failure() const { return failure_ ? &*failure_ : nullptr; }

  // Whether steps may become graphs (graphs.h), and the state whose operations are collected for
  // one, if any.
  bool uses_graphs = true;
  CudaState* collecting = nullptr;

  // For weights.
  Arena weights{int64_t{64} << 20, int64_t{512} << 20};
  // For the addresses of the experts of layers.
  Arena tables{int64_t{4} << 20, int64_t{4} << 20};
  // Free at the start of each operation.
  Arena scratch{int64_t{64} << 20, int64_t{16} << 20};
  template <typename T>
  T* scratch_of(int64_t count) {
    return reinterpret_cast<T*>(take_scratch(count * static_cast<int64_t>(sizeof(T))));
  }
  // One piece of scratch memory, as large as the largest operation so far; null where the device
  // has no more, which is a failure then.
  uint8_t* take_workspace(int64_t bytes);
  // Room for it, before there is a step. Error: no memory.
  Result<void> reserve_workspace(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  Device() = default;
  uint8_t* take_scratch(int64_t bytes);
  void count_wait(Clock::time_point begin);

  Stream stream_ = nullptr;
  std::string name_;
  bool shares_host_memory_ = false;
  int64_t waits_ = 0;
  std::atomic<double> waited_ = 0;
  std::optional<Error> failure_;
};

// For tests and benchmarks: a failure ends the program with a line that says what happened at what.
void check_device(int error, const char* what);

}  // namespace lagoon::kernels::cuda
