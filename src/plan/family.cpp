#include "plan/family.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace lagoon::plan {
namespace {

constexpr int64_t kLongContext = 1'048'576;

bool is_s(const checkpoint::TargetConfig& config) {
  return config.layers.size() == 48 && config.hidden == 3072;
}

bool has_quantised_shared_experts(const Inventory& weights) {
  return weights.parts().contains({Part::kSharedExpert, Format::kNVFP4});
}

}  // namespace

std::string family_of(const checkpoint::TargetConfig& config) {
  const size_t layers = config.layers.size();
  if (is_s(config)) return "Laguna S 2.1";
  if (layers == 40 && config.hidden == 2048) {
    return config.full_rope.original_max_position == 4096 ? "Laguna XS.2" : "Laguna XS 2.1";
  }
  const bool all_full = std::none_of(config.layers.begin(), config.layers.end(),
                                     [](const auto& layer) { return layer.sliding; });
  if (layers == 70 && all_full) return "Laguna M.1";
  return fmt::format("Laguna of {} layers, {} wide", layers, config.hidden);
}

std::string revision_class(const checkpoint::TargetConfig& config, const Inventory& weights) {
  const Format precision = precision_class(weights);
  const std::string experts = describe_experts(weights);
  std::string text = experts.empty() ? fmt::format("weights in {}", format_name(precision))
                                     : fmt::format("experts: {}", experts);
  if (!is_s(config) || precision != Format::kNVFP4) return text;
  std::set<Format> kinds;
  for (const auto& [layer, formats] : weights.expert_formats()) {
    kinds.insert(formats.begin(), formats.end());
  }
  if (kinds.size() > 1) {
    return text +
           "; as the revision f8fdfcdc4e of 2026-08-01, 28 GB larger than 07614121b3 of "
           "2026-07-22, "
           "which one machine of 128 GB does better with";
  }
  if (has_quantised_shared_experts(weights)) {
    return text + "; as the first upload of 2026-07-21, which 07614121b3 of 2026-07-22 replaced";
  }
  if (config.max_positions >= kLongContext) {
    return text + "; the weights of 2026-08-01, quantised again in all layers";
  }
  return text + "; as the revision 07614121b3 of 2026-07-22";
}

}  // namespace lagoon::plan
