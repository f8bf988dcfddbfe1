// Copies matrices into the layout of layout.h, and reads rows back.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/matrix.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kFP8Block = 128;       // rows and columns that share a scale
constexpr int64_t kLargePage = 2 << 20;  // bytes
constexpr uint8_t kNaN = 0x7f;           // the magnitude of an e4m3 NaN

// The position of output `n` and column `k` in a chunk of 4 columns (kFP8, kNVFP4).
constexpr int chunk_byte(int n, int k) {
  return 16 * (n / 4) + 8 * (k / 2) + 2 * (n % 4) + k % 2;
}

// The byte of layout.h for an e4m3 scale, which is not zero and whose sign does not count.
uint8_t scale_byte(uint8_t e4m3) {
  const uint32_t bits =
      std::bit_cast<uint32_t>(std::abs(numeric::e4m3_to_float(static_cast<uint8_t>(e4m3))));
  return static_cast<uint8_t>((bits - kScaleBits) >> 20);
}

// Rows [first, first + 16) of a matrix and where they go.
struct PanelCopy {
  const HostMatrix& host;
  int64_t first;
  int outputs;  // <= 16 rows that are there
  std::byte* panel;

  std::byte* block(int64_t column) const {
    return panel + column / kBlockColumns * block_bytes(host.format, kBlockColumns);
  }
  // Of the block that begins at `column`, padded.
  int64_t block_columns(int64_t column) const {
    return round_up(std::min(kBlockColumns, host.columns - column), kGroupColumns);
  }
};

void copy_floats(const PanelCopy& copy) {
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * copy.host.columns * 4;
    for (int64_t k = 0; k < copy.host.columns; ++k) {
      std::memcpy(copy.panel + (k * kPanelRows + n) * 4, row + k * 4, 4);
    }
  }
}

void copy_bfloat16(const PanelCopy& copy) {
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * copy.host.columns * 2;
    for (int64_t k = 0; k < copy.host.columns; ++k) {
      std::memcpy(copy.panel + (k / 2 * kPanelRows + n) * 4 + k % 2 * 2, row + k * 2, 2);
    }
  }
}

void copy_fp8(const PanelCopy& copy) {
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * copy.host.columns;
    for (int64_t k = 0; k < copy.host.columns; ++k) {
      copy.panel[k / 4 * 64 + chunk_byte(n, static_cast<int>(k % 4))] = row[k];
    }
  }
}

void copy_nvfp4(const PanelCopy& copy) {
  const int64_t columns = copy.host.columns;
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * columns / 2;
    const std::byte* scales = copy.host.scales + (copy.first + n) * columns / kGroupColumns;
    for (int64_t first = 0; first < columns; first += kGroupColumns) {
      const int64_t begin = first / kBlockColumns * kBlockColumns;
      const int64_t group = (first - begin) / kGroupColumns;
      std::byte* block = copy.block(begin);
      const auto scale = static_cast<uint8_t>(scales[first / kGroupColumns]);
      if ((scale & 0x7fu) == 0) continue;  // codes 0, and any scale
      const uint8_t signs = (scale & 0x80u) != 0 ? 0x88 : 0;
      block[group * kPanelRows + n] = std::byte{scale_byte(scale)};
      std::byte* codes = block + scale_bytes(Format::kNVFP4, copy.block_columns(begin)) +
                         group * code_bytes(Format::kNVFP4, kGroupColumns);
      for (int k = 0; k < kGroupColumns; k += 2) {
        const auto pair = static_cast<uint8_t>(static_cast<uint8_t>(row[(first + k) / 2]) ^ signs);
        std::byte* chunk = codes + int64_t{k} / 8 * 64;
        const int shift = k % 8 < 4 ? 0 : 4;
        chunk[chunk_byte(n, k % 4)] |= std::byte{static_cast<uint8_t>((pair & 15u) << shift)};
        chunk[chunk_byte(n, k % 4 + 1)] |= std::byte{static_cast<uint8_t>((pair >> 4) << shift)};
      }
    }
  }
}

void copy_panel(const PanelCopy& copy) {
  switch (copy.host.format) {
    case Format::kFloat32:
      return copy_floats(copy);
    case Format::kBFloat16:
      return copy_bfloat16(copy);
    case Format::kFP8:
      return copy_fp8(copy);
    case Format::kNVFP4:
      return copy_nvfp4(copy);
  }
}

// The first NaN among e4m3 bytes, or -1.
int64_t find_nan(const std::byte* bytes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if ((static_cast<uint8_t>(bytes[i]) & kNaN) == kNaN) return i;
  }
  return -1;
}

Result<void> check(const HostMatrix& host) {
  if (host.format == Format::kFP8) {
    const int64_t at = find_nan(host.values, host.rows * host.columns);
    if (at < 0) return {};
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("an FP8 matrix of {} x {} cannot be used: its weight at row {}, column "
                    "{} is NaN",
                    host.rows, host.columns, at / host.columns, at % host.columns)};
  }
  if (host.format != Format::kNVFP4) return {};
  if (host.columns % kGroupColumns != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("an NVFP4 matrix of {} x {} cannot be used: its columns must be a "
                             "multiple of {}",
                             host.rows, host.columns, kGroupColumns)};
  }
  if (host.global_scale == 0 || !std::isfinite(host.global_scale)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("an NVFP4 matrix of {} x {} cannot be used: its global scale is {}",
                             host.rows, host.columns, host.global_scale)};
  }
  const int64_t groups = host.columns / kGroupColumns;
  const int64_t at = find_nan(host.scales, host.rows * groups);
  if (at < 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("an NVFP4 matrix of {} x {} cannot be used: its scale at row {}, column "
                           "{} is NaN",
                           host.rows, host.columns, at / groups, at % groups * kGroupColumns)};
}

// Zeros, aligned for the widest vectors, and in large pages where they fill some: a stream of small
// ones costs address translations.
std::byte* allocate(int64_t bytes) {
  const int64_t alignment = bytes >= kLargePage ? kLargePage : 64;
  const int64_t size = round_up(bytes, alignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
  if (memory == nullptr) return nullptr;
  if (bytes >= kLargePage) madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 0, size);
  return memory;
}

}  // namespace

Result<Weight> pack(const HostMatrix& host) {
  CHECK(host.rows > 0 && host.columns > 0 && host.values != nullptr);
  const bool scaled = host.format == Format::kFP8 || host.format == Format::kNVFP4;
  CHECK(scaled == (host.scales != nullptr));
  LAGOON_RETURN_IF_ERROR(check(host));

  std::unique_ptr<Matrix> matrix(new Matrix);
  matrix->format_ = host.format;
  matrix->rows_ = host.rows;
  matrix->columns_ = host.columns;
  matrix->divisor_ = host.format == Format::kNVFP4 ? host.global_scale : 1;
  matrix->panel_bytes_ = panel_bytes(host.format, host.columns);
  const int64_t panels = matrix->panels();
  const int64_t blocks = (host.columns + kFP8Block - 1) / kFP8Block;
  matrix->data_.reset(allocate(panels * matrix->panel_bytes_));
  if (host.format == Format::kFP8) {
    matrix->block_scales_.reset(new (std::nothrow) float[panels * blocks]);
  }
  if (!matrix->data_ || (host.format == Format::kFP8 && !matrix->block_scales_)) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("out of memory for a matrix of {} x {} ({} bytes)", host.rows,
                             host.columns, panels * matrix->panel_bytes_)};
  }
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t first = panel * kPanelRows;
    copy_panel({host, first, static_cast<int>(std::min(kPanelRows, host.rows - first)),
                matrix->data_.get() + panel * matrix->panel_bytes_});
    if (host.format == Format::kFP8) {
      std::memcpy(matrix->block_scales_.get() + panel * blocks,
                  host.scales + first / kFP8Block * blocks * 4, blocks * 4);
    }
  }
  return Weight(std::move(matrix));
}

void Matrix::read_row(int64_t row, float* out) const {
  CHECK(row >= 0 && row < rows_);
  const int64_t panel = row / kPanelRows;
  const int n = static_cast<int>(row % kPanelRows);
  const std::byte* data = data_.get() + panel * panel_bytes_;
  for (int64_t k = 0; k < columns_; ++k) {
    switch (format_) {
      case Format::kFloat32:
        std::memcpy(out + k, data + (k * kPanelRows + n) * 4, 4);
        break;
      case Format::kBFloat16: {
        numeric::BFloat16 value;
        std::memcpy(&value, data + (k / 2 * kPanelRows + n) * 4 + k % 2 * 2, 2);
        out[k] = numeric::to_float(value);
        break;
      }
      case Format::kFP8: {
        const std::byte code = data[k / 4 * 64 + chunk_byte(n, static_cast<int>(k % 4))];
        const int64_t blocks = (columns_ + kFP8Block - 1) / kFP8Block;
        out[k] = numeric::e4m3_to_float(static_cast<uint8_t>(code)) *
                 block_scales_[panel * blocks + k / kFP8Block];
        break;
      }
      case Format::kNVFP4: {
        const int64_t first = k / kBlockColumns * kBlockColumns;
        const std::byte* block =
            data + first / kBlockColumns * block_bytes(Format::kNVFP4, kBlockColumns);
        const int64_t width = round_up(std::min(kBlockColumns, columns_ - first), kGroupColumns);
        const auto scale =
            static_cast<uint32_t>(block[(k - first) / kGroupColumns * kPanelRows + n]);
        const std::byte* chunk = block + scale_bytes(Format::kNVFP4, width) + (k - first) / 8 * 64;
        const auto codes = static_cast<uint8_t>(chunk[chunk_byte(n, static_cast<int>(k % 4))]);
        const auto code = static_cast<uint8_t>(k % 8 < 4 ? codes & 15u : codes >> 4);
        out[k] = numeric::e2m1_to_float(code) * std::bit_cast<float>((scale << 20) + kScaleBits) /
                 divisor_;
        break;
      }
    }
  }
}

}  // namespace lagoon::kernels::cpu
