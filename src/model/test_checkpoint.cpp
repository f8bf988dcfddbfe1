// Checkpoints for tests: read, written, and made of random weights.
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <random>

#include "checkpoint/safetensors_writer.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

using numeric::DType;

constexpr int64_t kHidden = 160;
constexpr int64_t kMoeIntermediate = 144;
constexpr int64_t kHeadDim = 16;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kVocab = 64;
constexpr int64_t kExperts = 4;

template <typename T>
std::vector<std::byte> to_bytes(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

// The same values for the same name, whatever else a checkpoint holds.
std::mt19937 generator_for(const std::string& name) {
  uint32_t seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 16777619u;
  return std::mt19937(seed);
}

float uniform(std::mt19937& generator) {  // [0, 1)
  return static_cast<float>(generator() >> 8) * 0x1p-24f;
}

TensorData random_matrix(const std::string& name, int64_t rows, int64_t columns) {
  std::mt19937 generator = generator_for(name);
  const float range = std::sqrt(3.0f / static_cast<float>(columns));
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (float& value : values) value = range * (2 * uniform(generator) - 1);
  return bfloat16_tensor({rows, columns}, values);
}

TensorData random_norm(const std::string& name, int64_t length) {
  std::mt19937 generator = generator_for(name);
  std::vector<float> values(static_cast<size_t>(length));
  for (float& value : values) value = 0.75f + 0.5f * uniform(generator);
  return bfloat16_tensor({length}, values);
}

void add_matrix(TensorMap& tensors, const std::string& name, int64_t rows, int64_t columns) {
  tensors[name] = random_matrix(name, rows, columns);
}

void add_norm(TensorMap& tensors, const std::string& name, int64_t length) {
  tensors[name] = random_norm(name, length);
}

// An expert matrix that every format holds exactly: w = e2m1 code * group scale / global scale.
struct ExpertMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint8_t> codes;       // [rows, columns]
  std::vector<float> group_scales;  // [rows, columns / 16], 1 or 2
  float global_scale = 1;           // 64 or 128

  float weight(int64_t row, int64_t column) const {
    const auto at = static_cast<size_t>(row * columns + column);
    const auto group = static_cast<size_t>(row * (columns / 16) + column / 16);
    return numeric::e2m1_to_float(codes[at]) * group_scales[group] / global_scale;
  }
  std::vector<float> weights() const {
    std::vector<float> values;
    values.reserve(codes.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) values.push_back(weight(row, column));
    }
    return values;
  }
};

ExpertMatrix random_expert(const std::string& name, int64_t rows, int64_t columns) {
  std::mt19937 generator = generator_for(name);
  ExpertMatrix matrix{.rows = rows, .columns = columns, .codes = {}, .group_scales = {}};
  matrix.global_scale = generator() % 2 == 0 ? 64.0f : 128.0f;
  matrix.codes.resize(static_cast<size_t>(rows * columns));
  for (uint8_t& code : matrix.codes) code = static_cast<uint8_t>(generator() % 16);
  matrix.group_scales.resize(matrix.codes.size() / 16);
  for (float& scale : matrix.group_scales) scale = generator() % 2 == 0 ? 1.0f : 2.0f;
  return matrix;
}

void add_nvfp4(TensorMap& tensors, const std::string& name, const ExpertMatrix& matrix) {
  std::vector<uint8_t> packed(matrix.codes.size() / 2);
  for (size_t i = 0; i < packed.size(); ++i) {
    packed[i] = static_cast<uint8_t>(matrix.codes[2 * i] | (matrix.codes[2 * i + 1] << 4));
  }
  std::vector<uint8_t> scales;
  scales.reserve(matrix.group_scales.size());
  for (const float scale : matrix.group_scales) scales.push_back(numeric::float_to_e4m3(scale));
  tensors[name + ".weight_packed"] = {
      DType::kU8, {matrix.rows, matrix.columns / 2}, to_bytes(packed)};
  tensors[name + ".weight_scale"] = {
      DType::kF8E4M3, {matrix.rows, matrix.columns / 16}, to_bytes(scales)};
  // Both spellings of a scalar are about.
  const std::vector<int64_t> scalar =
      matrix.global_scale == 64 ? std::vector<int64_t>{} : std::vector<int64_t>{1};
  tensors[name + ".weight_global_scale"] = float_tensor(scalar, {matrix.global_scale});
  tensors[name + ".input_global_scale"] = float_tensor(scalar, {67.2f});
}

void add_fp8(TensorMap& tensors, const std::string& name, const ExpertMatrix& matrix,
             bool bfloat16_scales) {
  const int64_t block_columns = (matrix.columns + 127) / 128;
  const int64_t block_rows = (matrix.rows + 127) / 128;
  std::vector<float> scales(static_cast<size_t>(block_rows * block_columns));
  for (size_t i = 0; i < scales.size(); ++i) {  // not the same in neighbouring blocks
    scales[i] = std::ldexp(1.0f, -7 + static_cast<int>(i % 3));
  }
  std::vector<uint8_t> codes;
  codes.reserve(matrix.codes.size());
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      const auto block = static_cast<size_t>(row / 128 * block_columns + column / 128);
      codes.push_back(numeric::float_to_e4m3(matrix.weight(row, column) / scales[block]));
    }
  }
  tensors[name + ".weight"] = {DType::kF8E4M3, {matrix.rows, matrix.columns}, to_bytes(codes)};
  tensors[name + ".weight_scale"] = bfloat16_scales
                                        ? bfloat16_tensor({block_rows, block_columns}, scales)
                                        : float_tensor({block_rows, block_columns}, scales);
}

void add_expert(TensorMap& tensors, const std::string& name, int64_t rows, int64_t columns,
                ExpertFormat format) {
  const ExpertMatrix matrix = random_expert(name, rows, columns);
  switch (format) {
    case ExpertFormat::kFloat32:
      tensors[name + ".weight"] = float_tensor({rows, columns}, matrix.weights());
      break;
    case ExpertFormat::kBFloat16:
      tensors[name + ".weight"] = bfloat16_tensor({rows, columns}, matrix.weights());
      break;
    case ExpertFormat::kFP8:
      add_fp8(tensors, name, matrix, false);
      break;
    case ExpertFormat::kFP8WithBFloat16Scales:
      add_fp8(tensors, name, matrix, true);
      break;
    case ExpertFormat::kNVFP4:
      add_nvfp4(tensors, name, matrix);
      break;
    case ExpertFormat::kMixed: {
      constexpr ExpertFormat kFormats[] = {ExpertFormat::kNVFP4, ExpertFormat::kBFloat16,
                                           ExpertFormat::kFP8, ExpertFormat::kFloat32};
      add_expert(tensors, name, rows, columns, kFormats[generator_for(name + "?")() % 4]);
      break;
    }
  }
}

void add_attention(TensorMap& tensors, const std::string& layer, int64_t heads) {
  const std::string self_attn = layer + "self_attn.";
  add_matrix(tensors, self_attn + "q_proj.weight", heads * kHeadDim, kHidden);
  add_matrix(tensors, self_attn + "k_proj.weight", kKvHeads * kHeadDim, kHidden);
  add_matrix(tensors, self_attn + "v_proj.weight", kKvHeads * kHeadDim, kHidden);
  add_matrix(tensors, self_attn + "g_proj.weight", heads, kHidden);
  add_matrix(tensors, self_attn + "o_proj.weight", kHidden, heads * kHeadDim);
  add_norm(tensors, self_attn + "q_norm.weight", kHeadDim);
  add_norm(tensors, self_attn + "k_norm.weight", kHeadDim);
  add_norm(tensors, layer + "input_layernorm.weight", kHidden);
  add_norm(tensors, layer + "post_attention_layernorm.weight", kHidden);
}

void add_mlp(TensorMap& tensors, const std::string& prefix, int64_t intermediate) {
  add_matrix(tensors, prefix + "gate_proj.weight", intermediate, kHidden);
  add_matrix(tensors, prefix + "up_proj.weight", intermediate, kHidden);
  add_matrix(tensors, prefix + "down_proj.weight", kHidden, intermediate);
}

void add_sparse(TensorMap& tensors, const std::string& mlp, ExpertFormat format) {
  add_matrix(tensors, mlp + "gate.weight", kExperts, kHidden);
  std::vector<float> bias;
  bias.reserve(kExperts);
  for (int64_t e = 0; e < kExperts; ++e) bias.push_back(0.03f * static_cast<float>(e));
  tensors[mlp + "experts.e_score_correction_bias"] = float_tensor({kExperts}, bias);
  add_mlp(tensors, mlp + "shared_expert.", 48);
  for (int64_t e = 0; e < kExperts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", mlp, e);
    add_expert(tensors, expert + "gate_proj", kMoeIntermediate, kHidden, format);
    add_expert(tensors, expert + "up_proj", kMoeIntermediate, kHidden, format);
    add_expert(tensors, expert + "down_proj", kHidden, kMoeIntermediate, format);
  }
}

}  // namespace

TensorData float_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  return {DType::kF32, std::move(shape), to_bytes(values)};
}

TensorData bfloat16_tensor(std::vector<int64_t> shape, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(numeric::to_bfloat16(value).bits);
  return {DType::kBF16, std::move(shape), to_bytes(bits)};
}

TensorMap read_tensors(const std::string& directory) {
  const checkpoint::ModelDir dir = open_dir(directory);
  TensorMap tensors;
  auto file = checkpoint::SafetensorsFile::open(dir.file_path("model.safetensors"));
  CHECK(file.ok());
  for (const checkpoint::TensorInfo& info : file->tensors()) {
    const std::span<const std::byte> bytes = file->bytes(info);
    tensors[info.name] = {info.dtype, info.shape, {bytes.begin(), bytes.end()}};
  }
  return tensors;
}

void write_model(const std::string& directory, const std::string& config,
                 const TensorMap& tensors) {
  std::vector<checkpoint::TensorToWrite> list;
  list.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    list.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  CHECK(checkpoint::write_safetensors(directory + "/model.safetensors", list).ok());
  std::ofstream(directory + "/config.json") << config;
}

std::string tiny_config() {
  return R"({
    "architectures": ["LagunaForCausalLM"], "model_type": "laguna", "vocab_size": 64,
    "hidden_size": 160, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_attention_heads_per_layer": [4, 6, 4, 6], "num_key_value_heads": 2, "head_dim": 16,
    "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false, "attention_bias": false, "gating": "per-head",
    "sliding_window": 8,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "moe_intermediate_size": 144,
    "shared_expert_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_routed_scaling_factor": 2.5, "moe_apply_router_weight_on_input": false,
    "moe_router_logit_softcapping": 0.0,
    "rope_parameters": {
      "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "partial_rotary_factor": 0.5,
        "factor": 16.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
        "beta_slow": 1.0, "attention_factor": 1.2772588722239782},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
        "partial_rotary_factor": 1.0}},
    "torch_dtype": "bfloat16", "bos_token_id": 2, "eos_token_id": [2, 5], "pad_token_id": 1})";
}

TensorMap tiny_tensors(ExpertFormat format) {
  constexpr int kHeads[] = {4, 6, 4, 6};
  TensorMap tensors;
  add_matrix(tensors, "model.embed_tokens.weight", kVocab, kHidden);
  add_matrix(tensors, "lm_head.weight", kVocab, kHidden);
  add_norm(tensors, "model.norm.weight", kHidden);
  for (int i = 0; i < 4; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    add_attention(tensors, layer, kHeads[i]);
    tensors[layer + "self_attn.k_scale"] = bfloat16_tensor({1}, {1});
    tensors[layer + "self_attn.v_scale"] = float_tensor({}, {1});
    if (i == 0) {
      add_mlp(tensors, layer + "mlp.", 80);
    } else {
      add_sparse(tensors, layer + "mlp.", format);
    }
  }
  return tensors;
}

std::string tiny_draft_config() {
  return R"({
    "architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna", "vocab_size": 64,
    "draft_vocab_size": 64, "hidden_size": 160, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "gating": "per-head", "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention"], "max_position_embeddings": 512,
    "tie_word_embeddings": false,
    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0,
      "partial_rotary_factor": 1.0}},
    "block_size": 6,
    "dflash_config": {"target_layer_ids": [0, 2], "mask_token_id": 3, "causal": true},
    "torch_dtype": "bfloat16", "num_target_layers": 4,
    "eagle_aux_hidden_state_layer_ids": [1, 3]})";
}

TensorMap tiny_draft_tensors() {
  TensorMap tensors;
  add_matrix(tensors, "fc.weight", kHidden, 2 * kHidden);
  for (const char* name : {"aux_hidden_norms.0", "aux_hidden_norms.1", "hidden_norm", "norm"}) {
    add_norm(tensors, std::string(name) + ".weight", kHidden);
  }
  for (int i = 0; i < 2; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    add_attention(tensors, layer, 4);
    add_mlp(tensors, layer + "mlp.", 96);
  }
  return tensors;
}

}  // namespace lagoon::model::testing
