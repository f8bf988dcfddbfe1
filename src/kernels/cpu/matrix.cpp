#include "kernels/cpu/matrix.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/product.h"

namespace lagoon::kernels::cpu {
namespace {

// The kernel for FP32 activations, and those for BF16 activations where that is another.
struct Kernels {
  ProductKernel floats = nullptr;
  ProductKernel dots = nullptr;
  PairsKernel pairs = nullptr;
};

Kernels kernels_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return {product_portable};
#if defined(__x86_64__)
    case InstructionSet::kAvx2:
      return {product_avx2};
    case InstructionSet::kAvx512:
      return {product_avx512};
    case InstructionSet::kAvx512Bf16:
      return {product_avx512, product_avx512bf16, pairs_avx512bf16};
#elif defined(__aarch64__)
    case InstructionSet::kNeon:
      return {product_neon};
    case InstructionSet::kNeonBf16:
      return {product_neon, product_neonbf16, pairs_neonbf16};
#endif
    default:
      CHECK(false);
  }
}

// Memory of one thread that grows and stays.
template <typename T>
class Scratch {
 public:
  T* get(int64_t n) {
    if (n > size_) {
      data_ = std::make_unique_for_overwrite<T[]>(n);
      size_ = n;
    }
    return data_.get();
  }

 private:
  std::unique_ptr<T[]> data_;
  int64_t size_ = 0;
};

// The columns from the start of the last block, with zeros behind.
void copy_tail(const Product& product, float* tail) {
  const int64_t first = (product.columns - 1) / kBlockColumns * kBlockColumns;
  for (int r = 0; r < product.m; ++r) {
    float* row = tail + r * kBlockColumns;
    const float* x = product.x + r * product.x_stride;
    std::fill(std::copy(x + first, x + product.columns, row), row + kBlockColumns, 0.0f);
  }
}

// Row r of x as pairs of BF16 numbers; false if BF16 cannot hold it.
bool to_pairs(const Kernels& kernels, const Product& product, int r, uint32_t* pairs) {
  const float* x = product.x + r * product.x_stride;
  const int64_t whole = product.columns / 2;
  bool exact = kernels.pairs(x, whole, pairs);
  std::fill(pairs + whole, pairs + product.pairs_stride, 0);
  if (product.columns % 2 != 0) {
    const auto last = std::bit_cast<uint32_t>(x[product.columns - 1]);
    exact = exact && (last & 0xffffu) == 0;
    pairs[whole] = last >> 16;
  }
  return exact;
}

// Rows [begin, end) of a product.
Product rows_of(Product product, int begin, int end) {
  product.m = end - begin;
  product.x += begin * product.x_stride;
  product.y += begin * product.y_stride;
  if (product.x_tail != nullptr) product.x_tail += begin * kBlockColumns;
  if (product.x_pairs != nullptr) product.x_pairs += begin * product.pairs_stride;
  return product;
}

// Rows that BF16 holds go to the dot products, whatever the other rows are.
void multiply_by_class(const Kernels& kernels, Product product) {
  thread_local Scratch<uint32_t> scratch;
  thread_local Scratch<bool> exact_scratch;
  product.pairs_stride = round_up(product.columns, kGroupColumns) / 2;
  uint32_t* pairs = scratch.get(product.m * product.pairs_stride);
  bool* exact = exact_scratch.get(product.m);
  for (int r = 0; r < product.m; ++r)
    exact[r] = to_pairs(kernels, product, r, pairs + r * product.pairs_stride);
  product.x_pairs = pairs;
  for (int begin = 0; begin < product.m;) {
    int end = begin + 1;
    while (end < product.m && exact[end] == exact[begin]) ++end;
    (exact[begin] ? kernels.dots : kernels.floats)(rows_of(product, begin, end));
    begin = end;
  }
}

}  // namespace

int64_t Matrix::bytes() const {
  const int64_t scales =
      block_scales_ ? panels() * ((columns_ + kBlockColumns - 1) / kBlockColumns) : 0;
  return panels() * panel_bytes_ + scales * static_cast<int64_t>(sizeof(float));
}

int64_t Matrix::panel_rows() {
  return kPanelRows;
}

int64_t Matrix::panels() const {
  return (rows_ + kPanelRows - 1) / kPanelRows;
}

const Matrix& as_matrix(const PackedWeight* weight) {
  const auto* matrix = dynamic_cast<const Matrix*>(weight);
  CHECK(matrix != nullptr);
  return *matrix;
}

void multiply(const Matrix& matrix, const float* x, int64_t x_stride, int m, float* y,
              int64_t y_stride, int64_t panel_begin, int64_t panel_end) {
  CHECK(panel_begin >= 0 && panel_begin <= panel_end && panel_end <= matrix.panels());
  if (m == 0 || panel_begin == panel_end) return;
  Product product{.format = matrix.format_,
                  .data = matrix.data_.get(),
                  .panel_bytes = matrix.panel_bytes_,
                  .block_scales = matrix.block_scales_.get(),
                  .divisor = matrix.divisor_,
                  .rows = matrix.rows_,
                  .columns = matrix.columns_,
                  .panel_begin = panel_begin,
                  .panel_end = panel_end,
                  .x = x,
                  .x_stride = x_stride,
                  .m = m,
                  .y = y,
                  .y_stride = y_stride};
  thread_local Scratch<float> scratch;
  if (product.columns % kGroupColumns != 0) {
    float* tail = scratch.get(m * kBlockColumns);
    copy_tail(product, tail);
    product.x_tail = tail;
  }
  const Kernels kernels = kernels_of(selected());
  if (kernels.dots == nullptr || product.format == Format::kFloat32) {
    kernels.floats(product);
  } else {
    multiply_by_class(kernels, product);
  }
}

}  // namespace lagoon::kernels::cpu
