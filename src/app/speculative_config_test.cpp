#include "app/speculative_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::app {
namespace {

using ::testing::HasSubstr;

std::string error(const char* json) {
  const auto config = parse_speculative_config(json);
  return config.ok() ? "" : config.error().message;
}

TEST(SpeculativeConfig, AsInTheRecipe) {
  const auto config = parse_speculative_config(
      R"({"method":"dflash","model":"/models/draft","num_speculative_tokens":6})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->model, "/models/draft");
  EXPECT_EQ(config->proposals, 6);
}

TEST(SpeculativeConfig, TheNumberOfProposalsMayBeLeftOut) {
  const auto config = parse_speculative_config(R"({"method":"dflash","model":"d"})");
  ASSERT_TRUE(config.ok());
  EXPECT_FALSE(config->proposals.has_value());
}

TEST(SpeculativeConfig, ARepositoryMayHaveARevision) {
  const auto config =
      parse_speculative_config(R"({"method":"dflash","model":"a/b","revision":"7237947"})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->revision, "7237947");
}

TEST(SpeculativeConfig, WhatIsWrongIsNamed) {
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error(R"({"method":"eagle","model":"d","num_speculative_tokens":6})"),
              HasSubstr("\"eagle\""));
  EXPECT_THAT(error(R"({"method":"dflash","model":"d","num_speculative_tokens":6,"k":1})"),
              HasSubstr("'k'"));
  EXPECT_THAT(error(R"({"method":"dflash","num_speculative_tokens":6})"), HasSubstr("'model'"));
  EXPECT_THAT(error(R"({"method":"dflash","model":"","num_speculative_tokens":1})"),
              HasSubstr("'model'"));
  EXPECT_THAT(error(R"({"method":"dflash","model":"d","revision":5})"), HasSubstr("'revision'"));
  for (const char* k : {"-1", "1.5", "\"6\"", "99999999999"}) {
    const auto json =
        std::string(R"({"method":"dflash","model":"d","num_speculative_tokens":)") + k + "}";
    EXPECT_THAT(error(json.c_str()), HasSubstr("'num_speculative_tokens'")) << k;
  }
}

}  // namespace
}  // namespace lagoon::app
