#include "app/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::app {
namespace {

using ::testing::HasSubstr;

TEST(GenerationConfig, SamplingDefaults) {
  const auto defaults = parse_generation_config(
      R"({"do_sample":true,"temperature":0.7,"top_p":0.95,"top_k":20})", "f");
  ASSERT_TRUE(defaults.ok());
  EXPECT_FLOAT_EQ(defaults->sampling.temperature, 0.7F);
  EXPECT_FLOAT_EQ(defaults->sampling.top_p, 0.95F);
  EXPECT_EQ(defaults->sampling.top_k, 20);
  EXPECT_EQ(defaults->ignored, "");
}

TEST(GenerationConfig, WithoutOneNothingIsCut) {
  for (const char* json : {"", "{}", R"({"temperature":null,"top_k":-1})"}) {
    const auto defaults = parse_generation_config(json, "f");
    ASSERT_TRUE(defaults.ok()) << json;
    EXPECT_EQ(defaults->sampling.temperature, 1);
    EXPECT_EQ(defaults->sampling.top_p, 1);
    EXPECT_EQ(defaults->sampling.top_k, 0);
  }
}

TEST(GenerationConfig, WhatIsNotDoneIsNamed) {
  const auto defaults = parse_generation_config(
      R"({"repetition_penalty":1.1,"min_p":0.05,"presence_penalty":0,"frequency_penalty":1})", "f");
  ASSERT_TRUE(defaults.ok());
  EXPECT_FLOAT_EQ(defaults->sampling.min_p, 0.05F);
  EXPECT_EQ(defaults->ignored, "repetition_penalty, frequency_penalty");
}

TEST(GenerationConfig, OverridesReplaceTheFile) {
  const auto defaults = parse_generation_config(R"({"temperature":0.7,"top_k":20})", "f",
                                                R"({"top_k":5,"top_p":0.5})");
  ASSERT_TRUE(defaults.ok()) << defaults.error().message;
  EXPECT_FLOAT_EQ(defaults->sampling.temperature, 0.7F);
  EXPECT_FLOAT_EQ(defaults->sampling.top_p, 0.5F);
  EXPECT_EQ(defaults->sampling.top_k, 5);
  for (const char* bad : {"[]", "{", R"({"top_k":"5"})", R"({"made_up":1})", R"({"top_p":2})"}) {
    const auto refused = parse_generation_config("", "f", bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("--override-generation-config")) << bad;
  }
}

TEST(GenerationConfig, WhatIsWrongIsNamed) {
  EXPECT_THAT(parse_generation_config("[", "dir/f.json").error().message, HasSubstr("dir/f.json"));
  EXPECT_FALSE(parse_generation_config("[]", "f").ok());
  EXPECT_FALSE(parse_generation_config(R"({"top_p":0})", "f").ok());
  EXPECT_FALSE(parse_generation_config(R"({"temperature":-1})", "f").ok());
  EXPECT_FALSE(parse_generation_config(R"({"temperature":1e300})", "f").ok());
  EXPECT_FALSE(parse_generation_config(R"({"top_k":1e300})", "f").ok());
}

}  // namespace
}  // namespace lagoon::app
