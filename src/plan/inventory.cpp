#include "plan/inventory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "checkpoint/quantization.h"
#include "kernels/cpu/layout.h"
#include "kernels/cuda/layout.h"
#include "model/random_weights.h"

namespace lagoon::plan {
namespace {

using numeric::DType;

constexpr int64_t kLargePage = int64_t{2} << 20;  // kernels/cpu/pack.cpp aligns large matrices so
constexpr int64_t kObject = 160;                  // of a matrix on the host, with its allocations
constexpr int64_t kDeviceAlignment = 256;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Part part_of(std::string_view name) {
  if (contains(name, "embed_tokens")) return Part::kEmbedding;
  if (contains(name, "lm_head")) return Part::kHead;
  if (contains(name, ".shared_expert")) return Part::kSharedExpert;
  if (contains(name, "e_score_correction") || contains(name, ".mlp.gate.")) return Part::kRouter;
  if (contains(name, ".experts.")) return Part::kExperts;
  if (contains(name, ".mlp.")) return Part::kDense;
  if (contains(name, ".self_attn.")) return Part::kAttention;
  return Part::kOther;
}

// The matrix or vector of a tensor that is not a scale: [rows, columns], a vector being one row.
struct Extent {
  int64_t rows = 1;
  int64_t columns = 1;
};

Extent extent_of(const std::vector<int64_t>& shape) {
  if (shape.empty()) return {};
  Extent extent{.rows = 1, .columns = shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) extent.rows *= shape[i];
  return extent;
}

bool is_scale(std::string_view name) {
  return name.ends_with("_scale");
}

Format format_of(std::string_view name, DType dtype) {
  if (name.ends_with(".weight_packed") || name.ends_with("_global_scale")) return Format::kNVFP4;
  switch (dtype) {
    case DType::kF8E4M3:
      // The scales of NVFP4 are e4m3 numbers, an FP8 matrix' are not.
      return name.ends_with(".weight_scale") ? Format::kNVFP4 : Format::kFP8;
    case DType::kBF16:
      return name.ends_with(".weight_scale") ? Format::kFP8 : Format::kBF16;
    case DType::kF32:
      return name.ends_with(".weight_scale") ? Format::kFP8 : Format::kF32;
    default:
      return Format::kOther;
  }
}

kernels::Format kernel_format(Format format) {
  switch (format) {
    case Format::kNVFP4:
      return kernels::Format::kNVFP4;
    case Format::kFP8:
      return kernels::Format::kFP8;
    case Format::kF32:
      return kernels::Format::kFloat32;
    default:
      return kernels::Format::kBFloat16;
  }
}

int64_t cpu_bytes(Format format, const Extent& extent) {
  using kernels::cpu::round_up;
  const int64_t panels = round_up(extent.rows, kernels::cpu::kPanelRows) / kernels::cpu::kPanelRows;
  int64_t bytes = panels * kernels::cpu::panel_bytes(kernel_format(format), extent.columns);
  bytes = round_up(bytes, bytes >= kLargePage ? kLargePage : 64);
  if (format == Format::kFP8) bytes += panels * ((extent.columns + 127) / 128) * 4;
  return bytes + kObject;
}

int64_t cuda_bytes(Format format, const Extent& extent) {
  namespace cuda = kernels::cuda;
  const int64_t units = cuda::tiles_of(extent.rows) * cuda::units_of(extent.columns);
  int64_t bytes = 0;
  if (extent.rows == 1) {
    bytes = extent.columns * 4;  // vectors are FP32
  } else if (format == Format::kNVFP4) {
    bytes = units * (cuda::unit_bytes(cuda::Packing::kNVFP4) + cuda::kUnitScaleBytes);
  } else if (format == Format::kFP8) {
    bytes = units * cuda::unit_bytes(cuda::Packing::kFP8) +
            (extent.rows + 127) / 128 * cuda::units_of(extent.columns) * 4;
  } else {
    bytes = units * cuda::unit_bytes(cuda::Packing::kBFloat16);
  }
  return kernels::cpu::round_up(bytes, kDeviceAlignment);
}

int64_t ref_bytes(Format format, const Extent& extent) {
  const int64_t elements = extent.rows * extent.columns;
  switch (format) {
    case Format::kNVFP4:
      return elements / 2 + elements / 16 + kObject;
    case Format::kFP8:
      return elements + (extent.rows + 127) / 128 * ((extent.columns + 127) / 128) * 4 + kObject;
    case Format::kF32:
      return elements * 4 + kObject;
    default:
      return elements * 2 + kObject;
  }
}

// 7 of "model.layers.7.mlp...".
std::optional<int> layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  const char* const begin = name.data() + at + kLayers.size();
  int layer = 0;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc() || end == begin) return std::nullopt;
  return layer;
}

template <typename Tensors>
Inventory inventory_of(const Tensors& tensors) {
  Inventory inventory;
  for (const auto& tensor : tensors) inventory.add(tensor.name, tensor.dtype, tensor.shape);
  return inventory;
}

// The format of a layer's experts; of several, all of them.
std::string names_of(const std::set<Format>& formats) {
  std::string text;
  for (const Format format : formats) {
    text += fmt::format("{}{}", text.empty() ? "" : " and ", format_name(format));
  }
  return text;
}

}  // namespace

std::string_view part_name(Part part) {
  constexpr std::string_view kNames[] = {"embedding",     "attention",       "routed experts",
                                         "shared expert", "router",          "dense feed-forward",
                                         "lm_head",       "norms and others"};
  return kNames[static_cast<size_t>(part)];
}

std::string_view format_name(Format format) {
  constexpr std::string_view kNames[] = {"NVFP4", "FP8", "BF16", "F32", "another"};
  return kNames[static_cast<size_t>(format)];
}

void Inventory::add(std::string_view name, DType dtype, const std::vector<int64_t>& shape) {
  Extent extent = extent_of(shape);
  const int64_t bytes =
      extent.rows * extent.columns * static_cast<int64_t>(numeric::dtype_size(dtype));
  const Part part = part_of(name);
  const Format format = format_of(name, dtype);
  ++tensors_;
  bytes_ += bytes;
  Sum& sum = parts_[{part, format}];
  ++sum.tensors;
  sum.bytes += bytes;
  if (is_scale(name)) return;
  if (format == Format::kNVFP4) extent.columns *= 2;  // two codes a byte
  parameters_ += extent.rows * extent.columns;
  if (part == Part::kExperts) {
    if (const auto layer = layer_of(name)) expert_formats_[*layer].insert(format);
  }
  packed_[static_cast<size_t>(Layout::kCpu)] += cpu_bytes(format, extent);
  packed_[static_cast<size_t>(Layout::kCuda)] += cuda_bytes(format, extent);
  packed_[static_cast<size_t>(Layout::kRef)] += ref_bytes(format, extent);
}

int64_t Inventory::part_bytes(Part part) const {
  int64_t bytes = 0;
  for (const auto& [key, sum] : parts_) {
    if (key.first == part) bytes += sum.bytes;
  }
  return bytes;
}

Inventory take_inventory(const checkpoint::ModelDir& directory) {
  Inventory inventory;
  for (const checkpoint::Tensor& tensor : directory.tensors()) {
    inventory.add(tensor.info->name, tensor.info->dtype, tensor.info->shape);
  }
  return inventory;
}

Result<Inventory> expected_inventory(const checkpoint::TargetConfig& config,
                                     const std::string& json, const std::string& path) {
  LAGOON_ASSIGN(const auto scheme, checkpoint::QuantizationScheme::parse(json, path));
  LAGOON_ASSIGN(const auto tensors, model::random_target(config, scheme, {}));
  return inventory_of(tensors);
}

Result<Inventory> expected_inventory(const checkpoint::DraftConfig& config, const std::string& json,
                                     const std::string& path) {
  LAGOON_ASSIGN(const auto scheme, checkpoint::QuantizationScheme::parse(json, path));
  LAGOON_ASSIGN(const auto tensors, model::random_draft(config, scheme));
  return inventory_of(tensors);
}

Format precision_class(const Inventory& inventory) {
  std::map<Format, int64_t> bytes;
  const bool sparse = inventory.part_bytes(Part::kExperts) > 0;
  for (const auto& [key, sum] : inventory.parts()) {
    if (!sparse || key.first == Part::kExperts) bytes[key.second] += sum.bytes;
  }
  // Of a checkpoint whose experts are of several formats, the smallest one that there is: the
  // revision that keeps some layers' experts in BF16 is still one of NVFP4.
  for (const Format format : {Format::kNVFP4, Format::kFP8}) {
    if (bytes[format] > 0) return format;
  }
  return bytes[Format::kBF16] >= bytes[Format::kF32] ? Format::kBF16 : Format::kF32;
}

std::string describe_experts(const Inventory& inventory) {
  std::string text;
  const auto& formats = inventory.expert_formats();
  for (auto first = formats.begin(); first != formats.end();) {
    auto last = first;
    auto next = std::next(first);
    while (next != formats.end() && next->second == first->second &&
           next->first == last->first + 1) {
      last = next++;
    }
    text += fmt::format("{}{} in layer{} {}", text.empty() ? "" : ", ", names_of(first->second),
                        first == last ? "" : "s", first->first);
    if (first != last) text += fmt::format("-{}", last->first);
    first = next;
  }
  return text;
}

}  // namespace lagoon::plan
