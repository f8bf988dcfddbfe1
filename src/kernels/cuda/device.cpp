#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "kernels/cuda/backend.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kFirstPiece = int64_t{64} << 20;
constexpr int64_t kTables = int64_t{4} << 20;

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

void check_device(int error, const char* what) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "the GPU failed at {}: {}\n", what,
             cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::abort();
}

Arena::~Arena() {
  for (const Piece& piece : pieces_) cudaFree(piece.memory);
}

bool Arena::grow(int64_t bytes) {
  for (const int64_t size : {std::max(bytes, pieces_.empty() ? first_ : later_), bytes}) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(size)) == cudaSuccess) {
      pieces_.push_back({static_cast<uint8_t*>(memory), size, 0});
      bytes_ += size;
      return true;
    }
    cudaGetLastError();  // or the next check would find it
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
  for (const Piece& piece : pieces_) cudaFree(piece.memory);  // waits for all that uses it
  pieces_.clear();
  bytes_ = 0;
  grow(all);  // if that fails, take() tries with less
}

Upload::~Upload() {
  if (sent_ != nullptr) {
    cudaEventSynchronize(sent_);
    cudaEventDestroy(sent_);
  }
  cudaFreeHost(host_);
  cudaFree(mirror_);
}

uint8_t* Upload::open(int64_t bytes) {
  if (sent_ == nullptr) {
    check_device(cudaEventCreateWithFlags(&sent_, cudaEventDisableTiming), "an event");
  } else {
    check_device(cudaEventSynchronize(sent_), "a copy to the device");
  }
  if (bytes <= capacity_) return host_;
  cudaFreeHost(host_);
  cudaFree(mirror_);  // waits for all that uses it
  const auto size = static_cast<size_t>(std::max(bytes, 2 * capacity_));
  void* host = nullptr;
  void* mirror = nullptr;
  check_device(cudaMallocHost(&host, size), "pinned memory");
  check_device(cudaMalloc(&mirror, size), "memory for the rows of a step");
  host_ = static_cast<uint8_t*>(host);
  mirror_ = static_cast<uint8_t*>(mirror);
  capacity_ = static_cast<int64_t>(size);
  return host_;
}

uint8_t* Upload::send(Stream stream, int64_t bytes) {
  CHECK(bytes <= capacity_);
  check_device(
      cudaMemcpyAsync(mirror_, host_, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
      "a copy to the device");
  check_device(cudaEventRecord(sent_, stream), "an event");
  return mirror_;
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

void Device::wait() const {
  check_device(cudaGetLastError(), "a launch");
  check_device(cudaStreamSynchronize(stream_), "a step");
}

uint8_t* Device::take_scratch(int64_t bytes) {
  uint8_t* memory = scratch.take(bytes);
  if (memory == nullptr) {
    fmt::print(stderr,
               "{} has too little free memory for a step: {} MiB more are needed; use fewer "
               "sequences or a shorter context\n",
               name_, bytes >> 20);
    std::abort();
  }
  return memory;
}

}  // namespace lagoon::kernels::cuda
