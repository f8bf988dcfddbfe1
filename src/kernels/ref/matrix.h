// Matrices as the checkpoint stores them, and their products with rows of activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kernels/ops.h"
#include "kernels/ref/workers.h"

namespace lagoon::kernels::ref {

// sum_k a_k b_k in FP32: product k is added, in order of k, to partial sum k % 16; then the upper
// half of the partial sums is added to the lower half, four times. The order depends on n alone and
// lets a compiler use vectors.
float dot(const float* a, const float* b, int64_t n);

class Matrix final : public PackedWeight {
 public:
  // Copies `host`. Errors: NVFP4 columns that are not a multiple of 16, a global scale that is zero
  // or not finite, no memory.
  static Result<std::unique_ptr<Matrix>> copy(const HostMatrix& host);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // The weights of row `row` are row_times_divisor(row) / divisor(). They stand in `scratch`
  // [columns] or in the matrix itself. NVFP4: code * scale, exact in FP32. FP8: code * scale,
  // rounded to FP32. Others: the values, exact.
  const float* row_times_divisor(int64_t row, float* scratch) const;
  float divisor() const { return divisor_; }

  // The weights of row `row`, [columns].
  void read_row(int64_t row, float* out) const;

 private:
  Matrix() = default;

  Format format_ = Format::kBFloat16;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  float divisor_ = 1;  // kNVFP4: the global scale
  std::unique_ptr<std::byte[]> values_;
  std::unique_ptr<std::byte[]> scales_;
};

// A weight as this backend made it; another backend's is a bug.
const Matrix& as_matrix(const PackedWeight* weight);

// y_r = W x_r for `rows` rows: y [rows, W.rows()]. Row r is row x_rows[r] of x [.., W.columns()],
// or row r if x_rows is empty.
struct Product {
  const Matrix* matrix = nullptr;
  int64_t rows = 0;
  const float* x = nullptr;
  float* y = nullptr;
  std::span<const int32_t> x_rows = {};
};

// A product with a weight that must be [n, k].
Product make_product(const PackedWeight* weight, int64_t n, int64_t k, int64_t rows, const float* x,
                     float* y);

// Each weight row is decoded once and multiplied with all rows of its product. y must not overlap
// any x.
void multiply(Workers& workers, std::span<const Product> products);

}  // namespace lagoon::kernels::ref
