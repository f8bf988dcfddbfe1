#include "model/random_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace lagoon::model {
namespace {

using checkpoint::Storage;
using kernels::Format;
using kernels::HostMatrix;
using kernels::Weight;
using numeric::DType;
using Kind = RandomTensor::Kind;

// silu(g) * u of independent N(0, 1) has this root mean square; a down projection makes up for it.
constexpr double kSwiGluSize = 0.596;
// Logits of about N(0, 2^2): neither flat nor decided.
constexpr double kLogitSize = 2;
// Scores of attention: q and k are unit vectors times their norms' weights.
constexpr float kScoreNorm = 1.5F;
// Root mean squares of the codes that fill_random() makes.
constexpr double kE2M1Size = 2.472;
constexpr double kBlockScaleSize = 209.7;
constexpr double kE4M3Size = 64;
// Of the largest activation: 6 * 448 / 8, a divisor as NVFP4 has it.
constexpr float kInputGlobalScale = 336;
// Keys and values reach a few units; 448 codes of 1/64 reach 7.
constexpr float kCacheScale = 1.0F / 64;

constexpr std::string_view kWeight = ".weight";

std::string module_of(const std::string& tensor) {
  CHECK(tensor.ends_with(kWeight));
  return tensor.substr(0, tensor.size() - kWeight.size());
}

// The size of what a linear layer gives for inputs of size 1.
double gain(std::string_view module, const RandomModel& model) {
  if (module.ends_with("o_proj")) return model.attention_gain;
  if (module.ends_with("down_proj")) return 1 / kSwiGluSize;
  if (module.ends_with("lm_head")) return kLogitSize;
  return 1;
}

float weight_size(std::string_view module, int64_t columns, const RandomModel& model) {
  if (module.ends_with("embed_tokens")) return 1;
  return static_cast<float>(gain(module, model) / std::sqrt(static_cast<double>(columns)));
}

std::string_view storage_name(Storage storage) {
  return storage == Storage::kNVFP4 ? "NVFP4" : "FP8";
}

}  // namespace

// ---- RandomSource

bool RandomSource::has(const std::string& name) const {
  return model_.fused_qkv && name.ends_with("qkv_proj.weight");
}

Result<Weight> RandomSource::matrix(const std::string& name, int64_t rows, int64_t columns) {
  const std::string module = module_of(name);
  const bool linear = !module.ends_with("embed_tokens");
  if (const Storage storage = scheme_.storage(module); linear && storage != Storage::kPlain) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("quantization_config stores {} as {}; Lagoon reads only routed "
                             "experts so: name the module under `ignore`",
                             module, storage_name(storage))};
  }
  tensors_.push_back({.name = name,
                      .dtype = DType::kBF16,
                      .shape = {rows, columns},
                      .kind = Kind::kNormal,
                      .scale = weight_size(module, columns, model_)});
  return Weight();
}

Result<Weight> RandomSource::vector(const std::string& name, int64_t length) {
  const bool score = name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight");
  tensors_.push_back({.name = name,
                      .dtype = DType::kBF16,
                      .shape = {length},
                      .kind = Kind::kAroundScale,
                      .scale = score ? kScoreNorm : 1});
  return Weight();
}

Result<Weight> RandomSource::float_vector(const std::string& name, int64_t length) {
  tensors_.push_back({.name = name,
                      .dtype = DType::kF32,
                      .shape = {length},
                      .kind = Kind::kNormal,
                      .scale = model_.router_bias});
  return Weight();
}

Result<std::vector<Weight>> RandomSource::stacked(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const int64_t> rows) {
  const int64_t all_rows = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  LAGOON_RETURN_IF_ERROR(RandomSource::matrix(name, all_rows, shape.back()));
  return std::vector<Weight>(rows.size());
}

Result<Weight> RandomSource::expert(const std::string& name, int64_t rows, int64_t columns) {
  const double size = weight_size(name, columns, model_);
  switch (scheme_.storage(name)) {
    case Storage::kNVFP4:
      if (columns % kNVFP4Group != 0) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("quantization_config stores {} as NVFP4, but its {} columns are "
                                 "no multiple of {}",
                                 name, columns, kNVFP4Group)};
      }
      tensors_.push_back({name + ".weight_packed", DType::kU8, {rows, columns / 2}, Kind::kE2M1});
      tensors_.push_back({name + ".weight_scale",
                          DType::kF8E4M3,
                          {rows, columns / kNVFP4Group},
                          Kind::kBlockScale});
      tensors_.push_back({name + ".weight_global_scale",
                          DType::kF32,
                          {},
                          Kind::kConstant,
                          static_cast<float>(kE2M1Size * kBlockScaleSize / size)});
      tensors_.push_back(
          {name + ".input_global_scale", DType::kF32, {}, Kind::kConstant, kInputGlobalScale});
      return Weight();
    case Storage::kFP8:
      tensors_.push_back({name + ".weight", DType::kF8E4M3, {rows, columns}, Kind::kE4M3});
      tensors_.push_back({name + ".weight_scale",
                          DType::kBF16,
                          {fp8_blocks(rows), fp8_blocks(columns)},
                          Kind::kAroundScale,
                          static_cast<float>(size / kE4M3Size)});
      return Weight();
    case Storage::kPlain:
      break;
  }
  return RandomSource::matrix(name + ".weight", rows, columns);
}

Result<float> RandomSource::scale(const std::string& name) {
  if (!scheme_.has_cache_scales()) return 1.0f;
  tensors_.push_back({name, DType::kBF16, {1}, Kind::kConstant, kCacheScale});
  return kCacheScale;
}

// ---- RandomLoader

std::vector<std::byte> RandomLoader::make(size_t i) const {
  std::vector<std::byte> bytes(tensors_[i].bytes());
  fill_random(tensors_[i], seed_, 0, bytes);
  return bytes;
}

std::optional<kernels::RandomMatrix> RandomLoader::describe(int64_t first_row, int64_t rows,
                                                            int64_t columns) const {
  const RandomTensor& tensor = tensors_[0];
  kernels::RandomMatrix matrix{.rows = rows,
                               .columns = columns,
                               .first_row = first_row,
                               .values = random_key(tensor.name, seed_)};
  if (tensor.kind == Kind::kE2M1) {
    matrix.format = Format::kNVFP4;
    matrix.scales = random_key(tensors_[1].name, seed_);
    matrix.scale = tensors_[2].scale;
    return matrix;
  }
  if (tensor.dtype != DType::kBF16 || tensor.kind != Kind::kNormal || rows == 1) {
    return std::nullopt;
  }
  matrix.format = Format::kBFloat16;
  matrix.scale = tensor.scale;
  return matrix;
}

Result<Weight> RandomLoader::prepare(int64_t rows, int64_t columns) {
  if (const auto described = describe(0, rows, columns)) {
    LAGOON_ASSIGN(Weight made, backend_.prepare_random(*described));
    if (made != nullptr) {
      tensors_.clear();
      return made;
    }
  }
  const std::vector<std::byte> values = make(0);
  HostMatrix matrix{.rows = rows, .columns = columns, .values = values.data()};
  std::vector<std::byte> scales;
  std::vector<float> block_scales;
  switch (tensors_[0].dtype) {
    case DType::kU8:
      scales = make(1);
      matrix.format = Format::kNVFP4;
      matrix.scales = scales.data();
      matrix.global_scale = tensors_[2].scale;
      break;
    case DType::kF8E4M3: {
      const std::vector<std::byte> stored = make(1);
      block_scales.resize(stored.size() / 2);
      for (size_t i = 0; i < block_scales.size(); ++i) {
        numeric::BFloat16 x;
        std::memcpy(&x.bits, stored.data() + 2 * i, 2);
        block_scales[i] = numeric::to_float(x);
      }
      matrix.format = Format::kFP8;
      matrix.scales = reinterpret_cast<const std::byte*>(block_scales.data());
      break;
    }
    case DType::kF32:
      matrix.format = Format::kFloat32;
      break;
    default:
      matrix.format = Format::kBFloat16;
  }
  LAGOON_ASSIGN(Weight weight, backend_.prepare(matrix));
  tensors_.clear();
  return weight;
}

Result<Weight> RandomLoader::matrix(const std::string& name, int64_t rows, int64_t columns) {
  LAGOON_RETURN_IF_ERROR(RandomSource::matrix(name, rows, columns));
  return prepare(rows, columns);
}

Result<Weight> RandomLoader::vector(const std::string& name, int64_t length) {
  LAGOON_RETURN_IF_ERROR(RandomSource::vector(name, length));
  return prepare(1, length);
}

Result<Weight> RandomLoader::float_vector(const std::string& name, int64_t length) {
  LAGOON_RETURN_IF_ERROR(RandomSource::float_vector(name, length));
  return prepare(1, length);
}

Result<std::vector<Weight>> RandomLoader::stacked(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const int64_t> rows) {
  LAGOON_ASSIGN(std::vector<Weight> parts, RandomSource::stacked(name, shape, rows));
  const int64_t columns = shape.back();
  int64_t first_row = 0;
  for (size_t i = 0; i < parts.size(); first_row += rows[i++]) {
    const auto described = describe(first_row, rows[i], columns);
    if (!described) break;
    LAGOON_ASSIGN(parts[i], backend_.prepare_random(*described));
    if (parts[i] == nullptr) break;
  }
  if (parts.back() != nullptr) {
    tensors_.clear();
    return parts;
  }
  const std::vector<std::byte> bytes = make(0);
  HostMatrix part{.format = Format::kBFloat16, .columns = columns, .values = bytes.data()};
  for (size_t i = 0; i < parts.size(); ++i) {
    part.rows = rows[i];
    LAGOON_ASSIGN(parts[i], backend_.prepare(part));
    part.values += part.rows * columns * static_cast<int64_t>(sizeof(numeric::BFloat16));
  }
  tensors_.clear();
  return parts;
}

Result<Weight> RandomLoader::expert(const std::string& name, int64_t rows, int64_t columns) {
  LAGOON_RETURN_IF_ERROR(RandomSource::expert(name, rows, columns));
  return prepare(rows, columns);
}

Result<float> RandomLoader::scale(const std::string& name) {
  LAGOON_ASSIGN(const float scale, RandomSource::scale(name));
  tensors_.clear();
  return scale;
}

}  // namespace lagoon::model
