#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Pointer = Json::json_pointer;

const std::string kRoot = LAGOON_SOURCE_DIR;

Json nano() {
  return Json::parse(read_file(kRoot + "/models/laguna-nano-nvfp4/config.json"));
}

Result<TargetConfig> parse(const Json& config) {
  return parse_target_config(config.dump(), "m/config.json");
}

// The message when the nano config has `value` at `pointer`.
std::string fault_with(const std::string& pointer, const Json& value) {
  Json config = nano();
  config[Pointer(pointer)] = value;
  const Result<TargetConfig> result = parse(config);
  if (!result.ok()) {
    EXPECT_THAT(result.error().message, HasSubstr("m/config.json"));
  }
  return message_of(result);
}

// The message when the nano config lacks what is at `pointer`.
std::string fault_without(const std::string& pointer) {
  Json config = nano();
  const Pointer at(pointer);
  config[at.parent_pointer()].erase(at.back());
  std::string message = message_of(parse(config));
  EXPECT_THAT(fault_with(pointer, nullptr), message) << "null is not the same as absent";
  return message;
}

TEST(TargetConfig, TheBundledOne) {
  const Result<TargetConfig> parsed = parse(nano());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const TargetConfig& c = *parsed;
  EXPECT_EQ(c.vocab, 4096);
  EXPECT_EQ(c.hidden, 256);
  EXPECT_EQ(c.intermediate, 1024);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.window, 128);
  EXPECT_EQ(c.experts, 32);
  EXPECT_EQ(c.top_k, 4);
  EXPECT_EQ(c.moe_intermediate, 128);
  EXPECT_EQ(c.shared_intermediate, 128);
  EXPECT_EQ(c.routed_scale, 2.5F);
  EXPECT_EQ(c.router_softcap, 0.0F);
  EXPECT_EQ(c.norm_epsilon, 1e-6F);
  EXPECT_EQ(c.max_positions, 16384);
  EXPECT_EQ(c.gate, GateKind::kPerHead);
  EXPECT_EQ(c.bos, 2);
  EXPECT_EQ(c.eos, (std::vector<int32_t>{2, 5}));
  ASSERT_EQ(c.layers.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(c.layers[i].sliding, i % 4 != 0) << i;
    EXPECT_EQ(c.layers[i].sparse, i != 0) << i;
    EXPECT_EQ(c.layers[i].heads, i % 4 == 0 ? 4 : 6) << i;
  }
  EXPECT_TRUE(c.full_rope.yarn);
  EXPECT_EQ(c.full_rope.theta, 500000.0);
  EXPECT_EQ(c.full_rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(c.full_rope.factor, 16.0);
  EXPECT_EQ(c.full_rope.attention_factor, 1.2772588722239782);
  EXPECT_EQ(c.full_rope.original_max_position, 1024);
  EXPECT_EQ(c.full_rope.beta_fast, 32.0);
  EXPECT_EQ(c.full_rope.beta_slow, 1.0);
  EXPECT_FALSE(c.sliding_rope.yarn);
  EXPECT_EQ(c.sliding_rope.theta, 10000.0);
  EXPECT_EQ(c.sliding_rope.partial_rotary_factor, 1.0);
  EXPECT_EQ(c.sliding_rope.attention_factor, 1.0);
}

TEST(TargetConfig, TheFullSizeOne) {
  const std::string path = kRoot + "/tests/fixtures/configs/laguna-s-2.1-nvfp4/config.json";
  const Result<TargetConfig> parsed = parse_target_config(read_file(path), path);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const TargetConfig& c = *parsed;
  EXPECT_EQ(c.vocab, 100352);
  EXPECT_EQ(c.hidden, 3072);
  EXPECT_EQ(c.intermediate, 12288);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.window, 512);
  EXPECT_EQ(c.experts, 256);
  EXPECT_EQ(c.top_k, 10);
  EXPECT_EQ(c.moe_intermediate, 1024);
  EXPECT_EQ(c.max_positions, 262144);
  EXPECT_EQ(c.eos, (std::vector<int32_t>{2, 24}));
  ASSERT_EQ(c.layers.size(), 48u);
  for (size_t i = 0; i < 48; ++i) EXPECT_EQ(c.layers[i].heads, c.layers[i].sliding ? 72 : 48) << i;
  EXPECT_EQ(c.full_rope.factor, 32.0);
  EXPECT_EQ(c.full_rope.original_max_position, 8192);
}

TEST(TargetConfig, OtherMembersOfTheFamily) {
  // Full attention only, a gate per element, two dense layers, no window in use.
  Json m1 = nano();
  m1["layer_types"] = std::vector<std::string>(8, "full_attention");
  m1["num_attention_heads_per_layer"] = std::vector<int>(8, 8);
  m1["gating"] = "per-element";
  m1["rope_parameters"].erase("sliding_attention");
  Result<TargetConfig> parsed = parse(m1);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->gate, GateKind::kPerElement);
  EXPECT_EQ(parsed->window, 0);
  m1.erase("layer_types");
  m1.erase("sliding_window");
  parsed = parse(m1);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_FALSE(parsed->layers[3].sliding);

  Json softcap = nano();
  softcap["moe_router_logit_softcapping"] = 2.0;
  softcap["gating"] = true;
  parsed = parse(softcap);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->router_softcap, 2.0F);
  EXPECT_EQ(parsed->gate, GateKind::kPerHead);

  // Without experts their sizes need not be there.
  Json dense = nano();
  dense["mlp_layer_types"] = std::vector<std::string>(8, "dense");
  for (const char* key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                          "shared_expert_intermediate_size", "moe_routed_scaling_factor"})
    dense.erase(key);
  parsed = parse(dense);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->experts, 0);
}

TEST(TargetConfig, ModelsOfOthersAreNamed) {
  EXPECT_THAT(fault_with("/model_type", "llama"),
              HasSubstr("is not of a Laguna model: its model_type is \"llama\""));
  EXPECT_THAT(fault_with("/architectures", {"LlamaForCausalLM"}),
              HasSubstr("is not of a Laguna model: its architecture is \"LlamaForCausalLM\""));
  EXPECT_THAT(fault_with("/architectures", Json::array()), HasSubstr("not named"));
  EXPECT_THAT(fault_without("/model_type"), HasSubstr("model_type is missing"));
  EXPECT_THAT(fault_without("/architectures"), HasSubstr("architectures is missing"));
  EXPECT_THAT(fault_with("/architectures", {"DFlashLagunaForCausalLM"}),
              HasSubstr("is of a DFlash draft, but a target model is wanted"));
}

TEST(TargetConfig, WhatTheFileMustSayIsNamed) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "gating",
        "sliding_window", "layer_types", "mlp_layer_types", "moe_intermediate_size",
        "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok",
        "moe_routed_scaling_factor", "eos_token_id"})
    EXPECT_THAT(fault_without(std::string("/") + key), HasSubstr(std::string(key) + " is missing"));
  for (const char* key :
       {"full_attention", "sliding_attention", "full_attention/rope_theta",
        "sliding_attention/rope_theta", "full_attention/rope_type", "full_attention/factor",
        "full_attention/original_max_position_embeddings",
        "full_attention/partial_rotary_factor"}) {
    const std::string last = std::string(key).substr(std::string(key).find('/') + 1);
    EXPECT_THAT(fault_without(std::string("/rope_parameters/") + key),
                HasSubstr(last + " is missing"));
  }
  EXPECT_THAT(fault_without("/rope_parameters"),
              HasSubstr("rope_theta is missing for sliding_attention layers"));
}

TEST(TargetConfig, WhatTheFileNeedNotSay) {
  for (const char* key :
       {"hidden_act", "tie_word_embeddings", "attention_bias", "attention_dropout", "bos_token_id",
        "moe_apply_router_weight_on_input", "moe_router_logit_softcapping", "quantization_config",
        "num_attention_heads", "torch_dtype", "rope_parameters/full_attention/beta_fast",
        "rope_parameters/full_attention/beta_slow", "rope_parameters/sliding_attention/rope_type"})
    EXPECT_EQ(fault_without(std::string("/") + key), "(no error)") << key;
}

TEST(TargetConfig, UnsupportedFeaturesAreRefusedByName) {
  const std::vector<std::pair<const char*, Json>> changes = {
      {"attention_bias", true},
      {"qkv_bias", true},
      {"mlp_bias", true},
      {"swa_attention_sink_enabled", true},
      {"moe_apply_router_weight_on_input", true},
      {"tie_word_embeddings", true},
      {"hidden_act", "gelu"},
      {"rope_style", "interleaved"},
      {"norm_topk_prob", false},
      {"moe_router_use_sigmoid", false},
      {"moe_router_score_func", "softmax"},
      {"final_logit_softcapping", 30.0},
      {"attn_logit_softcapping", 50},
      {"gating", "per-layer"},
      {"gating", false},
      {"gating_types", {"per-head", "per-element"}},
  };
  for (const auto& [key, value] : changes) {
    Json config = nano();
    config[key] = value;
    const Result<TargetConfig> result = parse(config);
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported) << key;
    EXPECT_THAT(result.error().message, HasSubstr(std::string("m/config.json: ") + key));
  }
  EXPECT_EQ(fault_with("/norm_topk_prob", true), "(no error)");
  EXPECT_EQ(fault_with("/gating_types", std::vector<std::string>(8, "per-head")), "(no error)");
}

TEST(TargetConfig, RangesAndTypes) {
  const std::vector<std::pair<const char*, Json>> changes = {
      {"vocab_size", 0},
      {"vocab_size", -4096},
      {"vocab_size", 4096.0},
      {"vocab_size", "4096"},
      {"vocab_size", 4294971392},
      {"vocab_size", 18446744073709551615u},
      {"hidden_size", 0},
      {"intermediate_size", true},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", 2000000000},
      {"num_hidden_layers", 9},
      {"num_key_value_heads", 0},
      {"num_key_value_heads", 8192},
      {"hidden_size", 2097152},
      {"num_experts", 2048},
      {"max_position_embeddings", 2147483648},
      {"head_dim", 127},
      {"head_dim", 8192},
      {"head_dim", 0},
      {"sliding_window", 0},
      {"sliding_window", -1},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", -1e-6},
      {"rms_norm_eps", "1e-6"},
      {"max_position_embeddings", 0},
      {"max_position_embeddings", 1},  // no room for a prompt and an answer
      {"num_experts", 0},
      {"num_experts_per_tok", 33},
      {"num_experts_per_tok", 0},
      {"moe_intermediate_size", 0},
      {"shared_expert_intermediate_size", 0},
      {"moe_routed_scaling_factor", 0},
      {"moe_router_logit_softcapping", -1},
      {"bos_token_id", 4096},
      {"bos_token_id", -1},
      {"eos_token_id", 4096},
      {"eos_token_id", Json::array()},
      {"eos_token_id", {2, 4096}},
      {"eos_token_id", {2, "5"}},
      {"num_attention_heads_per_layer", {4, 6}},
      {"num_attention_heads_per_layer", {4, 6, 6, 6, 4, 6, 6, 0}},
      {"num_attention_heads_per_layer", {4, 6, 6, 6, 4, 6, 6, 7}},
      {"num_attention_heads_per_layer", 6},
      {"layer_types", {"full_attention"}},
      {"layer_types", std::vector<std::string>(8, "linear_attention")},
      {"layer_types", std::vector<int>(8, 1)},
      {"mlp_layer_types", {"dense"}},
      {"mlp_layer_types", std::vector<std::string>(8, "moe")},
      {"model_type", 1},
      {"architectures", "LagunaForCausalLM"},
      {"attention_bias", "false"},
      {"hidden_act", 1},
      {"quantization_config", "nvfp4"},
      {"rope_parameters", 1},
  };
  for (const auto& [key, value] : changes) {
    const std::string message = fault_with(std::string("/") + key, value);
    // An entry too few or too many layers is named by the list that disagrees.
    const std::string named = message.find("num_hidden_layers") != std::string::npos ? "" : key;
    EXPECT_NE(message, "(no error)") << key << " " << value;
    EXPECT_THAT(message, HasSubstr(named)) << value;
  }
  EXPECT_THAT(fault_with("/num_attention_heads_per_layer", {4, 6, 6, 6, 4, 6, 6, 7}),
              HasSubstr("7, which is not a multiple of num_key_value_heads 2"));
}

TEST(TargetConfig, CachesOfEightBitFloats) {
  const auto fp8_with = [](const Json& scheme) {
    Json config = nano();
    config["quantization_config"]["kv_cache_scheme"] = scheme;
    return parse(config).value().fp8_cache;
  };
  EXPECT_FALSE(fp8_with(nullptr));
  EXPECT_TRUE(fp8_with({{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}));
  EXPECT_FALSE(fp8_with({{"num_bits", 8}, {"type", "int"}}));
  EXPECT_FALSE(fp8_with({{"num_bits", 4}, {"type", "float"}}));
  EXPECT_THAT(fault_with("/quantization_config/kv_cache_scheme", "fp8"),
              HasSubstr("quantization_config.kv_cache_scheme"));
}

TEST(TargetConfig, TextThatIsNoConfig) {
  for (std::string_view text : {"", "{", "\xff", "{\"a\":1,}", "{\"a\":NaN}"})
    EXPECT_THAT(message_of(parse_target_config(text, "m/config.json")),
                HasSubstr("m/config.json is not valid JSON"))
        << text;
  for (std::string_view text : {"[]", "null", "\"laguna\"", "3"})
    EXPECT_THAT(message_of(parse_target_config(text, "m/config.json")),
                HasSubstr("m/config.json is not a JSON object"));
  EXPECT_THAT(message_of(parse_target_config(R"({"model_type":"a","model_type":"b"})", "c")),
              HasSubstr("c: the key \"model_type\" is there twice"));
  EXPECT_THAT(message_of(parse_target_config(std::string(100000, '['), "c")),
              HasSubstr("not valid JSON"));
}

TEST(TargetConfig, EosMayBeOneId) {
  Json config = nano();
  config["eos_token_id"] = 5;
  const Result<TargetConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->eos, std::vector<int32_t>{5});
}

TEST(TargetConfig, HeadsWithoutAListAreThoseOfTheTop) {
  Json config = nano();
  config.erase("num_attention_heads_per_layer");
  const Result<TargetConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  for (const LayerConfig& layer : parsed->layers) EXPECT_EQ(layer.heads, 4);
  config.erase("num_attention_heads");
  EXPECT_THAT(message_of(parse(config)), HasSubstr("num_attention_heads is missing"));
}

TEST(TargetConfig, SparseLayersByStep) {
  const auto sparse = [](const Json& changes) {
    Json config = nano();
    config.erase("mlp_layer_types");
    config.update(changes);
    const Result<TargetConfig> parsed = parse(config);
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    std::string pattern;
    if (parsed.ok())
      for (const LayerConfig& layer : parsed->layers) pattern += layer.sparse ? 's' : 'd';
    return pattern;
  };
  EXPECT_EQ(sparse({{"mlp_only_layers", {0}}}), "dsssssss");
  EXPECT_EQ(sparse({{"mlp_only_layers", {0, 1, 2}}, {"decoder_sparse_step", 1}}), "dddsssss");
  EXPECT_EQ(sparse({{"decoder_sparse_step", 2}}), "dsdsdsds");
  EXPECT_EQ(sparse({{"decoder_sparse_step", 1}}), "ssssssss");
  EXPECT_EQ(fault_with("/mlp_only_layers", {0}), "(no error)");  // agrees with the list
  EXPECT_THAT(fault_with("/mlp_only_layers", {0, 1}),
              HasSubstr("contradicts mlp_only_layers and decoder_sparse_step"));
  EXPECT_THAT(fault_with("/mlp_only_layers", {8}), HasSubstr("integers from 0 to 7"));
  EXPECT_THAT(fault_with("/decoder_sparse_step", 0), HasSubstr("decoder_sparse_step"));
}

TEST(TargetConfig, QuantizationFormatsNobodyKnowsAreRefused) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "modelopt", "fp8"})
    EXPECT_THAT(fault_with("/quantization_config/quant_method", method),
                HasSubstr(std::string("quantization_config.quant_method is \"") + method));
  EXPECT_THAT(fault_with("/quantization_config/format", "pack-quantized"),
              AllOf(HasSubstr("quantization_config.format"), HasSubstr("\"pack-quantized\"")));
  EXPECT_THAT(fault_with("/quantization_config/config_groups/group_0/format", "int-quantized"),
              HasSubstr("config_groups.group_0.format is \"int-quantized\""));
  EXPECT_THAT(fault_with("/compression_config", {{"quant_method", "gptq"}}),
              HasSubstr("compression_config.quant_method"));
  EXPECT_EQ(fault_with("/quantization_config/format", "float-quantized"), "(no error)");
  EXPECT_EQ(fault_with("/quantization_config/format", "mixed-precision"), "(no error)");
}

}  // namespace
}  // namespace lagoon::checkpoint
