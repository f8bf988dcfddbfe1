// The GPU: its stream, and memory that is taken once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/launch.h"

struct CUevent_st;

namespace lagoon::kernels::cuda {

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
  int64_t bytes() const { return bytes_; }

 private:
  struct Piece {
    uint8_t* memory = nullptr;
    int64_t bytes = 0;
    int64_t used = 0;
  };
  bool grow(int64_t bytes);

  int64_t first_, later_;
  std::vector<Piece> pieces_;
  size_t current_ = 0;
  int64_t bytes_ = 0;
};

// Memory of the host that copies to the device start from, and its mirror there. Waits until the
// last copy is done before it is filled again.
class Upload {
 public:
  Upload() = default;
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Room for so many bytes, to be filled; grows what is too small.
  uint8_t* open(int64_t bytes);
  // Where it will lie on the device, until the next open().
  const uint8_t* mirror() const { return mirror_; }
  // Copies the first `bytes` on the stream; the mirror's address.
  uint8_t* send(Stream stream, int64_t bytes);

 private:
  uint8_t* host_ = nullptr;
  uint8_t* mirror_ = nullptr;
  int64_t capacity_ = 0;
  CUevent_st* sent_ = nullptr;
};

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
  void wait() const;

  // For weights.
  Arena weights{int64_t{64} << 20, int64_t{512} << 20};
  // For the addresses of experts, which are collected when a layer is first computed.
  Arena tables{int64_t{4} << 20, int64_t{4} << 20};
  // Free at the start of each operation. It grows with the largest step so far.
  Arena scratch{int64_t{64} << 20, int64_t{16} << 20};
  template <typename T>
  T* scratch_of(int64_t count) {
    return reinterpret_cast<T*>(take_scratch(count * static_cast<int64_t>(sizeof(T))));
  }

 private:
  Device() = default;
  uint8_t* take_scratch(int64_t bytes);

  Stream stream_ = nullptr;
  std::string name_;
  bool shares_host_memory_ = false;
};

// The driver's or the device's failure is the end of the program, with a line that says what
// happened at what.
void check_device(int error, const char* what);

}  // namespace lagoon::kernels::cuda
