#include "kernels/cuda/matrix.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int64_t kStagingBytes = int64_t{32} << 20;
constexpr int64_t kNVFP4Group = 16;

Error no_memory(const Device& device, const HostMatrix& host, int64_t bytes) {
  return {
      ErrorCode::kResourceExhausted,
      fmt::format("{} has too little memory: {} MiB are free, a matrix of {} x {} needs {} MiB, "
                  "and {} MiB of weights are there already; use a smaller model, or --backend "
                  "cpu",
                  device.name(), device.free_bytes() >> 20, host.rows, host.columns,
                  (bytes >> 20) + 1, device.weights.bytes() >> 20)};
}

Error refused(const HostMatrix& host, const char* kind, const std::string& why) {
  return {ErrorCode::kInvalidArgument, fmt::format("an {} matrix of {} x {} cannot be used: {}",
                                                   kind, host.rows, host.columns, why)};
}

Result<void> check_nvfp4(const HostMatrix& host) {
  if (host.columns % kNVFP4Group != 0) {
    return refused(host, "NVFP4", "its columns must be a multiple of 16");
  }
  if (host.global_scale == 0 || !std::isfinite(host.global_scale)) {
    return refused(host, "NVFP4", fmt::format("its global scale is {}", host.global_scale));
  }
  const int64_t count = host.rows * host.columns / kNVFP4Group;
  for (int64_t i = 0; i < count; ++i) {
    const auto scale = static_cast<uint8_t>(host.scales[i]);
    if (scale > 0x80 || scale == 0x7f) {
      return refused(host, "NVFP4", "a scale of its groups is negative or not a number");
    }
  }
  return {};
}

// Bytes of a row in the checkpoint.
int64_t row_bytes(const HostMatrix& host) {
  if (host.format == Format::kBFloat16) return host.columns * 2;
  return host.format == Format::kFP8 ? host.columns : host.columns / 2;
}

Packing packing_of(Format format) {
  return format == Format::kBFloat16 ? Packing::kBFloat16
         : format == Format::kFP8    ? Packing::kFP8
                                     : Packing::kNVFP4;
}

void copy_in(Device& device, void* to, const void* from, int64_t bytes) {
  device.check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                               device.stream()),
               "a copy of weights");
}

// The raw rows pass through a piece of scratch, as many at a time as it holds. Those of the host
// are not needed any more when this returns.
template <typename Bring>
Result<void> pack_rows(Device& device, const HostMatrix& host, const MatrixView& view,
                       uint8_t* packed, uint8_t* packed_scales, const Bring& bring) {
  const int64_t bytes = row_bytes(host);
  const int64_t scale_bytes = host.format == Format::kNVFP4 ? host.columns / kNVFP4Group : 0;
  const int64_t most =
      std::max<int64_t>(1, kStagingBytes / (bytes + scale_bytes) / kTileRows) * kTileRows;
  const int64_t at_once = std::min(most, tiles_of(host.rows) * kTileRows);
  const auto cut = [&](Cutter cutter) {
    auto* flag = cutter.take<int32_t>(1);
    auto* values = cutter.take<uint8_t>(at_once * bytes);
    auto* scales = cutter.take<uint8_t>(at_once * scale_bytes);
    return std::tuple(flag, values, scales, cutter.used());
  };
  uint8_t* memory = device.scratch.take_whole(std::get<3>(cut(Cutter())));
  if (memory == nullptr) return no_memory(device, host, at_once * bytes);
  const auto [flag, values, scales, used] = cut(Cutter(memory));
  device.check(cudaMemsetAsync(flag, 0, sizeof(int32_t), device.stream()), "clearing memory");
  for (int64_t first = 0; first < host.rows; first += at_once) {
    const int64_t rows = std::min(at_once, host.rows - first);
    bring(first, rows, values, scales);
    pack(device.stream(), values, scales, first, rows, view, packed, packed_scales, flag);
  }
  if (host.values == nullptr) return {};
  int32_t is_nan = 0;
  device.check(
      cudaMemcpyAsync(&is_nan, flag, sizeof is_nan, cudaMemcpyDeviceToHost, device.stream()),
      "packing a matrix");
  device.wait();
  if (const Error* failure = device.failure()) return *failure;
  if (is_nan != 0) return refused(host, "FP8", "a value of it is not a number");
  return {};
}

}  // namespace

template <typename Bring>
Result<void> Matrix::fill(Device& device, const HostMatrix& host, const Bring& bring) {
  MatrixView view;
  view.packing = packing_of(host.format);
  view.rows = static_cast<int32_t>(host.rows);
  view.columns = static_cast<int32_t>(host.columns);
  if (host.format == Format::kNVFP4) view.divisor = host.global_scale;
  const int64_t units = units_of(host.columns);
  const int64_t bytes = packed_bytes(view.packing, host.rows, host.columns);
  const int64_t scale_bytes =
      host.format == Format::kNVFP4 ? tiles_of(host.rows) * units * kUnitScaleBytes
      : host.format == Format::kFP8 ? ceil_divide(host.rows, 128) * units * 4
                                    : 0;
  uint8_t* packed = device.weights.take(bytes);
  uint8_t* packed_scales = packed == nullptr ? nullptr : device.weights.take(scale_bytes);
  if (packed_scales == nullptr) return no_memory(device, host, bytes + scale_bytes);
  if (host.format == Format::kFP8) copy_in(device, packed_scales, host.scales, scale_bytes);
  LAGOON_RETURN_IF_ERROR(pack_rows(device, host, view, packed, packed_scales, bring));
  view.values = packed;
  view.scales = packed_scales;
  view_ = view;
  return {};
}

Result<std::unique_ptr<Matrix>> Matrix::pack(Device& device, const HostMatrix& host) {
  CHECK(host.rows > 0 && host.columns > 0 && host.values != nullptr);
  const bool scaled = host.format == Format::kFP8 || host.format == Format::kNVFP4;
  CHECK(scaled == (host.scales != nullptr));
  if (host.format == Format::kNVFP4) LAGOON_RETURN_IF_ERROR(check_nvfp4(host));
  if (host.format == Format::kFloat32 && host.rows > 1) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("an FP32 matrix of {} x {} cannot be used on a GPU: convert it to BF16, "
                    "or use --backend cpu",
                    host.rows, host.columns)};
  }
  std::unique_ptr<Matrix> matrix(new Matrix);
  matrix->rows_ = host.rows;
  matrix->columns_ = host.columns;
  if (host.rows == 1 && !scaled) {
    std::vector<float> values(static_cast<size_t>(host.columns));
    for (int64_t i = 0; i < host.columns; ++i) {
      if (host.format == Format::kFloat32) {
        std::memcpy(&values[i], host.values + i * 4, sizeof(float));
      } else {
        numeric::BFloat16 value;
        std::memcpy(&value.bits, host.values + i * 2, sizeof value.bits);
        values[i] = numeric::to_float(value);
      }
    }
    uint8_t* vector = device.weights.take(host.columns * 4);
    if (vector == nullptr) return no_memory(device, host, host.columns * 4);
    copy_in(device, vector, values.data(), host.columns * 4);
    device.wait();
    if (const Error* failure = device.failure()) return *failure;
    matrix->vector_ = reinterpret_cast<const float*>(vector);
  }
  if (host.format == Format::kFloat32) return matrix;

  const int64_t bytes = row_bytes(host);
  const int64_t scale_bytes = host.format == Format::kNVFP4 ? host.columns / kNVFP4Group : 0;
  LAGOON_RETURN_IF_ERROR(matrix->fill(
      device, host, [&](int64_t first, int64_t rows, uint8_t* values, uint8_t* scales) {
        copy_in(device, values, host.values + first * bytes, rows * bytes);
        if (scale_bytes == 0) return;
        copy_in(device, scales, host.scales + first * scale_bytes, rows * scale_bytes);
      }));
  return matrix;
}

Result<std::unique_ptr<Matrix>> Matrix::make(Device& device, const RandomMatrix& random) {
  CHECK(random.rows > 0 && random.columns > 0);
  if (random.format != Format::kBFloat16 && random.format != Format::kNVFP4) {
    return std::unique_ptr<Matrix>();
  }
  const HostMatrix shape{
      .format = random.format,
      .rows = random.rows,
      .columns = random.columns,
      .global_scale = random.format == Format::kNVFP4 ? random.scale : 1,
  };
  const RandomView view{.packing = packing_of(random.format),
                        .columns = random.columns,
                        .values = random.values,
                        .scales = random.scales,
                        .scale = random.scale};
  std::unique_ptr<Matrix> matrix(new Matrix);
  matrix->rows_ = shape.rows;
  matrix->columns_ = shape.columns;
  LAGOON_RETURN_IF_ERROR(matrix->fill(
      device, shape, [&](int64_t first, int64_t rows, uint8_t* values, uint8_t* scales) {
        make_random(device.stream(), view, random.first_row + first, rows, values, scales);
      }));
  return matrix;
}

const MatrixView& Matrix::view() const {
  CHECK(view_.values != nullptr);
  return view_;
}

const float* Matrix::vector() const {
  CHECK(vector_ != nullptr);
  return vector_;
}

const Matrix& as_matrix(const PackedWeight* weight) {
  const auto* matrix = dynamic_cast<const Matrix*>(weight);
  CHECK(matrix != nullptr);
  return *matrix;
}

const MatrixView& view_of(const PackedWeight* weight, int64_t rows, int64_t columns) {
  const Matrix& matrix = as_matrix(weight);
  CHECK(matrix.rows() == rows && matrix.columns() == columns);
  return matrix.view();
}

const float* vector_of(const Weight& weight, int64_t columns) {
  const Matrix& matrix = as_matrix(weight.get());
  CHECK(matrix.rows() == 1 && matrix.columns() == columns);
  return matrix.vector();
}

}  // namespace lagoon::kernels::cuda
