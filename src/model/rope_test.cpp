#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lagoon::model {
namespace {

using checkpoint::RopeConfig;

RopeConfig yarn(double factor, int64_t original_max_position, double beta_fast) {
  RopeConfig config;
  config.yarn = true;
  config.theta = 500000;
  config.partial_rotary_factor = 0.5;
  config.factor = factor;
  config.attention_factor = 0.1 * std::log(factor) + 1;
  config.original_max_position = original_max_position;
  config.beta_fast = beta_fast;
  config.beta_slow = 1;
  return config;
}

// Values published for Laguna-S-2.1 with a context of 262,144 tokens.
TEST(Rope, YarnMatchesPublishedValues) {
  const auto rope = make_rope(yarn(32, 8192, 32), 128);
  ASSERT_TRUE(rope.ok());
  const std::vector<float>& f = rope->inverse_frequencies;
  ASSERT_EQ(f.size(), 32u);
  EXPECT_FLOAT_EQ(rope->attention_factor, 1.3465735902799727f);
  EXPECT_NEAR(f[9], 0.0249554, 5e-8);
  EXPECT_NEAR(f[10], 0.0147779, 5e-8);
  EXPECT_NEAR(f[17], 1.303436e-4, 5e-11);
  EXPECT_NEAR(f[18], 1.946164e-5, 5e-12);
  EXPECT_NEAR(f[31], 9.418306e-8, 5e-14);
}

// The ramp runs from low to high: 9..18 for S-2.1, 7..18 with beta_fast 64, 5..16 for XS.2.
TEST(Rope, YarnRampBounds) {
  const auto expect_ramp = [](const RopeConfig& config, int low, int high) {
    const auto rope = make_rope(config, 128);
    ASSERT_TRUE(rope.ok());
    for (int i = 0; i < 32; ++i) {
      const double plain = std::pow(config.theta, -i / 32.0);
      const double ratio = rope->inverse_frequencies[static_cast<size_t>(i)] / plain;
      SCOPED_TRACE(i);
      if (i <= low) {
        EXPECT_NEAR(ratio, 1, 1e-6);
      } else if (i >= high) {
        EXPECT_NEAR(ratio, 1 / config.factor, 1e-6);
      } else {
        EXPECT_GT(ratio, 1 / config.factor + 1e-3);
        EXPECT_LT(ratio, 1 - 1e-3);
      }
    }
  };
  expect_ramp(yarn(128, 8192, 32), 9, 18);
  expect_ramp(yarn(32, 8192, 64), 7, 18);
  expect_ramp(yarn(32, 4096, 64), 5, 16);
}

// The lower bound of a short original context would be negative.
TEST(Rope, YarnBoundsAreClamped) {
  const auto rope = make_rope(yarn(32, 128, 32), 128);
  ASSERT_TRUE(rope.ok());
  EXPECT_FLOAT_EQ(rope->inverse_frequencies[0], 1.0f);
  const auto tiny = make_rope(yarn(32, 5, 32), 128);  // low = high = 0
  ASSERT_TRUE(tiny.ok());
  EXPECT_FLOAT_EQ(tiny->inverse_frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(tiny->inverse_frequencies[1],
                  static_cast<float>(std::pow(500000.0, -1 / 32.0) / 32));
}

TEST(Rope, DefaultRotatesAllDimensionsUnscaled) {
  RopeConfig config;
  config.theta = 10000;
  const auto rope = make_rope(config, 128);
  ASSERT_TRUE(rope.ok());
  ASSERT_EQ(rope->inverse_frequencies.size(), 64u);
  EXPECT_EQ(rope->attention_factor, 1.0f);
  EXPECT_FLOAT_EQ(rope->inverse_frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(rope->inverse_frequencies[32], 0.01f);
  EXPECT_FLOAT_EQ(rope->inverse_frequencies[63], static_cast<float>(std::pow(10000.0, -63.0 / 64)));
}

TEST(Rope, OddRotaryDimensionIsRefused) {
  RopeConfig config;
  config.theta = 10000;
  config.partial_rotary_factor = 0.25;
  const auto rope = make_rope(config, 12);
  ASSERT_FALSE(rope.ok());
  EXPECT_NE(rope.error().message.find("partial_rotary_factor 0.25"), std::string::npos);
}

}  // namespace
}  // namespace lagoon::model
