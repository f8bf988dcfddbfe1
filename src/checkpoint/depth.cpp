#include "checkpoint/depth.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/config.h"

namespace lagoon::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

// Fields with one entry per layer.
constexpr std::string_view kPerLayer[] = {"num_attention_heads_per_layer", "layer_types",
                                          "mlp_layer_types", "gating_types"};

// `count` of `layers` layers at the relative depths of `taps` in a model of `depth` layers,
// ascending and different.
std::vector<int> spread_taps(const std::vector<int>& taps, int depth, int layers) {
  const size_t count = std::min(taps.size(), static_cast<size_t>(layers));
  std::vector<int> spread;
  for (size_t i = 0; i < count; ++i) {
    const int64_t tap = taps[count == 1 ? taps.size() - 1 : i * (taps.size() - 1) / (count - 1)];
    const int wanted = static_cast<int>((tap + 1) * layers / depth) - 1;
    // Room below for the taps before it, and above for those that follow.
    const int lowest = spread.empty() ? 0 : spread.back() + 1;
    const int highest = layers - static_cast<int>(count - i);
    spread.push_back(std::clamp(wanted, lowest, highest));
  }
  return spread;
}

}  // namespace

Result<std::string> cut_target(std::string_view json, const std::string& path, int layers) {
  LAGOON_ASSIGN(const TargetConfig config, parse_target_config(json, path));
  const int depth = static_cast<int>(config.layers.size());
  if (layers < 1 || layers > depth)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--layers is {}, and {} has {} layers: ask for 1 to {}", layers, path,
                             depth, depth)};
  Json cut = Json::parse(json);  // valid: it was parsed
  cut["num_hidden_layers"] = layers;
  for (const std::string_view key : kPerLayer) {
    const auto list = cut.find(key);
    if (list != cut.end() && list->is_array() && list->size() == config.layers.size())
      list->erase(list->begin() + layers, list->end());
  }
  if (const auto dense = cut.find("mlp_only_layers"); dense != cut.end() && dense->is_array()) {
    Json kept = Json::array();
    for (const Json& layer : *dense)
      if (layer.is_number_integer() && layer < layers) kept.push_back(layer);
    *dense = kept;
  }
  std::string text = cut.dump(2) + "\n";
  LAGOON_RETURN_IF_ERROR(parse_target_config(text, path));
  return text;
}

Result<std::string> fit_draft(std::string_view json, const std::string& path, int layers) {
  LAGOON_ASSIGN(const DraftConfig config, parse_draft_config(json, path));
  if (layers < 1)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--layers is {}: a target has at least 1 layer", layers)};
  const int depth = config.target_layers > 0 ? config.target_layers : config.tap_layers.back() + 1;
  const std::vector<int> taps = spread_taps(config.tap_layers, depth, layers);
  Json fitted = Json::parse(json);
  const auto fit = [&](Json& object) {
    if (object.contains("num_target_layers")) object["num_target_layers"] = layers;
    if (object.contains("target_layer_ids")) object["target_layer_ids"] = taps;
    if (object.contains("eagle_aux_hidden_state_layer_ids")) {
      Json counted_from_one = Json::array();
      for (const int tap : taps) counted_from_one.push_back(tap + 1);
      object["eagle_aux_hidden_state_layer_ids"] = counted_from_one;
    }
  };
  fit(fitted);
  if (const auto inner = fitted.find("dflash_config"); inner != fitted.end() && inner->is_object())
    fit(*inner);
  std::string text = fitted.dump(2) + "\n";
  LAGOON_RETURN_IF_ERROR(parse_draft_config(text, path));
  return text;
}

}  // namespace lagoon::checkpoint
