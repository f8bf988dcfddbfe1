// What a checkpoint holds, from the names, types and shapes of its tensors: bytes by part and
// format, how the experts of each layer are stored, and what all of it takes once a backend has
// packed it. Headers, or a config.json alone, are enough.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/model_dir.h"
#include "numeric/dtype.h"

namespace lagoon::plan {

// How a backend lays matrices out.
enum class Layout { kCpu, kCuda, kRef };
inline constexpr size_t kLayouts = 3;

enum class Part { kEmbedding, kAttention, kExperts, kSharedExpert, kRouter, kDense, kHead, kOther };
std::string_view part_name(Part part);

enum class Format { kNVFP4, kFP8, kBF16, kF32, kOther };
std::string_view format_name(Format format);

class Inventory {
 public:
  struct Sum {
    int64_t tensors = 0;
    int64_t bytes = 0;  // as stored
  };

  // A tensor as the checkpoint names and stores it. Scales count with the format of their matrix.
  void add(std::string_view name, numeric::DType dtype, const std::vector<int64_t>& shape);

  int64_t tensors() const { return tensors_; }
  int64_t bytes() const { return bytes_; }
  int64_t parameters() const { return parameters_; }  // scales are none
  const std::map<std::pair<Part, Format>, Sum>& parts() const { return parts_; }
  int64_t part_bytes(Part part) const;
  // How the routed experts of each layer that has some are stored.
  const std::map<int, std::set<Format>>& expert_formats() const { return expert_formats_; }
  // Memory of the packed weights: padding and alignment included, within some percent.
  int64_t packed_bytes(Layout layout) const { return packed_[static_cast<size_t>(layout)]; }

 private:
  int64_t tensors_ = 0;
  int64_t bytes_ = 0;
  int64_t parameters_ = 0;
  std::map<std::pair<Part, Format>, Sum> parts_;
  std::map<int, std::set<Format>> expert_formats_;
  std::array<int64_t, kLayouts> packed_ = {};
};

// Of the headers of a directory.
Inventory take_inventory(const checkpoint::ModelDir& directory);

// What a checkpoint of this config.json holds (`path` names it in errors): its quantization_config
// says how.
Result<Inventory> expected_inventory(const checkpoint::TargetConfig& config,
                                     const std::string& json, const std::string& path);
Result<Inventory> expected_inventory(const checkpoint::DraftConfig& config, const std::string& json,
                                     const std::string& path);

// How most experts are stored; a model without experts: how most of it is. "NVFP4", "FP8", "BF16".
Format precision_class(const Inventory& inventory);

// "NVFP4 in layers 1-39, BF16 in layers 40-47"; "" without experts.
std::string describe_experts(const Inventory& inventory);

}  // namespace lagoon::plan
