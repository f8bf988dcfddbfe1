#include "kernels/ref/matrix.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "numeric/dtype.h"

namespace lagoon::kernels::ref {
namespace {

constexpr int kPartialSums = 16;
constexpr int64_t kNVFP4Group = 16;  // columns that share a scale
constexpr int64_t kFP8Block = 128;   // rows and columns that share a scale
constexpr int64_t kBlockRows = 8;    // weight rows decoded together: they fit a first-level cache

struct CodePair {
  float low = 0, high = 0;
};

// Decoded values of every byte: an e4m3 code, and two e2m1 codes.
struct Tables {
  std::array<float, 256> e4m3{};
  std::array<CodePair, 256> e2m1_pair{};
  Tables() {
    for (int byte = 0; byte < 256; ++byte) {
      e4m3[byte] = numeric::e4m3_to_float(static_cast<uint8_t>(byte));
      e2m1_pair[byte] = {numeric::e2m1_to_float(static_cast<uint8_t>(byte & 15)),
                         numeric::e2m1_to_float(static_cast<uint8_t>(byte >> 4))};
    }
  }
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct Sizes {
  int64_t values = 0;  // bytes
  int64_t scales = 0;
};

Sizes sizes_of(const HostMatrix& m) {
  switch (m.format) {
    case Format::kBFloat16:
      return {m.rows * m.columns * 2, 0};
    case Format::kFloat32:
      return {m.rows * m.columns * 4, 0};
    case Format::kFP8:
      return {m.rows * m.columns,
              ceil_divide(m.rows, kFP8Block) * ceil_divide(m.columns, kFP8Block) * 4};
    case Format::kNVFP4:
      return {m.rows * m.columns / 2, m.rows * m.columns / kNVFP4Group};
  }
  CHECK(false);
}

void decode_bfloat16(const std::byte* values, int64_t columns, float* out) {
  const auto* bits = reinterpret_cast<const uint16_t*>(values);
  for (int64_t c = 0; c < columns; ++c) out[c] = numeric::to_float(numeric::BFloat16{bits[c]});
}

void decode_fp8(const std::byte* values, const float* block_scales, int64_t columns, float* out) {
  const std::array<float, 256>& e4m3 = tables().e4m3;
  for (int64_t first = 0; first < columns; first += kFP8Block) {
    const float scale = block_scales[first / kFP8Block];
    const int64_t end = std::min(first + kFP8Block, columns);
    for (int64_t c = first; c < end; ++c) {
      out[c] = e4m3[static_cast<uint8_t>(values[c])] * scale;
    }
  }
}

void decode_nvfp4(const std::byte* __restrict values, const std::byte* __restrict scales,
                  int64_t columns, float* __restrict out) {
  const Tables& t = tables();
  for (int64_t group = 0; group < columns / kNVFP4Group; ++group) {
    const float scale = t.e4m3[static_cast<uint8_t>(scales[group])];
    const std::byte* codes = values + group * kNVFP4Group / 2;
    float* group_out = out + group * kNVFP4Group;
    for (int64_t i = 0; i < kNVFP4Group / 2; ++i) {
      const CodePair pair = t.e2m1_pair[static_cast<uint8_t>(codes[i])];
      group_out[2 * i] = pair.low * scale;
      group_out[2 * i + 1] = pair.high * scale;
    }
  }
}

// Four floats that are added and multiplied each by itself. Compilers find these in plain loops
// too, but not as reliably.
using Lanes = float __attribute__((vector_size(16)));

Lanes load(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}

// Weight rows [begin, end) of a product.
void multiply_block(const Product& product, int64_t begin, int64_t end, Buffer& scratch) {
  const Matrix& matrix = *product.matrix;
  const int64_t columns = matrix.columns();
  float* decoded = scratch.floats(kBlockRows * columns);
  std::array<const float*, kBlockRows> weights{};
  for (int64_t n = begin; n < end; ++n) {
    weights[n - begin] = matrix.row_times_divisor(n, decoded + (n - begin) * columns);
  }
  for (int64_t r = 0; r < product.rows; ++r) {
    const int64_t x_row = product.x_rows.empty() ? r : product.x_rows[r];
    const float* x = product.x + x_row * columns;
    float* y = product.y + r * matrix.rows();
    for (int64_t n = begin; n < end; ++n) {
      y[n] = dot(weights[n - begin], x, columns) / matrix.divisor();
    }
  }
}

}  // namespace

float dot(const float* a, const float* b, int64_t n) {
  Lanes sums[4] = {};  // partial sums 0-3, 4-7, 8-11, 12-15
  int64_t k = 0;
  for (; k + kPartialSums <= n; k += kPartialSums) {
    sums[0] += load(a + k) * load(b + k);
    sums[1] += load(a + k + 4) * load(b + k + 4);
    sums[2] += load(a + k + 8) * load(b + k + 8);
    sums[3] += load(a + k + 12) * load(b + k + 12);
  }
  if (k < n) {
    float rest[kPartialSums];
    std::memcpy(rest, sums, sizeof rest);
    for (int i = 0; k + i < n; ++i) rest[i] += a[k + i] * b[k + i];
    std::memcpy(sums, rest, sizeof rest);
  }
  const Lanes four = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

Result<std::unique_ptr<Matrix>> Matrix::copy(const HostMatrix& host) {
  CHECK(host.rows > 0 && host.columns > 0 && host.values != nullptr);
  const bool scaled = host.format == Format::kFP8 || host.format == Format::kNVFP4;
  CHECK(scaled == (host.scales != nullptr));
  if (host.format == Format::kNVFP4) {
    if (host.columns % kNVFP4Group != 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("an NVFP4 matrix of {} x {} cannot be used: its columns must be a "
                               "multiple of {}",
                               host.rows, host.columns, kNVFP4Group)};
    }
    if (host.global_scale == 0 || !std::isfinite(host.global_scale)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("an NVFP4 matrix of {} x {} cannot be used: its global scale is {}",
                               host.rows, host.columns, host.global_scale)};
    }
  }
  const Sizes sizes = sizes_of(host);
  std::unique_ptr<Matrix> matrix(new Matrix);
  matrix->format_ = host.format;
  matrix->rows_ = host.rows;
  matrix->columns_ = host.columns;
  matrix->divisor_ = host.format == Format::kNVFP4 ? host.global_scale : 1;
  matrix->values_.reset(new (std::nothrow) std::byte[sizes.values]);
  matrix->scales_.reset(new (std::nothrow) std::byte[sizes.scales]);
  if (!matrix->values_ || !matrix->scales_) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("out of memory for a matrix of {} x {} ({} bytes)", host.rows,
                             host.columns, sizes.values + sizes.scales)};
  }
  std::memcpy(matrix->values_.get(), host.values, sizes.values);
  if (scaled) std::memcpy(matrix->scales_.get(), host.scales, sizes.scales);
  return matrix;
}

const float* Matrix::row_times_divisor(int64_t row, float* scratch) const {
  CHECK(row >= 0 && row < rows_);
  switch (format_) {
    case Format::kBFloat16:
      decode_bfloat16(values_.get() + row * columns_ * 2, columns_, scratch);
      return scratch;
    case Format::kFloat32:
      return reinterpret_cast<const float*>(values_.get()) + row * columns_;
    case Format::kFP8: {
      const int64_t first_scale = row / kFP8Block * ceil_divide(columns_, kFP8Block);
      decode_fp8(values_.get() + row * columns_,
                 reinterpret_cast<const float*>(scales_.get()) + first_scale, columns_, scratch);
      return scratch;
    }
    case Format::kNVFP4:
      decode_nvfp4(values_.get() + row * columns_ / 2, scales_.get() + row * columns_ / kNVFP4Group,
                   columns_, scratch);
      return scratch;
  }
  CHECK(false);
}

void Matrix::read_row(int64_t row, float* out) const {
  const float* weights = row_times_divisor(row, out);
  for (int64_t c = 0; c < columns_; ++c) out[c] = weights[c] / divisor_;
}

const Matrix& as_matrix(const PackedWeight* weight) {
  const auto* matrix = dynamic_cast<const Matrix*>(weight);
  CHECK(matrix != nullptr);
  return *matrix;
}

Product make_product(const PackedWeight* weight, int64_t n, int64_t k, int64_t rows, const float* x,
                     float* y) {
  const Matrix& matrix = as_matrix(weight);
  CHECK(matrix.rows() == n && matrix.columns() == k);
  return {.matrix = &matrix, .rows = rows, .x = x, .y = y};
}

void multiply(Workers& workers, std::span<const Product> products) {
  struct Block {
    const Product* product;
    int64_t begin;
  };
  std::vector<Block> blocks;
  for (const Product& product : products) {
    if (product.rows == 0) continue;
    for (int64_t n = 0; n < product.matrix->rows(); n += kBlockRows)
      blocks.push_back({&product, n});
  }
  workers.for_each(static_cast<int64_t>(blocks.size()), [&](int64_t i, Buffer& scratch) {
    const Block& block = blocks[i];
    const int64_t end = std::min(block.begin + kBlockRows, block.product->matrix->rows());
    multiply_block(*block.product, block.begin, end, scratch);
  });
}

}  // namespace lagoon::kernels::ref
