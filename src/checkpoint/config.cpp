#include "checkpoint/config.h"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/config_parts.h"
#include "checkpoint/file.h"
#include "checkpoint/json_value.h"

namespace lagoon::checkpoint {
namespace {

// Sparse layers as mlp_layer_types lists them, or as mlp_only_layers and decoder_sparse_step
// compute them: layer i is sparse if it is not listed and i + 1 is a multiple of the step.
Result<std::vector<bool>> sparse_by_list(const JsonFields& config, size_t layers) {
  LAGOON_ASSIGN(const std::vector<std::string> types, config.strings("mlp_layer_types"));
  if (types.size() != layers)
    return config.error("mlp_layer_types", fmt::format("has {} entries, but num_hidden_layers is "
                                                       "{}",
                                                       types.size(), layers));
  std::vector<bool> sparse;
  for (const std::string& type : types) {
    if (type != "dense" && type != "sparse")
      return config.unsupported(
          "mlp_layer_types", fmt::format("has {}; Lagoon knows dense and sparse", in_quotes(type)));
    sparse.push_back(type == "sparse");
  }
  return sparse;
}

Result<std::vector<bool>> sparse_by_step(const JsonFields& config, size_t layers) {
  LAGOON_ASSIGN(const int64_t step, config.integer_or("decoder_sparse_step", 1, kMaxLayers, 1));
  std::vector<bool> sparse(layers);
  for (size_t i = 0; i < layers; ++i) sparse[i] = (i + 1) % static_cast<size_t>(step) == 0;
  if (config.has("mlp_only_layers")) {
    LAGOON_ASSIGN(const std::vector<int64_t> dense,
                  config.integers("mlp_only_layers", 0, static_cast<int64_t>(layers) - 1));
    for (const int64_t i : dense) sparse[static_cast<size_t>(i)] = false;
  }
  return sparse;
}

Result<std::vector<bool>> parse_sparse_layers(const JsonFields& config, size_t layers) {
  const bool listed = config.has("mlp_layer_types");
  const bool computed = config.has("mlp_only_layers") || config.has("decoder_sparse_step");
  if (!listed && !computed)
    return config.error("mlp_layer_types",
                        "is missing, and so are mlp_only_layers and decoder_sparse_step: the file "
                        "does not say which layers have experts");
  if (!listed) return sparse_by_step(config, layers);
  LAGOON_ASSIGN(std::vector<bool> by_list, sparse_by_list(config, layers));
  if (computed) {
    LAGOON_ASSIGN(const std::vector<bool> by_step, sparse_by_step(config, layers));
    if (by_step != by_list)
      return config.error("mlp_layer_types", "contradicts mlp_only_layers and decoder_sparse_step");
  }
  return by_list;
}

Result<std::vector<int64_t>> parse_heads(const JsonFields& config, size_t layers) {
  constexpr std::string_view kPerLayer = "num_attention_heads_per_layer";
  if (!config.has(kPerLayer)) {
    LAGOON_ASSIGN(const int64_t heads, config.integer("num_attention_heads", 1, kMaxHeads));
    return std::vector<int64_t>(layers, heads);
  }
  LAGOON_ASSIGN(std::vector<int64_t> heads, config.integers(kPerLayer, 1, kMaxHeads));
  if (heads.size() != layers)
    return config.error(kPerLayer, fmt::format("has {} entries, but num_hidden_layers is {}",
                                               heads.size(), layers));
  return heads;
}

Result<void> parse_layers(const JsonFields& config, TargetConfig& target) {
  LAGOON_ASSIGN(const int64_t count, config.integer("num_hidden_layers", 1, kMaxLayers));
  const size_t layers = static_cast<size_t>(count);
  LAGOON_ASSIGN(const std::vector<bool> sliding, parse_sliding_layers(config, count));
  LAGOON_ASSIGN(const std::vector<bool> sparse, parse_sparse_layers(config, layers));
  LAGOON_ASSIGN(const std::vector<int64_t> heads, parse_heads(config, layers));
  const std::string_view heads_key = config.has("num_attention_heads_per_layer")
                                         ? "num_attention_heads_per_layer"
                                         : "num_attention_heads";
  for (size_t i = 0; i < layers; ++i) {
    LAGOON_RETURN_IF_ERROR(check_heads(config, heads_key, heads[i], target.kv_heads));
    target.layers.push_back({sliding[i], sparse[i], static_cast<int>(heads[i])});
  }
  return {};
}

Result<void> parse_attention(const JsonFields& config, TargetConfig& target) {
  const auto is_sliding = [](const LayerConfig& layer) { return layer.sliding; };
  if (std::any_of(target.layers.begin(), target.layers.end(), is_sliding)) {
    LAGOON_ASSIGN(target.window, parse_extent(config, "sliding_window", kMaxPositions));
    LAGOON_ASSIGN(target.sliding_rope,
                  parse_rope(config, "sliding_attention", target.head_dim, ModelRole::kTarget));
  }
  if (!std::all_of(target.layers.begin(), target.layers.end(), is_sliding)) {
    LAGOON_ASSIGN(target.full_rope,
                  parse_rope(config, "full_attention", target.head_dim, ModelRole::kTarget));
  }
  return {};
}

// The router scores with a sigmoid and makes the chosen weights sum to 1 in every published model.
Result<void> check_router(const JsonFields& config) {
  LAGOON_ASSIGN(const bool normalised, config.boolean_or("norm_topk_prob", true));
  if (!normalised)
    return config.unsupported("norm_topk_prob", "is false, which Lagoon does not support");
  LAGOON_ASSIGN(const bool sigmoid, config.boolean_or("moe_router_use_sigmoid", true));
  if (!sigmoid)
    return config.unsupported("moe_router_use_sigmoid", "is false, which Lagoon does not support");
  LAGOON_ASSIGN(const std::string score, config.string_or("moe_router_score_func", "sigmoid"));
  if (score != "sigmoid")
    return config.unsupported("moe_router_score_func",
                              fmt::format("is {}; Lagoon supports \"sigmoid\"", in_quotes(score)));
  return {};
}

Result<void> parse_feed_forward(const JsonFields& config, TargetConfig& target) {
  const auto is_sparse = [](const LayerConfig& layer) { return layer.sparse; };
  if (!std::all_of(target.layers.begin(), target.layers.end(), is_sparse)) {
    LAGOON_ASSIGN(target.intermediate, parse_extent(config, "intermediate_size", kMaxWidth));
  }
  if (!std::any_of(target.layers.begin(), target.layers.end(), is_sparse)) return {};
  LAGOON_ASSIGN(target.experts, parse_extent(config, "num_experts", kMaxExperts));
  LAGOON_ASSIGN(target.top_k, parse_extent(config, "num_experts_per_tok", kMaxExperts));
  if (target.top_k > target.experts)
    return config.error("num_experts_per_tok", fmt::format("is {}, more than num_experts {}",
                                                           target.top_k, target.experts));
  LAGOON_ASSIGN(target.moe_intermediate, parse_extent(config, "moe_intermediate_size", kMaxWidth));
  LAGOON_ASSIGN(target.shared_intermediate,
                parse_extent(config, "shared_expert_intermediate_size", kMaxWidth));
  LAGOON_ASSIGN(const double scale, config.positive("moe_routed_scaling_factor"));
  target.routed_scale = static_cast<float>(scale);
  LAGOON_ASSIGN(const double cap, config.not_negative_or("moe_router_logit_softcapping", 0));
  target.router_softcap = static_cast<float>(cap);
  return check_router(config);
}

Result<void> parse_special_tokens(const JsonFields& config, TargetConfig& target) {
  const int64_t last = int64_t{target.vocab} - 1;
  LAGOON_ASSIGN(const int64_t bos, config.integer_or("bos_token_id", 0, last, -1));
  target.bos = static_cast<int32_t>(bos);
  constexpr std::string_view kEos = "eos_token_id";
  const JsonValue* eos = config.find(kEos);
  std::vector<int64_t> ids;
  if (eos != nullptr && eos->get_if<JsonArray>() != nullptr) {
    LAGOON_ASSIGN(ids, config.integers(kEos, 0, last));
    if (ids.empty()) return config.error(kEos, "is an empty array: text would never end");
  } else {
    LAGOON_ASSIGN(const int64_t id, config.integer(kEos, 0, last));
    ids = {id};
  }
  target.eos.assign(ids.begin(), ids.end());
  return {};
}

}  // namespace

Result<TargetConfig> parse_target_config(std::string_view json, const std::string& path) {
  LAGOON_ASSIGN(const JsonValue document, parse_json(json, path));
  const JsonObject* object = document.get_if<JsonObject>();
  if (object == nullptr)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  const JsonFields config(*object, path);
  LAGOON_RETURN_IF_ERROR(check_architecture(config, kTargetArchitecture));
  LAGOON_RETURN_IF_ERROR(refuse_unsupported_features(config));
  LAGOON_ASSIGN(const bool tied, config.boolean_or("tie_word_embeddings", false));
  if (tied)
    return config.unsupported("tie_word_embeddings", "is true, which Lagoon does not support");
  LAGOON_RETURN_IF_ERROR(check_quantization(config));

  TargetConfig target;
  LAGOON_ASSIGN(target.vocab, parse_extent(config, "vocab_size", kMaxVocab));
  LAGOON_ASSIGN(target.hidden, parse_extent(config, "hidden_size", kMaxWidth));
  LAGOON_ASSIGN(target.kv_heads, parse_extent(config, "num_key_value_heads", kMaxHeads));
  LAGOON_ASSIGN(target.head_dim, parse_head_dim(config));
  LAGOON_ASSIGN(const double epsilon, config.positive("rms_norm_eps"));
  target.norm_epsilon = static_cast<float>(epsilon);
  LAGOON_ASSIGN(target.max_positions, config.integer("max_position_embeddings", 2, kMaxPositions));
  LAGOON_ASSIGN(target.gate, parse_gate(config));
  LAGOON_RETURN_IF_ERROR(parse_layers(config, target));
  LAGOON_RETURN_IF_ERROR(parse_attention(config, target));
  LAGOON_RETURN_IF_ERROR(parse_feed_forward(config, target));
  LAGOON_RETURN_IF_ERROR(parse_special_tokens(config, target));
  LAGOON_ASSIGN(target.fp8_cache, parse_fp8_cache(config));
  return target;
}

}  // namespace lagoon::checkpoint
