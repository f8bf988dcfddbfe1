#include "model/tensor_source.h"

#include <fmt/core.h>

#include <utility>

#include "numeric/dtype.h"

namespace lagoon::model {
namespace {

using checkpoint::Piece;
using checkpoint::Pieces;
using checkpoint::Storage;
using checkpoint::Tensor;
using kernels::Weight;
using numeric::DType;

const std::vector<DType> kPlainTypes = {DType::kBF16, DType::kF32};

Error tensor_error(const Tensor& tensor, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: tensor {} {}", tensor.file->path(), tensor.info->name, what)};
}

}  // namespace

Storage DirectorySource::storage(const std::string& name) const {
  if (dir_.find(name + ".weight_packed")) return Storage::kNVFP4;
  const auto weight = dir_.find(name + ".weight");
  if (weight && weight->info->dtype == DType::kF8E4M3) return Storage::kFP8;
  return Storage::kPlain;
}

Piece rows_of(const Tensor& tensor, int64_t first_row, int64_t rows, int64_t columns) {
  const uint64_t row = static_cast<uint64_t>(columns) * numeric::dtype_size(tensor.info->dtype);
  return {tensor.file, tensor.info->offset + static_cast<uint64_t>(first_row) * row,
          static_cast<uint64_t>(rows) * row};
}

// ---- TensorList

void TensorList::read(std::initializer_list<std::string> names) {
  Pieces pieces;
  for (const std::string& name : names)
    if (const auto tensor = dir_.find(name)) pieces.push_back(piece_of(*tensor));
  if (!pieces.empty()) order_.push_back(std::move(pieces));
}

Result<Weight> TensorList::matrix(const std::string& name, int64_t rows, int64_t columns) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {rows, columns}});
  read({name});
  return Weight();
}

Result<Weight> TensorList::vector(const std::string& name, int64_t length) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {length}});
  read({name});
  return Weight();
}

Result<Weight> TensorList::float_vector(const std::string& name, int64_t length) {
  expected_.push_back({.name = name, .dtypes = {DType::kF32}, .shape = {length}});
  read({name});
  return Weight();
}

Result<std::vector<Weight>> TensorList::stacked(const std::string& name,
                                                const std::vector<int64_t>& shape,
                                                std::span<const int64_t> rows) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = shape});
  const auto tensor = dir_.find(name);
  // Of another shape it has no such parts; ModelDir::check() will say so.
  if (tensor && tensor->info->shape == shape) {
    int64_t first = 0;
    for (const int64_t part : rows) {
      order_.push_back({rows_of(*tensor, first, part, shape.back())});
      first += part;
    }
  }
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
      scales_.push_back({name + ".weight_global_scale", ScaleRule::kDivisor});
      read({name + ".weight_packed", name + ".weight_scale", name + ".weight_global_scale"});
      return Weight();
    case Storage::kFP8:
      expected_.push_back(
          {.name = name + ".weight", .dtypes = {DType::kF8E4M3}, .shape = {rows, columns}});
      expected_.push_back({.name = name + ".weight_scale",
                           .dtypes = kPlainTypes,
                           .shape = {fp8_blocks(rows), fp8_blocks(columns)}});
      scales_.push_back({name + ".weight_scale", ScaleRule::kFinite});
      read({name + ".weight", name + ".weight_scale"});
      return Weight();
    case Storage::kPlain:
      break;
  }
  return matrix(name + ".weight", rows, columns);
}

Result<float> TensorList::scale(const std::string& name) {
  expected_.push_back({.name = name, .dtypes = kPlainTypes, .shape = {1}, .required = false});
  if (has(name)) scales_.push_back({name, ScaleRule::kPositive});
  read({name});
  return 1.0f;
}

}  // namespace lagoon::model
