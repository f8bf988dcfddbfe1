// Matrices in device memory.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cuda {

class Matrix final : public PackedWeight {
 public:
  // Packs on the device. Errors: what kernels/ref refuses, FP32 matrices of more than one row, NaNs
  // or negative scales, no memory.
  static Result<std::unique_ptr<Matrix>> pack(Device& device, const HostMatrix& host);

  // Makes random numbers on the device and packs them. Null: another format than BF16 and NVFP4.
  // Error: no memory.
  static Result<std::unique_ptr<Matrix>> make(Device& device, const RandomMatrix& random);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // CHECKs that the matrix is one that products take.
  const MatrixView& view() const;
  // The values in FP32 of a matrix of one row (BF16 or FP32).
  const float* vector() const;

 private:
  Matrix() = default;
  // Takes memory for the matrix as a kernel reads it and fills it from what `bring(first, rows,
  // values, scales)` puts into device memory, in checkpoint order.
  template <typename Bring>
  Result<void> fill(Device& device, const HostMatrix& host, const Bring& bring);

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  MatrixView view_;                // values null: none
  const float* vector_ = nullptr;  // or null
};

// A weight as this backend made it, of this shape; another is a bug.
const Matrix& as_matrix(const PackedWeight* weight);
const MatrixView& view_of(const PackedWeight* weight, int64_t rows, int64_t columns);
const float* vector_of(const Weight& weight, int64_t columns);

}  // namespace lagoon::kernels::cuda
