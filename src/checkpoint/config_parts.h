// What target and draft configs have in common: whose model it is, features that are refused,
// quantisation formats, gate and rotary embedding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/json_value.h"

namespace lagoon::checkpoint {

// Bounds far above any real model, such that heads * head_dim, experts * intermediate and
// taps * hidden fit an int.
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden and intermediate sizes
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxExperts = 1024;
constexpr int64_t kMaxTaps = 256;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

constexpr std::string_view kTargetArchitecture = "LagunaForCausalLM";
constexpr std::string_view kDraftArchitecture = "DFlashLagunaForCausalLM";

// An error unless model_type is laguna and architectures names `wanted`.
Result<void> check_architecture(const JsonFields& config, std::string_view wanted);

// Refuses what changes the mathematics of either model and is not implemented: biases, sinks,
// another activation ...
Result<void> refuse_unsupported_features(const JsonFields& config);

// Refuses quantisation methods and formats whose tensors Lagoon cannot read. Which tensor is
// quantised is read from the tensors themselves.
Result<void> check_quantization(const JsonFields& config);

// Whether keys and values are to be cached as 8-bit floats: the kv_cache_scheme of a quantization.
Result<bool> parse_fp8_cache(const JsonFields& config);

// `gating`, and `gating_types` where a file has it.
Result<GateKind> parse_gate(const JsonFields& config);

// An integer field from 1 to `highest`.
Result<int> parse_extent(const JsonFields& config, std::string_view key, int64_t highest);

Result<int> parse_head_dim(const JsonFields& config);

// Heads of queries must be a multiple of those of keys.
Result<void> check_heads(const JsonFields& config, std::string_view key, int64_t heads,
                         int64_t kv_heads);

// Entries of layer_types as `sliding`. Without the key: all full where there is no sliding_window,
// else an error.
Result<std::vector<bool>> parse_sliding_layers(const JsonFields& config, int64_t layers);

enum class ModelRole { kTarget, kDraft };

// The rotary embedding of layers of `layer_type` ("full_attention" or "sliding_attention"). Its
// parameters are rope_parameters.<layer_type>; for sliding layers else swa_rope_parameters; else
// rope_parameters itself; else rope_scaling and the top level. theta is taken from the first of
// these, rope_parameters and the top level that has it: one that none has is an error. A draft is
// plain rotary embedding; a target must say partial_rotary_factor, and its flat parameters are not
// stretched (yarn) on sliding layers.
Result<RopeConfig> parse_rope(const JsonFields& config, std::string_view layer_type, int head_dim,
                              ModelRole role);

}  // namespace lagoon::checkpoint
