#include "model/tensor_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "numeric/dtype.h"

namespace lagoon::model {
namespace {

using checkpoint::Storage;
using checkpoint::Tensor;
using kernels::Format;
using kernels::HostMatrix;
using kernels::Weight;
using numeric::DType;

const std::vector<DType> kPlainTypes = {DType::kBF16, DType::kF32};

Error tensor_error(const Tensor& tensor, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: tensor {} {}", tensor.file->path(), tensor.info->name, what)};
}

HostMatrix plain_matrix(const Tensor& tensor, int64_t rows, int64_t columns) {
  return {.format = tensor.info->dtype == DType::kF32 ? Format::kFloat32 : Format::kBFloat16,
          .rows = rows,
          .columns = columns,
          .values = tensor.bytes.data()};
}

// e4m3fn has two NaN codes, 0x7f and 0xff.
bool has_e4m3_nan(std::span<const std::byte> codes) {
  return std::ranges::any_of(
      codes, [](std::byte code) { return (code & std::byte{0x7f}) == std::byte{0x7f}; });
}

// The elements of a BF16 or F32 tensor; its bytes need not be aligned.
std::vector<float> to_floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.info->elements()));
  if (tensor.info->dtype == DType::kF32) {
    std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    numeric::BFloat16 x;
    std::memcpy(&x.bits, tensor.bytes.data() + i * sizeof x.bits, sizeof x.bits);
    values[i] = numeric::to_float(x);
  }
  return values;
}

}  // namespace

Storage DirectorySource::storage(const std::string& name) const {
  if (dir_.find(name + ".weight_packed")) return Storage::kNVFP4;
  const auto weight = dir_.find(name + ".weight");
  if (weight && weight->info->dtype == DType::kF8E4M3) return Storage::kFP8;
  return Storage::kPlain;
}

// ---- TensorList

Result<Weight> TensorList::matrix(const std::string& name, int64_t rows, int64_t columns) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {rows, columns}});
  return Weight();
}

Result<Weight> TensorList::vector(const std::string& name, int64_t length) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {length}});
  return Weight();
}

Result<Weight> TensorList::float_vector(const std::string& name, int64_t length) {
  expected_.push_back({.name = name, .dtypes = {DType::kF32}, .shape = {length}});
  return Weight();
}

Result<std::vector<Weight>> TensorList::stacked(const std::string& name,
                                                std::span<const int64_t> rows, int64_t columns) {
  int64_t all_rows = 0;
  for (const int64_t part : rows) all_rows += part;
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {all_rows, columns}});
  return std::vector<Weight>(rows.size());
}

Result<Weight> TensorList::expert(const std::string& name, int64_t rows, int64_t columns) {
  switch (storage(name)) {
    case Storage::kNVFP4:
      if (columns % kNVFP4Group != 0) {
        return tensor_error(*dir_.find(name + ".weight_packed"),
                            fmt::format("cannot be NVFP4: its {} columns are no multiple of {}",
                                        columns, kNVFP4Group));
      }
      expected_.push_back(
          {.name = name + ".weight_packed", .dtypes = {DType::kU8}, .shape = {rows, columns / 2}});
      expected_.push_back({.name = name + ".weight_scale",
                           .dtypes = {DType::kF8E4M3},
                           .shape = {rows, columns / kNVFP4Group}});
      expected_.push_back(
          {.name = name + ".weight_global_scale", .dtypes = {DType::kF32}, .shape = {1}});
      expected_.push_back({.name = name + ".input_global_scale",
                           .dtypes = {DType::kF32},
                           .shape = {1},
                           .required = false});
      return Weight();
    case Storage::kFP8:
      expected_.push_back(
          {.name = name + ".weight", .dtypes = {DType::kF8E4M3}, .shape = {rows, columns}});
      expected_.push_back({.name = name + ".weight_scale",
                           .dtypes = kPlainTypes,
                           .shape = {fp8_blocks(rows), fp8_blocks(columns)}});
      return Weight();
    case Storage::kPlain:
      break;
  }
  return matrix(name + ".weight", rows, columns);
}

Result<float> TensorList::scale(const std::string& name) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {1}, .required = false});
  return 1.0f;
}

// ---- TensorLoader. The CHECKs hold because ModelDir::check() found every tensor of the list.

Result<Weight> TensorLoader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  const auto tensor = dir_.find(name);
  CHECK(tensor.has_value());
  return backend_.prepare(plain_matrix(*tensor, rows, columns));
}

Result<Weight> TensorLoader::vector(const std::string& name, int64_t length) {
  return matrix(name, 1, length);
}

Result<Weight> TensorLoader::float_vector(const std::string& name, int64_t length) {
  return matrix(name, 1, length);
}

Result<std::vector<Weight>> TensorLoader::stacked(const std::string& name,
                                                  std::span<const int64_t> rows, int64_t columns) {
  const auto tensor = dir_.find(name);
  CHECK(tensor.has_value());
  std::vector<Weight> parts;
  HostMatrix part = plain_matrix(*tensor, 0, columns);
  const auto element = static_cast<int64_t>(numeric::dtype_size(tensor->info->dtype));
  for (const int64_t part_rows : rows) {
    part.rows = part_rows;
    LAGOON_ASSIGN(Weight weight, backend_.prepare(part));
    parts.push_back(std::move(weight));
    part.values += part_rows * columns * element;
  }
  return parts;
}

Result<Weight> TensorLoader::expert(const std::string& name, int64_t rows, int64_t columns) {
  switch (storage(name)) {
    case Storage::kNVFP4:
      return nvfp4(name, rows, columns);
    case Storage::kFP8:
      return fp8(name, rows, columns);
    case Storage::kPlain:
      break;
  }
  return matrix(name + ".weight", rows, columns);
}

Result<float> TensorLoader::scale(const std::string& name) {
  const auto tensor = dir_.find(name);
  if (!tensor) return 1.0f;
  const float scale = to_floats(*tensor)[0];
  if (!std::isfinite(scale) || scale <= 0) {
    return tensor_error(*tensor, fmt::format("is {}; a scale is positive and finite, so the file "
                                             "is damaged",
                                             scale));
  }
  return scale;
}

Result<Weight> TensorLoader::nvfp4(const std::string& name, int64_t rows, int64_t columns) {
  const auto packed = dir_.find(name + ".weight_packed");
  const auto scales = dir_.find(name + ".weight_scale");
  const auto global = dir_.find(name + ".weight_global_scale");
  CHECK(packed && scales && global);
  const float global_scale = to_floats(*global)[0];
  if (!std::isfinite(global_scale) || global_scale <= 0) {
    return tensor_error(*global, fmt::format("is {}; a global scale is a divisor, positive and "
                                             "finite, so the file is damaged",
                                             global_scale));
  }
  if (has_e4m3_nan(scales->bytes)) {
    return tensor_error(*scales, "holds a NaN block scale, so the file is damaged");
  }
  return backend_.prepare({.format = Format::kNVFP4,
                           .rows = rows,
                           .columns = columns,
                           .values = packed->bytes.data(),
                           .scales = scales->bytes.data(),
                           .global_scale = global_scale});
}

Result<Weight> TensorLoader::fp8(const std::string& name, int64_t rows, int64_t columns) {
  const auto codes = dir_.find(name + ".weight");
  const auto scales = dir_.find(name + ".weight_scale");
  CHECK(codes && scales);
  if (has_e4m3_nan(codes->bytes)) {
    return tensor_error(*codes, "holds a NaN, so the file is damaged");
  }
  const std::vector<float> block_scales = to_floats(*scales);
  if (!std::ranges::all_of(block_scales, [](float s) { return std::isfinite(s); })) {
    return tensor_error(*scales, "holds a block scale that is not finite, so the file is damaged");
  }
  return backend_.prepare({.format = Format::kFP8,
                           .rows = rows,
                           .columns = columns,
                           .values = codes->bytes.data(),
                           .scales = reinterpret_cast<const std::byte*>(block_scales.data())});
}

}  // namespace lagoon::model
