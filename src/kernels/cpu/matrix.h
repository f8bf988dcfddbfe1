// Matrices in the CPU backend's layout, and their products with rows of activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

class PanelMemory;

// What pack() may use.
struct PackWith {
  ThreadPool* pool = nullptr;     // threads that share large matrices
  PanelMemory* memory = nullptr;  // else each matrix has its own
};

// Memory for many matrices in large pages: one page fault for 2 MiB in place of 512, which are most
// of the time of loading experts of 1.7 MB each. A piece keeps what it lies in alive. One thread.
class PanelMemory {
 public:
  // Not zeroed; null where there is none left.
  std::shared_ptr<std::byte> allocate(int64_t bytes);

 private:
  std::shared_ptr<std::byte> chunk_;
  int64_t used_ = 0;  // of it
};

// W [rows, columns] in panels of panel_rows() outputs, as kernels/cpu/layout.h says, in the format
// of the checkpoint: nothing is rounded, and no weight takes more bytes than there.
class Matrix final : public PackedWeight {
 public:
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  Format format() const { return format_; }
  // Of the layout: what a product with all panels reads.
  int64_t bytes() const;

  static int64_t panel_rows();
  int64_t panels() const;

  // The weights of row `row`, [columns], as ref::Matrix::read_row gives them. For tables of
  // embeddings and the weights of norms: slow.
  void read_row(int64_t row, float* out) const;

 private:
  friend Result<Weight> pack(const HostMatrix& host, const PackWith& with);
  friend void multiply(const Matrix& matrix, const float* x, int64_t x_stride, int m, float* y,
                       int64_t y_stride, int64_t panel_begin, int64_t panel_end);
  Matrix() = default;

  Format format_ = Format::kBFloat16;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t panel_bytes_ = 0;
  float divisor_ = 1;                      // kNVFP4: the global scale
  std::shared_ptr<std::byte> data_;        // [panels, panel_bytes]
  std::unique_ptr<float[]> block_scales_;  // kFP8: [panels, ceil(columns / 128)]
};

// Copies `host` into the layout. Errors: NVFP4 columns that are not a multiple of 16, a global
// scale that is zero or not finite, FP8 codes or NVFP4 scales that are NaN, no memory.
Result<Weight> pack(const HostMatrix& host, const PackWith& with = {});

// A weight as this backend made it; another backend's is a bug.
const Matrix& as_matrix(const PackedWeight* weight);

// y_rn = sum_k W_nk x_rk for rows r of [0, m) and the outputs n of panels [panel_begin, panel_end).
// Row r of x starts at x + r * x_stride, row r of y at y + r * y_stride, output n at n; other
// outputs are not written. x and y may have any alignment and must not overlap.
//
// The bits of y_rn depend on W, row r of x and the class of the instruction set alone, not on m,
// the panels or the thread. The order of a sum: columns in blocks of 128; within a block one chain
// of fused multiply-adds from zero, in order of k; total = fma(scale of the block, block, total),
// the scale being 1 in all formats but kFP8; NVFP4: the total is divided by the global scale at the
// end.
//
// Any number of threads may call at a time. Each keeps a scratch, which grows to the largest
// product it has seen.
void multiply(const Matrix& matrix, const float* x, int64_t x_stride, int m, float* y,
              int64_t y_stride, int64_t panel_begin, int64_t panel_end);

}  // namespace lagoon::kernels::cpu
