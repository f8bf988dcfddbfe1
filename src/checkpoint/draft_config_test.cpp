#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/config.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Pointer = Json::json_pointer;

const std::string kRoot = LAGOON_SOURCE_DIR;

Json nano() {
  return Json::parse(read_file(kRoot + "/models/laguna-nano-dflash-nvfp4/config.json"));
}

Result<DraftConfig> parse(const Json& config) {
  return parse_draft_config(config.dump(), "d/config.json");
}

std::string fault_with(const std::string& pointer, const Json& value) {
  Json config = nano();
  config[Pointer(pointer)] = value;
  const Result<DraftConfig> result = parse(config);
  if (!result.ok()) {
    EXPECT_THAT(result.error().message, HasSubstr("d/config.json"));
  }
  return message_of(result);
}

std::string fault_without(const std::string& pointer) {
  Json config = nano();
  const Pointer at(pointer);
  config[at.parent_pointer()].erase(at.back());
  return message_of(parse(config));
}

TargetConfig target_from(const std::string& path) {
  const Result<TargetConfig> target = parse_target_config(read_file(kRoot + path), path);
  EXPECT_TRUE(target.ok()) << target.error().message;
  return target.ok() ? *target : TargetConfig{};
}

TEST(DraftConfig, TheBundledOne) {
  const Result<DraftConfig> parsed = parse(nano());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const DraftConfig& c = *parsed;
  EXPECT_EQ(c.vocab, 4096);
  EXPECT_EQ(c.hidden, 256);
  EXPECT_EQ(c.intermediate, 512);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.heads, 6);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.window, 128);
  EXPECT_EQ(c.norm_epsilon, 1e-6F);
  EXPECT_EQ(c.gate, GateKind::kPerHead);
  EXPECT_FALSE(c.rope.yarn);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_EQ(c.rope.partial_rotary_factor, 1.0);
  EXPECT_EQ(c.block_size, 16);
  EXPECT_EQ(c.mask_token, 3);
  EXPECT_TRUE(c.causal);
  EXPECT_EQ(c.target_layers, 8);
  EXPECT_EQ(c.tap_layers, (std::vector<int>{1, 3, 5, 7}));
}

TEST(DraftConfig, TheFullSizeOneBelongsToItsTarget) {
  const std::string path = "/tests/fixtures/configs/laguna-s-2.1-dflash-nvfp4/config.json";
  const Result<DraftConfig> draft = parse_draft_config(read_file(kRoot + path), path);
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->layers, 6);
  EXPECT_EQ(draft->heads, 72);
  EXPECT_EQ(draft->mask_token, 12);
  EXPECT_EQ(draft->tap_layers, (std::vector<int>{1, 10, 19, 29, 38, 47}));
  const Result<void> pair =
      check_pair(target_from("/tests/fixtures/configs/laguna-s-2.1-nvfp4/config.json"), *draft);
  EXPECT_TRUE(pair.ok()) << pair.error().message;
}

// As other uploads have it: everything inside dflash_config, or at the top.
TEST(DraftConfig, FieldsMayLieInsideOrOutside) {
  Json inside = nano();
  for (const char* key : {"block_size", "num_target_layers"}) {
    inside["dflash_config"][key] = inside[key];
    EXPECT_TRUE(parse(inside).ok()) << "both places agree";
    inside.erase(key);
  }
  inside["tie_word_embeddings"] = true;
  inside["num_experts"] = 0;
  const Result<DraftConfig> parsed = parse(inside);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->block_size, 16);
  EXPECT_EQ(parsed->target_layers, 8);

  Json outside = nano();
  const Json inner = outside["dflash_config"];
  for (const auto& [key, value] : inner.items())
    if (key != "causal") outside[key] = value;
  outside.erase("dflash_config");
  const Result<DraftConfig> top = parse(outside);
  ASSERT_TRUE(top.ok()) << top.error().message;
  EXPECT_EQ(top->mask_token, 3);
  EXPECT_EQ(top->tap_layers, (std::vector<int>{1, 3, 5, 7}));

  EXPECT_THAT(fault_with("/dflash_config/block_size", 8),
              HasSubstr("block_size is 16, but dflash_config.block_size is 8"));
}

TEST(DraftConfig, TapsMayBeCountedFromOne) {
  Json config = nano();
  config["dflash_config"].erase("target_layer_ids");
  const Result<DraftConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->tap_layers, (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(fault_without("/eagle_aux_hidden_state_layer_ids"), "(no error)");
  EXPECT_THAT(fault_with("/eagle_aux_hidden_state_layer_ids", {1, 3, 5, 7}),
              HasSubstr("are not dflash_config.target_layer_ids plus 1"));
}

TEST(DraftConfig, DepthOfTheTargetNeedNotBeThere) {
  Json config = nano();
  config.erase("num_target_layers");
  EXPECT_EQ(parse(config)->target_layers, 0);
}

TEST(DraftConfig, ADraftThatIsNotCausalIsRefused) {
  EXPECT_THAT(fault_with("/dflash_config/causal", false),
              HasSubstr("dflash_config.causal is false: Lagoon needs a causal draft"));
  EXPECT_THAT(fault_with("/is_causal", false), HasSubstr("is_causal is false"));
  EXPECT_THAT(fault_with("/dflash_config/causal", "yes"), HasSubstr("true or false"));
  EXPECT_EQ(fault_without("/dflash_config/causal"), "(no error)");  // sliding layers are causal
}

TEST(DraftConfig, WhatIsNotALagunaDraft) {
  EXPECT_THAT(fault_with("/architectures", {"LagunaForCausalLM"}),
              HasSubstr("is of a target model, but a DFlash draft is wanted"));
  EXPECT_THAT(fault_with("/architectures", {"DFlashDraftModel"}),
              HasSubstr("not of a Laguna model: its architecture is \"DFlashDraftModel\""));
  EXPECT_THAT(fault_with("/model_type", "qwen3"), HasSubstr("its model_type is \"qwen3\""));
}

TEST(DraftConfig, WhatTheFileMustSayIsNamed) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
                          "gating", "sliding_window", "layer_types", "block_size"})
    EXPECT_THAT(fault_without(std::string("/") + key), HasSubstr(std::string(key) + " is missing"));
  EXPECT_THAT(fault_without("/dflash_config/mask_token_id"), HasSubstr("mask_token_id is missing"));
  Json config = nano();
  config.erase("eagle_aux_hidden_state_layer_ids");
  config["dflash_config"].erase("target_layer_ids");
  EXPECT_THAT(message_of(parse(config)), HasSubstr("does not name the target layers"));
}

TEST(DraftConfig, RangesAndUnsupportedFeatures) {
  const std::vector<std::pair<const char*, Json>> changes = {
      {"/block_size", 1},
      {"/block_size", 16.0},
      {"/dflash_config/mask_token_id", 4096},
      {"/dflash_config/mask_token_id", -1},
      {"/dflash_config/target_layer_ids", Json::array()},
      {"/dflash_config/target_layer_ids", {3, 1, 5, 7}},
      {"/dflash_config/target_layer_ids", {1, 1, 5, 7}},
      {"/dflash_config/target_layer_ids", {-1, 3, 5, 7}},
      {"/dflash_config/target_layer_ids", {1, 3, 5, "7"}},
      {"/dflash_config", 3},
      {"/num_target_layers", 7},
      {"/num_target_layers", 0},
      {"/num_attention_heads", 7},
      {"/num_attention_heads", 0},
      {"/num_hidden_layers", 3},
      {"/head_dim", 3},
      {"/layer_types", {"sliding_attention", "full_attention"}},
      {"/sliding_window", 0},
      {"/draft_vocab_size", 2048},
      {"/num_experts", 8},
      {"/attention_bias", true},
      {"/hidden_act", "gelu"},
      {"/quantization_config", {{"quant_method", "gptq"}}},
  };
  for (const auto& [pointer, value] : changes)
    EXPECT_NE(fault_with(pointer, value), "(no error)") << pointer << " " << value;
  EXPECT_THAT(fault_with("/num_target_layers", 7),
              HasSubstr("num_target_layers is 7, but the draft taps layer 7"));
}

TEST(CheckPair, SaysWhatDoesNotFit) {
  const TargetConfig target = target_from("/models/laguna-nano-nvfp4/config.json");
  const DraftConfig good = *parse(nano());
  ASSERT_TRUE(check_pair(target, good).ok());
  const auto fault = [&](auto change) {
    DraftConfig draft = good;
    change(draft);
    std::string message = message_of(check_pair(target, draft));
    EXPECT_THAT(message, HasSubstr("the draft does not belong to this target"));
    return message;
  };
  EXPECT_THAT(fault([](DraftConfig& d) { d.vocab = 100352; }), HasSubstr("100352"));
  EXPECT_THAT(fault([](DraftConfig& d) { d.hidden = 3072; }), HasSubstr("hidden_size is 3072"));
  EXPECT_THAT(fault([](DraftConfig& d) { d.target_layers = 48; }), HasSubstr("48 target layers"));
  EXPECT_THAT(fault([](DraftConfig& d) {
                d.target_layers = 0;
                d.tap_layers = {1, 8};
              }),
              HasSubstr("taps layer 8"));
}

}  // namespace
}  // namespace lagoon::checkpoint
