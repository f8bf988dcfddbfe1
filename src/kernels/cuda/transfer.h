// Memory of the host that copies to and from the device start from and end at. Grows where it is
// too small; what is reserved before the first step is not.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"

namespace lagoon::kernels::cuda {

// On its way to the device, with a mirror there. The host has a few buffers in turn; it waits where
// the last copy from the one at hand is not done yet.
class Upload {
 public:
  Upload(Device& device, int buffers) : device_(device), buffers_(static_cast<size_t>(buffers)) {}
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // False where there is no memory.
  bool reserve(int64_t bytes);
  int64_t capacity() const { return capacity_; }
  // Room for so many bytes, to be filled. Null after a failure of the device.
  uint8_t* open(int64_t bytes);
  // Where it will lie on the device, until the next open().
  uint8_t* mirror() const { return mirror_; }
  // Copies the first `bytes`.
  void send(int64_t bytes);

 private:
  Device& device_;
  struct Buffer {
    uint8_t* host = nullptr;
    CUevent_st* sent = nullptr;
  };
  std::vector<Buffer> buffers_;
  size_t current_ = 0;
  uint8_t* mirror_ = nullptr;
  int64_t capacity_ = 0;
};

// On its way from the device. What is there may be read after a wait.
class Download {
 public:
  explicit Download(Device& device) : device_(device) {}
  ~Download();
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  bool reserve(int64_t bytes);
  // Room for so many bytes; null after a failure of the device.
  uint8_t* open(int64_t bytes);

 private:
  Device& device_;
  uint8_t* host_ = nullptr;
  int64_t capacity_ = 0;
};

// Puts a copy from the device on the stream. To memory that is not of this file, the host waits.
void copy_out(Device& device, void* to, const void* from, int64_t bytes);

}  // namespace lagoon::kernels::cuda
