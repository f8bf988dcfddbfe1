#include "checkpoint/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::HasSubstr;

const std::string kFixtures = std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/";

QuantizationScheme parse(const std::string& json) {
  auto scheme = QuantizationScheme::parse(json, "config.json");
  EXPECT_TRUE(scheme.ok()) << message_of(scheme);
  return std::move(scheme).value();
}

std::string error(const std::string& json) {
  return message_of(QuantizationScheme::parse(json, "config.json"));
}

// A quantization_config of one group, with `fields` after its format.
std::string config(const std::string& format, const std::string& fields) {
  return R"({"quantization_config":{"quant_method":"compressed-tensors","format":")" + format +
         R"(",)" + fields + "}}";
}

const std::string kLinear = R"("config_groups":{"g":{"targets":["Linear"]}})";

TEST(Quantization, ThePublishedConfig) {
  const auto scheme = parse(read_file(kFixtures + "laguna-s-2.1-nvfp4/config.json"));
  EXPECT_EQ(scheme.storage("model.layers.1.mlp.experts.0.gate_proj"), Storage::kNVFP4);
  EXPECT_EQ(scheme.storage("model.layers.47.mlp.experts.255.down_proj"), Storage::kNVFP4);
  for (const char* module :
       {"lm_head", "model.layers.0.mlp.gate_proj", "model.layers.3.self_attn.q_proj",
        "model.layers.3.mlp.gate", "model.layers.3.mlp.shared_expert.up_proj"}) {
    EXPECT_EQ(scheme.storage(module), Storage::kPlain) << module;
  }
  EXPECT_TRUE(scheme.has_cache_scales());
}

TEST(Quantization, WithoutOneEverythingIsPlain) {
  const auto scheme = parse(read_file(kFixtures + "laguna-s-2.1-dflash-nvfp4/config.json"));
  EXPECT_EQ(scheme.storage("layers.0.mlp.gate_proj"), Storage::kPlain);
  EXPECT_FALSE(scheme.has_cache_scales());
}

TEST(Quantization, ExpressionsMatchFromTheStartOfTheName) {
  const auto scheme =
      parse(config("float-quantized", kLinear + R"(,"ignore":["re:layers\\.1","a.b"])"));
  EXPECT_EQ(scheme.storage("layers.12.up_proj"), Storage::kPlain);
  EXPECT_EQ(scheme.storage("model.layers.1.up_proj"), Storage::kFP8);
  EXPECT_EQ(scheme.storage("a.b"), Storage::kPlain);
  EXPECT_EQ(scheme.storage("a.b.c"), Storage::kFP8);
}

TEST(Quantization, TheFirstGroupThatNamesAModuleDecides) {
  const auto scheme = parse(
      config("mixed-precision",
             R"("config_groups":{"a":{"format":"float-quantized","targets":["re:.*down_proj$"]},
         "b":{"format":"nvfp4-pack-quantized","targets":["re:.*experts.*"]}})"));
  EXPECT_EQ(scheme.storage("mlp.experts.0.down_proj"), Storage::kFP8);
  EXPECT_EQ(scheme.storage("mlp.experts.0.up_proj"), Storage::kNVFP4);
  EXPECT_EQ(scheme.storage("lm_head"), Storage::kPlain);
}

TEST(Quantization, WhatIsNotUnderstoodIsNamed) {
  EXPECT_THAT(error(config("mixed-precision", kLinear)), HasSubstr("mixed-precision"));
  EXPECT_THAT(error(config("float-quantized", kLinear + R"(,"ignore":["re:(a"])")),
              HasSubstr("quantization_config.ignore has \"re:(a\""));
  EXPECT_THAT(error(config("float-quantized", R"("config_groups":{"g":{"targets":["Linear"],
                           "weights":{"strategy":"channel"}}})")),
              HasSubstr("strategy"));
  EXPECT_THAT(error(config("float-quantized", R"("config_groups":{"g":{"targets":["Linear"],
                           "weights":{"strategy":"block","block_structure":[64,64]}}})")),
              HasSubstr("block_structure"));
  EXPECT_THAT(error(config("nvfp4-pack-quantized", R"("config_groups":{"g":{"targets":["Linear"],
                           "weights":{"group_size":32}}})")),
              HasSubstr("group_size is 32"));
  EXPECT_THAT(error(config("float-quantized", R"("ignore":[])")), HasSubstr("config_groups"));
  EXPECT_THAT(error("[]"), HasSubstr("config.json is not a JSON object"));
}

// Back-tracking would take longer than anyone waits.
TEST(Quantization, NoExpressionTakesForEver) {
  const auto scheme =
      parse(config("float-quantized", kLinear + R"(,"ignore":["re:(a*)*(a|aa)*b$"])"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(scheme.storage(std::string(60, 'a')), Storage::kFP8);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace lagoon::checkpoint
