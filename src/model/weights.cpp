#include "model/weights.h"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "model/rope.h"
#include "model/tensor_loader.h"
#include "model/tensor_source.h"

namespace lagoon::model {
namespace {

using checkpoint::DraftConfig;
using checkpoint::GateKind;
using checkpoint::LayerConfig;
using checkpoint::ModelDir;
using checkpoint::RopeConfig;
using checkpoint::TargetConfig;
using kernels::AttentionLayer;
using kernels::FfnLayer;
using kernels::Rope;
using kernels::SwiGlu;
using kernels::Weight;

kernels::Gate gate_of(GateKind kind) {
  return kind == GateKind::kPerHead ? kernels::Gate::kPerHead : kernels::Gate::kPerElement;
}

Result<std::unique_ptr<Rope>> shared_rope(const RopeConfig& config, int head_dim) {
  LAGOON_ASSIGN(Rope rope, make_rope(config, head_dim));
  return std::make_unique<Rope>(std::move(rope));
}

// q, k and v: three matrices, or one with their rows stacked in this order.
Result<void> read_qkv(TensorSource& source, const std::string& self_attn, int64_t hidden,
                      AttentionLayer& layer) {
  const int64_t q_rows = int64_t{layer.heads} * layer.head_dim;
  const int64_t kv_rows = int64_t{layer.kv_heads} * layer.head_dim;
  const std::string fused = self_attn + "qkv_proj.weight";
  if (source.has(fused)) {
    const std::array rows = {q_rows, kv_rows, kv_rows};
    LAGOON_ASSIGN(std::vector<Weight> parts,
                  source.stacked(fused, {q_rows + 2 * kv_rows, hidden}, rows));
    layer.q = std::move(parts[0]);
    layer.k = std::move(parts[1]);
    layer.v = std::move(parts[2]);
    return {};
  }
  LAGOON_ASSIGN(layer.q, source.matrix(self_attn + "q_proj.weight", q_rows, hidden));
  LAGOON_ASSIGN(layer.k, source.matrix(self_attn + "k_proj.weight", kv_rows, hidden));
  LAGOON_ASSIGN(layer.v, source.matrix(self_attn + "v_proj.weight", kv_rows, hidden));
  return {};
}

// `layer` has its sizes; the weights are filled in. `prefix` names the layer: "model.layers.3.".
Result<void> read_attention(TensorSource& source, const std::string& prefix, int64_t hidden,
                            AttentionLayer& layer) {
  const std::string self_attn = prefix + "self_attn.";
  const int64_t q_rows = int64_t{layer.heads} * layer.head_dim;
  const int64_t g_rows = layer.gate == kernels::Gate::kPerHead ? layer.heads : q_rows;
  LAGOON_ASSIGN(layer.input_norm, source.vector(prefix + "input_layernorm.weight", hidden));
  LAGOON_RETURN_IF_ERROR(read_qkv(source, self_attn, hidden, layer));
  LAGOON_ASSIGN(layer.g, source.matrix(self_attn + "g_proj.weight", g_rows, hidden));
  LAGOON_ASSIGN(layer.q_norm, source.vector(self_attn + "q_norm.weight", layer.head_dim));
  LAGOON_ASSIGN(layer.k_norm, source.vector(self_attn + "k_norm.weight", layer.head_dim));
  LAGOON_ASSIGN(layer.o, source.matrix(self_attn + "o_proj.weight", hidden, q_rows));
  return {};
}

Result<SwiGlu> read_mlp(TensorSource& source, const std::string& prefix, int64_t hidden,
                        int64_t intermediate) {
  SwiGlu mlp;
  LAGOON_ASSIGN(mlp.gate, source.matrix(prefix + "gate_proj.weight", intermediate, hidden));
  LAGOON_ASSIGN(mlp.up, source.matrix(prefix + "up_proj.weight", intermediate, hidden));
  LAGOON_ASSIGN(mlp.down, source.matrix(prefix + "down_proj.weight", hidden, intermediate));
  return mlp;
}

Result<SwiGlu> read_expert(TensorSource& source, const std::string& prefix, int64_t hidden,
                           int64_t intermediate) {
  SwiGlu expert;
  LAGOON_ASSIGN(expert.gate, source.expert(prefix + "gate_proj", intermediate, hidden));
  LAGOON_ASSIGN(expert.up, source.expert(prefix + "up_proj", intermediate, hidden));
  LAGOON_ASSIGN(expert.down, source.expert(prefix + "down_proj", hidden, intermediate));
  return expert;
}

// Published files keep the experts' selection bias with the experts; saved by transformers, it lies
// with the router, and some exports leave out the last word of its name.
std::string bias_name(const TensorSource& source, const std::string& mlp) {
  for (const char* variant :
       {"gate.e_score_correction_bias", "gate.e_score_correction", "experts.e_score_correction"}) {
    if (source.has(mlp + variant)) return mlp + variant;
  }
  return mlp + "experts.e_score_correction_bias";
}

// Experts each in tensors of its own, as published.
Result<void> read_experts(TensorSource& source, const std::string& mlp, const TargetConfig& config,
                          FfnLayer& layer) {
  for (int e = 0; e < config.experts; ++e) {
    LAGOON_ASSIGN(SwiGlu expert, read_expert(source, fmt::format("{}experts.{}.", mlp, e),
                                             config.hidden, config.moe_intermediate));
    layer.experts.push_back(std::move(expert));
  }
  return {};
}

// All experts' matrices in tensors [experts, rows, columns], unquantised. As transformers has them
// in memory, a row block of gate is followed by one of up (`gate_up_proj`, `down_proj`); MLX
// exports have three tensors below `switch_mlp`.
Result<void> read_stacked_experts(TensorSource& source, const std::string& mlp,
                                  const TargetConfig& config, FfnLayer& layer) {
  const int64_t hidden = config.hidden;
  const int64_t inner = config.moe_intermediate;
  const auto count = static_cast<size_t>(config.experts);
  const std::vector<int64_t> inner_rows(count, inner);
  const std::vector<int64_t> hidden_rows(count, hidden);
  layer.experts.resize(count);
  std::string down = mlp + "experts.down_proj";
  if (source.has(mlp + "experts.gate_up_proj")) {
    const std::vector<int64_t> rows(2 * count, inner);
    LAGOON_ASSIGN(auto parts, source.stacked(mlp + "experts.gate_up_proj",
                                             {config.experts, 2 * inner, hidden}, rows));
    for (size_t e = 0; e < count; ++e) {
      layer.experts[e].gate = std::move(parts[2 * e]);
      layer.experts[e].up = std::move(parts[2 * e + 1]);
    }
  } else {
    const std::string prefix = mlp + "switch_mlp.";
    const std::vector<int64_t> shape = {config.experts, inner, hidden};
    LAGOON_ASSIGN(auto gates, source.stacked(prefix + "gate_proj.weight", shape, inner_rows));
    LAGOON_ASSIGN(auto ups, source.stacked(prefix + "up_proj.weight", shape, inner_rows));
    for (size_t e = 0; e < count; ++e) {
      layer.experts[e].gate = std::move(gates[e]);
      layer.experts[e].up = std::move(ups[e]);
    }
    down = prefix + "down_proj.weight";
  }
  LAGOON_ASSIGN(auto downs, source.stacked(down, {config.experts, hidden, inner}, hidden_rows));
  for (size_t e = 0; e < count; ++e) layer.experts[e].down = std::move(downs[e]);
  return {};
}

// Router, its selection bias, shared expert and routed experts; `mlp` is "model.layers.3.mlp.".
Result<void> read_sparse(TensorSource& source, const std::string& mlp, const TargetConfig& config,
                         FfnLayer& layer) {
  layer.top_k = config.top_k;
  layer.routed_scale = config.routed_scale;
  layer.router_softcap = config.router_softcap;
  const std::string inner_router = mlp + "gate.proj.weight";  // MLX
  LAGOON_ASSIGN(layer.router,
                source.matrix(source.has(inner_router) ? inner_router : mlp + "gate.weight",
                              config.experts, config.hidden));
  LAGOON_ASSIGN(layer.router_bias, source.float_vector(bias_name(source, mlp), config.experts));
  const std::string plural = mlp + "shared_experts.";
  LAGOON_ASSIGN(
      layer.mlp,
      read_mlp(source, source.has(plural + "gate_proj.weight") ? plural : mlp + "shared_expert.",
               config.hidden, config.shared_intermediate));
  const bool stacked =
      source.has(mlp + "experts.gate_up_proj") || source.has(mlp + "switch_mlp.gate_proj.weight");
  return stacked ? read_stacked_experts(source, mlp, config, layer)
                 : read_experts(source, mlp, config, layer);
}

Result<FfnLayer> read_ffn(TensorSource& source, const std::string& prefix,
                          const TargetConfig& config, bool sparse) {
  FfnLayer layer;
  layer.norm_epsilon = config.norm_epsilon;
  LAGOON_ASSIGN(layer.post_norm,
                source.vector(prefix + "post_attention_layernorm.weight", config.hidden));
  if (sparse) {
    LAGOON_RETURN_IF_ERROR(read_sparse(source, prefix + "mlp.", config, layer));
  } else {
    LAGOON_ASSIGN(layer.mlp, read_mlp(source, prefix + "mlp.", config.hidden, config.intermediate));
  }
  return layer;
}

}  // namespace

Result<TargetWeights> read_target(TensorSource& source, const TargetConfig& config) {
  // MLX exports put everything below one more name.
  const std::string root =
      source.has("language_model.model.embed_tokens.weight") ? "language_model." : "";
  TargetWeights weights;
  LAGOON_ASSIGN(weights.embedding,
                source.matrix(root + "model.embed_tokens.weight", config.vocab, config.hidden));
  int full_layers = 0;
  int sliding_layers = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const std::string prefix = fmt::format("{}model.layers.{}.", root, i);
    auto& rope = layer.sliding ? weights.sliding_rope : weights.full_rope;
    if (!rope) {
      LAGOON_ASSIGN(rope, shared_rope(layer.sliding ? config.sliding_rope : config.full_rope,
                                      config.head_dim));
    }
    AttentionLayer attention;
    attention.heads = layer.heads;
    attention.kv_heads = config.kv_heads;
    attention.head_dim = config.head_dim;
    attention.norm_epsilon = config.norm_epsilon;
    attention.gate = gate_of(config.gate);
    attention.cache = layer.sliding ? sliding_layers++ : full_layers++;
    attention.window = layer.sliding ? config.window : 0;
    attention.rope = rope.get();
    LAGOON_RETURN_IF_ERROR(read_attention(source, prefix, config.hidden, attention));
    // For a cache of FP8, where it is one.
    LAGOON_ASSIGN(attention.k_scale, source.scale(prefix + "self_attn.k_scale"));
    LAGOON_ASSIGN(attention.v_scale, source.scale(prefix + "self_attn.v_scale"));
    weights.attention.push_back(std::move(attention));
    LAGOON_ASSIGN(FfnLayer ffn, read_ffn(source, prefix, config, layer.sparse));
    weights.ffn.push_back(std::move(ffn));
  }
  weights.head.norm_epsilon = config.norm_epsilon;
  LAGOON_ASSIGN(weights.head.norm, source.vector(root + "model.norm.weight", config.hidden));
  LAGOON_ASSIGN(weights.lm_head,
                source.matrix(root + "lm_head.weight", config.vocab, config.hidden));
  weights.head.lm_head = weights.lm_head.get();
  return weights;
}

namespace {

Result<void> read_draft_layer(TensorSource& source, const std::string& prefix,
                              const DraftConfig& config, int index, DraftWeights& weights) {
  AttentionLayer attention;
  attention.heads = config.heads;
  attention.kv_heads = config.kv_heads;
  attention.head_dim = config.head_dim;
  attention.norm_epsilon = config.norm_epsilon;
  attention.gate = gate_of(config.gate);
  attention.cache = index;
  attention.window = config.window;
  attention.rope = weights.rope.get();
  LAGOON_RETURN_IF_ERROR(read_attention(source, prefix, config.hidden, attention));
  weights.attention.push_back(std::move(attention));
  FfnLayer ffn;
  ffn.norm_epsilon = config.norm_epsilon;
  LAGOON_ASSIGN(ffn.post_norm,
                source.vector(prefix + "post_attention_layernorm.weight", config.hidden));
  LAGOON_ASSIGN(ffn.mlp, read_mlp(source, prefix + "mlp.", config.hidden, config.intermediate));
  weights.ffn.push_back(std::move(ffn));
  return {};
}

}  // namespace

Result<DraftWeights> read_draft(TensorSource& source, const DraftConfig& config) {
  // Published drafts name tensors without a prefix, some exports with one.
  const std::string prefix = source.has("model.fc.weight") ? "model." : "";
  const auto taps = static_cast<int64_t>(config.tap_layers.size());
  DraftWeights weights;
  LAGOON_ASSIGN(weights.rope, shared_rope(config.rope, config.head_dim));
  weights.context.norm_epsilon = config.norm_epsilon;
  for (int64_t i = 0; i < taps; ++i) {
    LAGOON_ASSIGN(Weight norm, source.vector(fmt::format("{}aux_hidden_norms.{}.weight", prefix, i),
                                             config.hidden));
    weights.context.aux_norms.push_back(std::move(norm));
  }
  LAGOON_ASSIGN(weights.context.fc,
                source.matrix(prefix + "fc.weight", config.hidden, taps * config.hidden));
  LAGOON_ASSIGN(weights.context.hidden_norm,
                source.vector(prefix + "hidden_norm.weight", config.hidden));
  for (int i = 0; i < config.layers; ++i) {
    LAGOON_RETURN_IF_ERROR(
        read_draft_layer(source, fmt::format("{}layers.{}.", prefix, i), config, i, weights));
  }
  weights.head.norm_epsilon = config.norm_epsilon;
  LAGOON_ASSIGN(weights.head.norm, source.vector(prefix + "norm.weight", config.hidden));
  return weights;
}

Result<void> check_target_tensors(const ModelDir& dir, const TargetConfig& config) {
  TensorList list(dir);
  LAGOON_RETURN_IF_ERROR(read_target(list, config));
  return dir.check(list.expected());
}

Result<void> check_draft_tensors(const ModelDir& dir, const DraftConfig& config) {
  TensorList list(dir);
  LAGOON_RETURN_IF_ERROR(read_draft(list, config));
  return dir.check(list.expected());
}

namespace {

Result<OpenWeights> open_weights(const ModelDir& dir, TensorList& list,
                                 const checkpoint::ReadOptions& options) {
  LAGOON_RETURN_IF_ERROR(dir.check(list.expected()));
  OpenWeights weights;
  std::vector<checkpoint::Pieces> order = list.take_order();
  for (const checkpoint::Pieces& pieces : order) {
    for (const checkpoint::Piece& piece : pieces) weights.bytes += piece.bytes;
  }
  LAGOON_ASSIGN(weights.reader, checkpoint::WeightReader::start(std::move(order), options));
  LAGOON_RETURN_IF_ERROR(check_scales(dir, *weights.reader, list.scales()));
  return weights;
}

}  // namespace

Result<OpenWeights> open_target_weights(const ModelDir& dir, const TargetConfig& config,
                                        const checkpoint::ReadOptions& options) {
  TensorList list(dir);
  LAGOON_RETURN_IF_ERROR(read_target(list, config));
  return open_weights(dir, list, options);
}

Result<OpenWeights> open_draft_weights(const ModelDir& dir, const DraftConfig& config,
                                       const checkpoint::ReadOptions& options) {
  TensorList list(dir);
  LAGOON_RETURN_IF_ERROR(read_draft(list, config));
  return open_weights(dir, list, options);
}

void set_taps(TargetWeights& weights, const std::vector<int>& tap_layers) {
  for (size_t tap = 0; tap < tap_layers.size(); ++tap) {
    weights.ffn[static_cast<size_t>(tap_layers[tap])].tap = static_cast<int>(tap);
  }
}

}  // namespace lagoon::model
