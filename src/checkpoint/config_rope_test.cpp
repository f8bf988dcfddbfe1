// Rotary embedding parameters in every form that is published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/config.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Pointer = Json::json_pointer;

const std::string kModels = std::string(LAGOON_SOURCE_DIR) + "/models/";

Json target_json() {
  return Json::parse(read_file(kModels + "laguna-nano-nvfp4/config.json"));
}
Json draft_json() {
  return Json::parse(read_file(kModels + "laguna-nano-dflash-nvfp4/config.json"));
}

Result<TargetConfig> parse(const Json& config) {
  return parse_target_config(config.dump(), "config.json");
}
Result<DraftConfig> parse_draft(const Json& config) {
  return parse_draft_config(config.dump(), "config.json");
}

// The message when full_attention's section has `value` for `key`.
std::string full_fault(const std::string& key, const Json& value) {
  Json config = target_json();
  config["rope_parameters"]["full_attention"][key] = value;
  return message_of(parse(config));
}

// A target with full attention only and rotary parameters as given.
Result<TargetConfig> parse_full_only(const Json& rope) {
  Json config = target_json();
  config["layer_types"] = std::vector<std::string>(8, "full_attention");
  config.erase("rope_parameters");
  config.update(rope);
  return parse(config);
}

TEST(Rope, AnAttentionFactorThatIsThereWins) {
  Json config = target_json();
  Json& full = config["rope_parameters"]["full_attention"];
  full["factor"] = 32.0;
  for (const double factor : {1.0, 1.3465735902799727, 2.0}) {
    full["attention_factor"] = factor;
    EXPECT_EQ(parse(config)->full_rope.attention_factor, factor);
  }
  for (const Json& absent : {Json(), Json(nullptr)}) {
    full["attention_factor"] = absent;
    EXPECT_NEAR(parse(config)->full_rope.attention_factor, 1.3465735902799727, 1e-15);
  }
  full.erase("attention_factor");
  EXPECT_NEAR(parse(config)->full_rope.attention_factor, 1.3465735902799727, 1e-15);
  full["factor"] = 1;
  EXPECT_EQ(parse(config)->full_rope.attention_factor, 1.0);
}

TEST(Rope, FlatParametersHoldForAllLayers) {
  const Result<TargetConfig> nested = parse_full_only(
      {{"rope_parameters",
        {{"rope_theta", 3e5}, {"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}});
  ASSERT_TRUE(nested.ok()) << nested.error().message;
  EXPECT_EQ(nested->full_rope.theta, 3e5);
  EXPECT_EQ(nested->full_rope.partial_rotary_factor, 0.25);

  Json config = target_json();
  config["rope_parameters"] = {{"rope_theta", 20000}, {"partial_rotary_factor", 1}};
  const Result<TargetConfig> both = parse(config);
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->full_rope.theta, 20000.0);
  EXPECT_EQ(both->sliding_rope.theta, 20000.0);
}

TEST(Rope, TheOlderFormWithRopeScaling) {
  const Json scaling = {{"type", "yarn"},
                        {"factor", 32},
                        {"original_max_position_embeddings", 4096},
                        {"beta_fast", 64}};
  const Result<TargetConfig> parsed = parse_full_only(
      {{"rope_theta", 500000}, {"partial_rotary_factor", 0.5}, {"rope_scaling", scaling}});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed->full_rope.yarn);
  EXPECT_EQ(parsed->full_rope.theta, 500000.0);
  EXPECT_EQ(parsed->full_rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(parsed->full_rope.factor, 32.0);
  EXPECT_EQ(parsed->full_rope.original_max_position, 4096);
  EXPECT_EQ(parsed->full_rope.beta_fast, 64.0);

  const Result<TargetConfig> plain =
      parse_full_only({{"rope_theta", 500000}, {"partial_rotary_factor", 1.0}});
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_FALSE(plain->full_rope.yarn);
}

// Earlier uploads keep the sliding layers' parameters beside flat ones for the full layers.
TEST(Rope, SlidingLayersMayHaveAKeyOfTheirOwn) {
  Json config = target_json();
  Json full = config["rope_parameters"]["full_attention"];
  Json sliding = config["rope_parameters"]["sliding_attention"];
  config["rope_parameters"] = full;
  config["swa_rope_parameters"] = sliding;
  const Result<TargetConfig> parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed->full_rope.yarn);
  EXPECT_EQ(parsed->full_rope.theta, 500000.0);
  EXPECT_FALSE(parsed->sliding_rope.yarn);
  EXPECT_EQ(parsed->sliding_rope.theta, 10000.0);

  config.erase("swa_rope_parameters");
  EXPECT_THAT(message_of(parse(config)),
              HasSubstr("rope_parameters.sliding_attention is missing: a yarn embedding"));
}

TEST(Rope, TheSectionsOwnPartialFactorWins) {
  Json config = target_json();
  config["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(parse(config)->full_rope.partial_rotary_factor, 0.5);
  config["rope_parameters"]["full_attention"].erase("partial_rotary_factor");
  EXPECT_EQ(parse(config)->full_rope.partial_rotary_factor, 0.25);
}

TEST(Rope, WrongValuesAreNamed) {
  const std::string place = "config.json: rope_parameters.full_attention.";
  EXPECT_THAT(full_fault("rope_theta", 0), HasSubstr(place + "rope_theta"));
  EXPECT_THAT(full_fault("rope_theta", "5e5"), HasSubstr(place + "rope_theta"));
  EXPECT_THAT(full_fault("rope_theta", 1), HasSubstr("rope_theta is 1"));
  EXPECT_THAT(full_fault("partial_rotary_factor", 0), HasSubstr(place + "partial_rotary_factor"));
  EXPECT_THAT(full_fault("partial_rotary_factor", 1.5), HasSubstr("at most head_dim"));
  EXPECT_THAT(full_fault("partial_rotary_factor", 0.3), HasSubstr("even number"));
  EXPECT_THAT(full_fault("factor", 0.5), HasSubstr("at least 1"));
  EXPECT_THAT(full_fault("factor", -2), HasSubstr(place + "factor"));
  EXPECT_THAT(full_fault("attention_factor", 0), HasSubstr(place + "attention_factor"));
  EXPECT_THAT(full_fault("original_max_position_embeddings", 0), HasSubstr("original_max"));
  EXPECT_THAT(full_fault("beta_fast", 1), HasSubstr("greater than beta_slow"));
  EXPECT_THAT(full_fault("beta_slow", -1), HasSubstr(place + "beta_slow"));
  EXPECT_THAT(full_fault("mscale", 1.0), HasSubstr(place + "mscale"));
  EXPECT_THAT(full_fault("truncate", false), HasSubstr(place + "truncate"));
  EXPECT_EQ(full_fault("truncate", true), "(no error)");
  for (const char* type : {"linear", "dynamic", "llama3", "longrope"})
    EXPECT_THAT(full_fault("rope_type", type), HasSubstr(std::string("is \"") + type));
  EXPECT_THAT(full_fault("rope_type", "default"), HasSubstr("but the rope_type is default"));
}

// rope_parameters.sliding_attention.rope_theta, rope_parameters.rope_theta, rope_theta.
TEST(DraftRope, ThetaComesFromTheMostParticularPlace) {
  Json config = draft_json();
  config["rope_theta"] = 111;
  config["rope_parameters"]["rope_theta"] = 222;
  config["rope_parameters"]["sliding_attention"]["rope_theta"] = 333;
  EXPECT_EQ(parse_draft(config)->rope.theta, 333.0);
  config["rope_parameters"]["sliding_attention"].erase("rope_theta");
  EXPECT_EQ(parse_draft(config)->rope.theta, 222.0);
  config["rope_parameters"].erase("sliding_attention");
  EXPECT_EQ(parse_draft(config)->rope.theta, 222.0);
  config["rope_parameters"].erase("rope_theta");
  EXPECT_EQ(parse_draft(config)->rope.theta, 111.0);
  config.erase("rope_parameters");
  EXPECT_EQ(parse_draft(config)->rope.theta, 111.0);
  EXPECT_EQ(parse_draft(config)->rope.partial_rotary_factor, 1.0);
  config.erase("rope_theta");
  EXPECT_THAT(message_of(parse_draft(config)),
              HasSubstr("rope_theta is missing for sliding_attention layers"));
}

TEST(DraftRope, FullAttentionsThetaIsNotTaken) {
  Json config = draft_json();
  config["rope_parameters"] = {{"full_attention", {{"rope_theta", 500000}}}};
  EXPECT_THAT(message_of(parse_draft(config)), HasSubstr("rope_theta is missing"));
}

TEST(DraftRope, AStretchedEmbeddingIsRefused) {
  Json config = draft_json();
  config["rope_parameters"]["sliding_attention"] =
      target_json()["rope_parameters"]["full_attention"];
  EXPECT_THAT(message_of(parse_draft(config)), HasSubstr("a draft's must be \"default\""));
}

}  // namespace
}  // namespace lagoon::checkpoint
