#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/backend.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kFirstPiece = int64_t{64} << 20;
constexpr int64_t kTables = int64_t{4} << 20;

std::atomic<int64_t> calls = 0;  // of memory

Error unavailable(const std::string& why) {
  return {ErrorCode::kUnavailable, why + ", or use --backend cpu"};
}

int64_t aligned(int64_t bytes) {
  return std::max<int64_t>(1, ceil_divide(bytes, kAlignment)) * kAlignment;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

uint8_t* take_device_memory(int64_t bytes) {
  ++calls;
  void* memory = nullptr;
  if (cudaMalloc(&memory, static_cast<size_t>(aligned(bytes))) == cudaSuccess) {
    return static_cast<uint8_t*>(memory);
  }
  cudaGetLastError();  // or the next check would find it
  return nullptr;
}

uint8_t* take_host_memory(int64_t bytes) {
  ++calls;
  void* memory = nullptr;
  if (cudaMallocHost(&memory, static_cast<size_t>(aligned(bytes))) == cudaSuccess) {
    return static_cast<uint8_t*>(memory);
  }
  cudaGetLastError();
  return nullptr;
}

void give_device_memory(uint8_t* memory) {
  if (memory == nullptr) return;
  ++calls;
  cudaFree(memory);
}

void give_host_memory(uint8_t* memory) {
  if (memory == nullptr) return;
  ++calls;
  cudaFreeHost(memory);
}

int64_t memory_calls() {
  return calls;
}

void check_device(int error, const char* what) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "the GPU failed at {}: {}\n", what,
             cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::abort();
}

Arena::~Arena() {
  give_back();
}

void Arena::give_back() {
  for (const Piece& piece : pieces_) give_device_memory(piece.memory);
  pieces_.clear();
  bytes_ = 0;
}

bool Arena::grow(int64_t bytes) {
  for (const int64_t size : {std::max(bytes, pieces_.empty() ? first_ : later_), bytes}) {
    uint8_t* memory = take_device_memory(size);
    if (memory == nullptr) continue;
    pieces_.push_back({memory, size, 0});
    bytes_ += size;
    return true;
  }
  return false;
}

bool Arena::reserve(int64_t bytes) {
  bytes = aligned(bytes);
  for (size_t i = current_; i < pieces_.size(); ++i) {
    if (pieces_[i].bytes - pieces_[i].used >= bytes) return true;
  }
  return grow(bytes);
}

uint8_t* Arena::take(int64_t bytes) {
  bytes = aligned(bytes);
  if (!reserve(bytes)) return nullptr;
  size_t at = current_;
  while (pieces_[at].bytes - pieces_[at].used < bytes) ++at;
  Piece& piece = pieces_[at];
  uint8_t* memory = piece.memory + piece.used;
  piece.used += bytes;
  // Past what is full: what did not fit may leave room for smaller ones.
  while (current_ + 1 < pieces_.size() &&
         pieces_[current_].bytes - pieces_[current_].used < kAlignment) {
    ++current_;
  }
  return memory;
}

void Arena::clear() {
  current_ = 0;
  for (Piece& piece : pieces_) piece.used = 0;
  if (pieces_.size() < 2) return;
  // What did not fit into one piece shall, the next time.
  const int64_t all = bytes_;
  give_back();
  grow(all);  // if that fails, take() tries with less
}

uint8_t* Arena::take_whole(int64_t bytes) {
  clear();
  if (pieces_.empty() || pieces_[0].bytes < aligned(bytes)) give_back();
  return take(bytes);
}

uint8_t* Cutter::take_bytes(int64_t bytes) {
  uint8_t* memory = memory_ == nullptr ? nullptr : memory_ + used_;
  used_ += aligned(bytes);
  return memory;
}

Result<std::unique_ptr<Device>> Device::open() {
  // Kernels are loaded now, not when each is first launched: then memory may be used up.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return unavailable("no NVIDIA driver was found: install one");
  }
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (found == cudaErrorInsufficientDriver) {
    return unavailable(
        fmt::format("the NVIDIA driver supports CUDA up to {}, and this build needs "
                    "{}: update the driver",
                    version_text(driver), version_text(CUDART_VERSION)));
  }
  if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) {
    return unavailable("the NVIDIA driver shows no GPU: see what nvidia-smi says");
  }
  if (found != cudaSuccess) {
    return unavailable(fmt::format("the NVIDIA driver failed ({}): see what nvidia-smi says",
                                   cudaGetErrorString(found)));
  }
  cudaDeviceProp properties{};
  cudaError_t error = cudaSetDevice(0);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, 0);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return unavailable(
        fmt::format("the first GPU could not be opened ({}): see what nvidia-smi "
                    "says",
                    cudaGetErrorString(error)));
  }
  if (properties.major < 8) {
    return unavailable(
        fmt::format("{} has compute capability {}.{}, and 8.0 is needed: use a "
                    "newer GPU",
                    properties.name, properties.major, properties.minor));
  }
  error = static_cast<cudaError_t>(find_code());
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    return unavailable(fmt::format(
        "{} (compute capability {}.{}) is not covered by this build, which has code for {}: build "
        "with -DLAGOON_CUDA_ARCHITECTURES={}{}",
        properties.name, properties.major, properties.minor, LAGOON_CUDA_ARCHITECTURES,
        properties.major, properties.minor));
  }
  if (error != cudaSuccess) {
    return unavailable(
        fmt::format("{} could not load this build's code ({}): see what nvidia-smi "
                    "says",
                    properties.name, cudaGetErrorString(error)));
  }
  std::unique_ptr<Device> device(new Device);
  device->name_ = properties.name;
  device->shares_host_memory_ = properties.integrated != 0;
  error = cudaStreamCreateWithFlags(&device->stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess || !device->scratch.reserve(kFirstPiece) ||
      !device->tables.reserve(kTables)) {
    cudaGetLastError();
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} has too little free memory ({} MiB): stop what uses it, or use "
                             "--backend cpu",
                             properties.name, device->free_bytes() >> 20)};
  }
  return device;
}

Device::~Device() {
  if (stream_ == nullptr) return;
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

int64_t Device::free_bytes() const {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  return static_cast<int64_t>(free);
}

int64_t Device::total_bytes() const {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  return static_cast<int64_t>(total);
}

void Device::wait() {
  if (failed()) return;
  check(cudaGetLastError(), "a launch");
  ++waits_;
  const Clock::time_point begin = Clock::now();
  check(cudaStreamSynchronize(stream_), "a step");
  count_wait(begin);
}

void Device::count_wait(Clock::time_point begin) {
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  // One thread writes.
  waited_.store(waited_.load(std::memory_order_relaxed) + seconds.count(),
                std::memory_order_relaxed);
}

void Device::wait_for(CUevent_st* event) {
  if (failed()) return;
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaSuccess) return;
  if (state == cudaErrorNotReady) {
    cudaGetLastError();  // it is kept as an error
    ++waits_;
    const Clock::time_point begin = Clock::now();
    check(cudaEventSynchronize(event), "a copy to the device");
    count_wait(begin);
  } else {
    check(state, "a copy to the device");
  }
}

void Device::check(int error, const char* what) {
  if (error == cudaSuccess || failed()) return;
  fail({ErrorCode::kInternal,
        fmt::format("the GPU {} failed at {} ({}): see what nvidia-smi says", name_, what,
                    cudaGetErrorString(static_cast<cudaError_t>(error)))});
}

void Device::fail(Error error) {
  if (!failed()) failure_ = std::move(error);
}

Result<void> Device::reserve_workspace(int64_t bytes) {
  if (scratch.take_whole(bytes) != nullptr) return {};
  return Error{ErrorCode::kResourceExhausted,
               fmt::format("{} has too little memory for a step: {} MiB are free, and its rows "
                           "need {} MiB; use a lower --max-num-batched-tokens, or --backend cpu",
                           name_, free_bytes() >> 20, (bytes >> 20) + 1)};
}

uint8_t* Device::take_workspace(int64_t bytes) {
  if (failed()) return nullptr;
  uint8_t* memory = scratch.take_whole(bytes);
  if (memory == nullptr) fail(reserve_workspace(bytes).error());
  return memory;
}

uint8_t* Device::take_scratch(int64_t bytes) {
  uint8_t* memory = scratch.take(bytes);
  CHECK(memory != nullptr);
  return memory;
}

}  // namespace lagoon::kernels::cuda
