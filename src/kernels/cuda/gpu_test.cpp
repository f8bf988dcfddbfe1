#include "kernels/cuda/gpu_test.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace lagoon::kernels::cuda {

void GpuTest::SetUp() {
  auto device = Device::open();
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  device_ = std::move(device).value();
}

void GpuTest::copy(void* to, const void* from, size_t bytes) {
  device_->wait();
  check_device(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, device_->stream()), "a copy");
  device_->wait();
}

}  // namespace lagoon::kernels::cuda
