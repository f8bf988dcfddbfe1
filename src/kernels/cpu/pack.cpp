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
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kChunk = 32 << 20;          // of memory that matrices share
constexpr int64_t kWorthSharing = 256 << 10;  // bytes that threads pack together
constexpr uint8_t kNaN = 0x7f;                // the magnitude of an e4m3 NaN

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

// Words of four bytes, `count` of each row of `row_bytes`: word i of output n goes to place 16 i +
// n. Sixteen at a time, so that of rows far apart a cache line each is read once.
void copy_words(const PanelCopy& copy, int64_t row_bytes, int64_t count) {
  constexpr int64_t kAtATime = 16;
  for (int64_t first = 0; first < count; first += kAtATime) {
    const int64_t end = std::min(first + kAtATime, count);
    for (int n = 0; n < copy.outputs; ++n) {
      const std::byte* row = copy.host.values + (copy.first + n) * row_bytes;
      for (int64_t i = first; i < end; ++i) {
        std::memcpy(copy.panel + (i * kPanelRows + n) * 4, row + i * 4, 4);
      }
    }
  }
}

void copy_floats(const PanelCopy& copy) {
  copy_words(copy, copy.host.columns * 4, copy.host.columns);
}

void copy_bfloat16(const PanelCopy& copy) {
  const int64_t columns = copy.host.columns;
  copy_words(copy, columns * 2, columns / 2);
  if (columns % 2 == 0) return;
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * columns * 2;
    std::memcpy(copy.panel + (columns / 2 * kPanelRows + n) * 4, row + (columns - 1) * 2, 2);
  }
}

// The bytes of columns 0 to 3, in this order from the lowest, of output `n` in a chunk.
void store_four(std::byte* chunk, int n, uint32_t bytes) {
  const auto low = static_cast<uint16_t>(bytes);
  const auto high = static_cast<uint16_t>(bytes >> 16);
  static_assert(chunk_byte(5, 1) == chunk_byte(5, 0) + 1 &&
                chunk_byte(5, 3) == chunk_byte(5, 2) + 1);
  std::memcpy(chunk + chunk_byte(n, 0), &low, sizeof low);
  std::memcpy(chunk + chunk_byte(n, 2), &high, sizeof high);
}

void copy_fp8(const PanelCopy& copy) {
  const int64_t columns = copy.host.columns;
  for (int n = 0; n < copy.outputs; ++n) {
    const std::byte* row = copy.host.values + (copy.first + n) * columns;
    int64_t k = 0;
    for (; k + 4 <= columns; k += 4) {
      uint32_t four = 0;
      std::memcpy(&four, row + k, sizeof four);
      store_four(copy.panel + k / 4 * 64, n, four);
    }
    for (; k < columns; ++k) {
      copy.panel[k / 4 * 64 + chunk_byte(n, static_cast<int>(k % 4))] = row[k];
    }
  }
}

// Four codes, the first in the lowest bits, in the lower halves of four bytes.
uint32_t spread(uint32_t codes) {
  return (codes & 0xfu) | (codes & 0xf0u) << 4 | (codes & 0xf00u) << 8 | (codes & 0xf000u) << 12;
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
      const uint32_t signs = (scale & 0x80u) != 0 ? 0x88888888u : 0;
      block[group * kPanelRows + n] = std::byte{scale_byte(scale)};
      std::byte* codes = block + scale_bytes(Format::kNVFP4, copy.block_columns(begin)) +
                         group * code_bytes(Format::kNVFP4, kGroupColumns);
      for (int k = 0; k < kGroupColumns; k += 8) {
        uint32_t eight = 0;
        std::memcpy(&eight, row + (first + k) / 2, sizeof eight);
        eight ^= signs;
        store_four(codes + int64_t{k} / 8 * 64, n,
                   spread(eight & 0xffffu) | spread(eight >> 16) << 4);
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
  uint8_t any = 0;  // without a branch, in vectors: there is none
  for (int64_t i = 0; i < n; ++i) {
    any |= static_cast<uint8_t>((static_cast<uint8_t>(bytes[i]) & kNaN) == kNaN);
  }
  if (any == 0) return -1;
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

// Aligned for the widest vectors, and in large pages where it fills some: a stream of small ones
// costs address translations.
std::shared_ptr<std::byte> allocate_alone(int64_t bytes) {
  const int64_t alignment = bytes >= kLargePage ? kLargePage : kVectorBytes;
  const int64_t size = round_up(bytes, alignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
  if (memory == nullptr) return nullptr;
  if (bytes >= kLargePage) madvise(memory, size, MADV_HUGEPAGE);
  return {memory, [](std::byte* at) { std::free(at); }};
}

}  // namespace

std::shared_ptr<std::byte> PanelMemory::allocate(int64_t bytes) {
  if (bytes >= kChunk) return allocate_alone(bytes);
  if (chunk_ == nullptr || used_ + bytes > kChunk) {
    chunk_ = allocate_alone(kChunk);
    used_ = 0;
    if (chunk_ == nullptr) return nullptr;
  }
  std::shared_ptr<std::byte> piece(chunk_, chunk_.get() + used_);
  used_ = round_up(used_ + bytes, kVectorBytes);
  return piece;
}

Result<Weight> pack(const HostMatrix& host, const PackWith& with) {
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
  const int64_t bytes = panels * matrix->panel_bytes_;
  matrix->data_ = with.memory != nullptr ? with.memory->allocate(bytes) : allocate_alone(bytes);
  if (host.format == Format::kFP8) {
    matrix->block_scales_.reset(new (std::nothrow) float[panels * blocks]);
  }
  if (!matrix->data_ || (host.format == Format::kFP8 && !matrix->block_scales_)) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("out of memory for a matrix of {} x {} ({} bytes)", host.rows,
                             host.columns, bytes)};
  }
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t first = panel * kPanelRows;
      std::byte* const to = matrix->data_.get() + panel * matrix->panel_bytes_;
      std::memset(to, 0, static_cast<size_t>(matrix->panel_bytes_));
      copy_panel({host, first, static_cast<int>(std::min(kPanelRows, host.rows - first)), to});
      if (host.format == Format::kFP8) {
        std::memcpy(matrix->block_scales_.get() + panel * blocks,
                    host.scales + first / kFP8Block * blocks * 4, blocks * 4);
      }
    }
  };
  if (with.pool != nullptr && bytes >= kWorthSharing) {
    with.pool->parallel_for(panels, copy);
  } else {
    copy(0, panels);
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
