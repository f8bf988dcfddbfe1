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
  if (sent_ != nullptr) {
    cudaEventSynchronize(sent_);
    cudaEventDestroy(sent_);
  }
  give_host_memory(host_);
  give_device_memory(mirror_);
}

bool Upload::reserve(int64_t bytes) {
  if (sent_ == nullptr) {
    device_.check(cudaEventCreateWithFlags(&sent_, cudaEventDisableTiming), "an event");
  }
  if (bytes <= capacity_) return true;
  give_host_memory(host_);
  give_device_memory(mirror_);
  host_ = take_host_memory(bytes);
  mirror_ = take_device_memory(bytes);
  capacity_ = host_ == nullptr || mirror_ == nullptr ? 0 : bytes;
  return capacity_ > 0;
}

uint8_t* Upload::open(int64_t bytes) {
  if (sent_ != nullptr) device_.wait_for(sent_);
  const bool room = bytes <= capacity_ || reserve(std::max(bytes, 2 * capacity_));
  if (!room) fail_for_memory(device_, bytes);
  return device_.failed() ? nullptr : host_;
}

void Upload::send(int64_t bytes) {
  CHECK(bytes <= capacity_);
  device_.check(cudaMemcpyAsync(mirror_, host_, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                                device_.stream()),
                "a copy to the device");
  device_.check(cudaEventRecord(sent_, device_.stream()), "an event");
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
