// A device for tests of single kernels, which are skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace lagoon::kernels::cuda {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
  template <typename T>
  T* to_device(const std::vector<T>& values) {
    T* memory = device_->scratch_of<T>(static_cast<int64_t>(values.size()));
    copy(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  template <typename T>
  std::vector<T> from_device(const T* memory, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    copy(values.data(), memory, values.size() * sizeof(T));
    return values;
  }
  std::unique_ptr<Device> device_;

 private:
  // After all that is on the stream, either way.
  void copy(void* to, const void* from, size_t bytes);
};

}  // namespace lagoon::kernels::cuda
