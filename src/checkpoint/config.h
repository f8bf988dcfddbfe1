// config.json of a Laguna target and of a DFlash draft, parsed and checked. Nothing is decided from
// a layer's index or from a default that the published files contradict: what a file must say and
// does not is an error naming the key. Field meanings: docs/design.md, "The model".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lagoon::checkpoint {

// Rotary embedding of one layer type. `default`: inverse frequencies theta^(-2i/rotary_dim).
// `yarn`: blended with the interpolated ones between beta_fast and beta_slow; cos and sin are
// multiplied by attention_factor.
struct RopeConfig {
  bool yarn = false;
  double theta = 0;
  double partial_rotary_factor = 1;  // rotary_dim = head_dim * this; the rest passes through
  double factor = 1;
  double attention_factor = 1;
  int64_t original_max_position = 0;
  double beta_fast = 32;
  double beta_slow = 1;
};

enum class GateKind { kPerHead, kPerElement };

struct LayerConfig {
  bool sliding = false;  // else full attention
  bool sparse = false;   // mixture of experts, else dense
  int heads = 0;         // query heads
};

struct TargetConfig {
  int vocab = 0;
  int hidden = 0;
  int intermediate = 0;  // dense layers
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // of sliding layers, own position included; 0 if there are none
  int experts = 0;
  int top_k = 0;
  int moe_intermediate = 0;
  int shared_intermediate = 0;
  float routed_scale = 1;    // moe_routed_scaling_factor
  float router_softcap = 0;  // 0 = off
  float norm_epsilon = 0;
  int64_t max_positions = 0;  // max_position_embeddings
  GateKind gate = GateKind::kPerHead;
  RopeConfig full_rope;
  RopeConfig sliding_rope;
  std::vector<LayerConfig> layers;
  int32_t bos = -1;
  std::vector<int32_t> eos;
  bool fp8_cache = false;  // quantization_config.kv_cache_scheme is one of 8-bit floats
};

struct DraftConfig {
  int vocab = 0;
  int hidden = 0;
  int intermediate = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;
  float norm_epsilon = 0;
  GateKind gate = GateKind::kPerHead;
  RopeConfig rope;
  int block_size = 0;  // anchor included; at most block_size - 1 proposals
  int32_t mask_token = -1;
  bool causal = true;
  int target_layers = 0;        // num_target_layers; 0 if the file does not say
  std::vector<int> tap_layers;  // target layers (0-based) whose output residual is tapped
};

// `json` is the file's text, `path` names it in errors.
Result<TargetConfig> parse_target_config(std::string_view json, const std::string& path);
Result<DraftConfig> parse_draft_config(std::string_view json, const std::string& path);

// One sentence if the draft does not belong to the target (vocabulary, hidden size, taps, depth).
Result<void> check_pair(const TargetConfig& target, const DraftConfig& draft);

}  // namespace lagoon::checkpoint
