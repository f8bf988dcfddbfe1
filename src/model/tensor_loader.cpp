#include "model/tensor_loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "numeric/dtype.h"

namespace lagoon::model {
namespace {

using checkpoint::ModelDir;
using checkpoint::Piece;
using checkpoint::Storage;
using checkpoint::Tensor;
using checkpoint::WeightReader;
using kernels::Format;
using kernels::HostMatrix;
using kernels::Weight;
using numeric::DType;
using Bytes = std::span<const std::byte>;

Error tensor_error(const Tensor& tensor, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: tensor {} {}", tensor.file->path(), tensor.info->name, what)};
}

HostMatrix plain_matrix(const Tensor& tensor, Bytes bytes, int64_t rows, int64_t columns) {
  return {.format = tensor.info->dtype == DType::kF32 ? Format::kFloat32 : Format::kBFloat16,
          .rows = rows,
          .columns = columns,
          .values = bytes.data()};
}

// e4m3fn has two NaN codes, 0x7f and 0xff.
bool has_e4m3_nan(Bytes codes) {
  bool found = false;  // without a branch, in vectors: there is none
  for (const std::byte code : codes) found |= (code & std::byte{0x7f}) == std::byte{0x7f};
  return found;
}

// The elements of a BF16 or F32 tensor; its bytes need not be aligned.
std::vector<float> to_floats(const Tensor& tensor, Bytes bytes) {
  std::vector<float> values(static_cast<size_t>(tensor.info->elements()));
  if (tensor.info->dtype == DType::kF32) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    numeric::BFloat16 x;
    std::memcpy(&x.bits, bytes.data() + i * sizeof x.bits, sizeof x.bits);
    values[i] = numeric::to_float(x);
  }
  return values;
}

// The values of a scale tensor, if they are good.
Result<std::vector<float>> scale_values(const Tensor& tensor, ScaleRule rule, Bytes bytes) {
  std::vector<float> values = to_floats(tensor, bytes);
  const auto good = [rule](float x) {
    return std::isfinite(x) && (rule == ScaleRule::kFinite || x > 0);
  };
  const auto bad = std::ranges::find_if_not(values, good);
  if (bad == values.end()) return values;
  switch (rule) {
    case ScaleRule::kPositive:
      return tensor_error(
          tensor,
          fmt::format("is {}; a scale is positive and finite, so the file is damaged", *bad));
    case ScaleRule::kDivisor:
      return tensor_error(tensor, fmt::format("is {}; a global scale is a divisor, positive and "
                                              "finite, so the file is damaged",
                                              *bad));
    case ScaleRule::kFinite:
      break;
  }
  return tensor_error(tensor, "holds a block scale that is not finite, so the file is damaged");
}

}  // namespace

Result<void> check_scales(const ModelDir& dir, const WeightReader& reader,
                          std::span<const ScaleTensor> scales) {
  for (const ScaleTensor& scale : scales) {
    const auto tensor = dir.find(scale.name);
    CHECK(tensor.has_value());
    const auto bytes = reader.small(piece_of(*tensor));
    if (bytes) LAGOON_RETURN_IF_ERROR(scale_values(*tensor, scale.rule, *bytes));
  }
  return {};
}

// The CHECKs hold because ModelDir::check() found every tensor of the list.

Result<Weight> TensorLoader::prepare(const Tensor& tensor, const HostMatrix& matrix) {
  Result<Weight> weight = backend_.prepare(matrix);
  if (weight.ok()) return weight;
  const ErrorCode code = weight.error().code;
  // Else it is no fault of the tensor: memory has ended, say.
  if (code != ErrorCode::kInvalidArgument && code != ErrorCode::kUnsupported) return weight;
  return Error{code, fmt::format("{}: tensor {}: {}", tensor.file->path(), tensor.info->name,
                                 weight.error().message)};
}

Result<Weight> TensorLoader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  const auto tensor = dir_.find(name);
  CHECK(tensor.has_value());
  LAGOON_ASSIGN(const auto bytes, reader_.take({piece_of(*tensor)}));
  return prepare(*tensor, plain_matrix(*tensor, bytes[0], rows, columns));
}

Result<Weight> TensorLoader::vector(const std::string& name, int64_t length) {
  return matrix(name, 1, length);
}

Result<Weight> TensorLoader::float_vector(const std::string& name, int64_t length) {
  return matrix(name, 1, length);
}

Result<std::vector<Weight>> TensorLoader::stacked(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const int64_t> rows) {
  const auto tensor = dir_.find(name);
  CHECK(tensor.has_value());
  std::vector<Weight> parts;
  int64_t first = 0;
  for (const int64_t part_rows : rows) {
    LAGOON_ASSIGN(const auto bytes,
                  reader_.take({rows_of(*tensor, first, part_rows, shape.back())}));
    LAGOON_ASSIGN(Weight weight,
                  prepare(*tensor, plain_matrix(*tensor, bytes[0], part_rows, shape.back())));
    parts.push_back(std::move(weight));
    first += part_rows;
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
  LAGOON_ASSIGN(const auto bytes, reader_.take({piece_of(*tensor)}));
  LAGOON_ASSIGN(const auto values, scale_values(*tensor, ScaleRule::kPositive, bytes[0]));
  return values[0];
}

Result<Weight> TensorLoader::nvfp4(const std::string& name, int64_t rows, int64_t columns) {
  const auto packed = dir_.find(name + ".weight_packed");
  const auto scales = dir_.find(name + ".weight_scale");
  const auto global = dir_.find(name + ".weight_global_scale");
  CHECK(packed && scales && global);
  LAGOON_ASSIGN(const auto bytes,
                reader_.take({piece_of(*packed), piece_of(*scales), piece_of(*global)}));
  LAGOON_ASSIGN(const auto global_scale, scale_values(*global, ScaleRule::kDivisor, bytes[2]));
  if (has_e4m3_nan(bytes[1])) {
    return tensor_error(*scales, "holds a NaN block scale, so the file is damaged");
  }
  return prepare(*packed, {.format = Format::kNVFP4,
                           .rows = rows,
                           .columns = columns,
                           .values = bytes[0].data(),
                           .scales = bytes[1].data(),
                           .global_scale = global_scale[0]});
}

Result<Weight> TensorLoader::fp8(const std::string& name, int64_t rows, int64_t columns) {
  const auto codes = dir_.find(name + ".weight");
  const auto scales = dir_.find(name + ".weight_scale");
  CHECK(codes && scales);
  LAGOON_ASSIGN(const auto bytes, reader_.take({piece_of(*codes), piece_of(*scales)}));
  if (has_e4m3_nan(bytes[0])) return tensor_error(*codes, "holds a NaN, so the file is damaged");
  LAGOON_ASSIGN(const auto block_scales, scale_values(*scales, ScaleRule::kFinite, bytes[1]));
  return prepare(*codes, {.format = Format::kFP8,
                          .rows = rows,
                          .columns = columns,
                          .values = bytes[0].data(),
                          .scales = reinterpret_cast<const std::byte*>(block_scales.data())});
}

}  // namespace lagoon::model
