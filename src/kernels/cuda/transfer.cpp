#include "kernels/cuda/transfer.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace lagoon::kernels::cuda {
namespace {

void fail_for_memory(Device& device, int64_t bytes) {
  device.fail({ErrorCode::kResourceExhausted,
               fmt::format("no memory was left for a copy of {} MiB to or from {}",
                           (bytes >> 20) + 1, device.name())});
}

}  // namespace

Upload::~Upload() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.sent != nullptr) {
      cudaEventSynchronize(buffer.sent);
      cudaEventDestroy(buffer.sent);
    }
    give_host_memory(buffer.host);
  }
  give_device_memory(mirror_);
}

bool Upload::reserve(int64_t bytes) {
  if (bytes <= capacity_) return true;
  give_device_memory(mirror_);  // waits for all copies
  mirror_ = take_device_memory(bytes);
  bool room = mirror_ != nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.sent == nullptr) {
      device_.check(cudaEventCreateWithFlags(&buffer.sent, cudaEventDisableTiming), "an event");
    }
    give_host_memory(buffer.host);
    buffer.host = take_host_memory(bytes);
    room = room && buffer.host != nullptr;
  }
  capacity_ = room ? bytes : 0;
  return room;
}

uint8_t* Upload::open(int64_t bytes) {
  const bool room = bytes <= capacity_ || reserve(std::max(bytes, 2 * capacity_));
  if (!room) fail_for_memory(device_, bytes);
  if (device_.failed()) return nullptr;
  current_ = (current_ + 1) % buffers_.size();
  device_.wait_for(buffers_[current_].sent);
  return device_.failed() ? nullptr : buffers_[current_].host;
}

void Upload::send(int64_t bytes) {
  CHECK(bytes <= capacity_);
  const Buffer& buffer = buffers_[current_];
  device_.check(cudaMemcpyAsync(mirror_, buffer.host, static_cast<size_t>(bytes),
                                cudaMemcpyHostToDevice, device_.stream()),
                "a copy to the device");
  device_.check(cudaEventRecord(buffer.sent, device_.stream()), "an event");
}

Download::~Download() {
  give_host_memory(host_);
}

bool Download::reserve(int64_t bytes) {
  if (bytes <= capacity_) return true;
  give_host_memory(host_);
  host_ = take_host_memory(bytes);
  capacity_ = host_ == nullptr ? 0 : bytes;
  return host_ != nullptr;
}

uint8_t* Download::open(int64_t bytes) {
  const bool room = bytes <= capacity_ || reserve(std::max(bytes, 2 * capacity_));
  if (!room) fail_for_memory(device_, bytes);
  return device_.failed() ? nullptr : host_;
}

void copy_out(Device& device, void* to, const void* from, int64_t bytes) {
  if (device.failed() || bytes == 0) return;
  device.check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                               device.stream()),
               "a copy of results");
}

}  // namespace lagoon::kernels::cuda
