#include "plan/pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

using ::testing::HasSubstr;

TEST(Pair, NamedPrecision) {
  const auto named = [](const char* path) { return named_precision(path).value_or("?"); };
  EXPECT_EQ(named("/m/Laguna-S-2.1-DFlash-NVFP4"), "NVFP4");
  EXPECT_EQ(named("/m/laguna-nano-dflash-nvfp4/"), "NVFP4");
  EXPECT_EQ(named("Laguna-S-2.1-DFlash-FP8"), "FP8");
  EXPECT_EQ(named("Laguna-S-2.1-DFlash-FP8-w4a16"), "FP8");
  EXPECT_EQ(named("Laguna-S-2.1-DFlash-INT4"), "INT4");
  EXPECT_EQ(named("Laguna-S-2.1-DFlash"), "BF16");
  EXPECT_EQ(named("/c/models--poolside--Laguna-S-2.1-DFlash-FP8/snapshots/b0486d1"), "FP8");
  EXPECT_EQ(named("/m/draft"), "?");
  EXPECT_EQ(named("/m/NVFP4/my-dflash-draft"), "?");
  EXPECT_EQ(named("/m/Laguna-S-2.1-NVFP4"), "?");
}

TEST(Pair, ADraftOfAnotherPrecisionIsRefused) {
  const Inventory target = full_size().weights;
  EXPECT_TRUE(check_precision(target, "/t", "/m/Laguna-S-2.1-DFlash-NVFP4").ok());
  EXPECT_TRUE(check_precision(target, "/t", "/m/draft").ok());
  const auto refused = check_precision(target, "/t", "/m/Laguna-S-2.1-DFlash-FP8");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("the draft /m/Laguna-S-2.1-DFlash-FP8 was made for a target in FP8, as its "
                        "name says, and /t is in NVFP4"));
  EXPECT_THAT(refused.error().message, HasSubstr("-DFlash-NVFP4"));
  // The revision that keeps some experts in BF16 is still one of NVFP4.
  EXPECT_TRUE(check_precision(full_size(kLaterRevision).weights, "/t", "Laguna-DFlash-NVFP4").ok());
}

TEST(Pair, TheLikelyCause) {
  Published published = full_size();
  EXPECT_THAT(likely_cause("/m/draft", published.draft, published.weights),
              HasSubstr("another precision or another revision"));
  published.draft.rope.theta = 500'000;
  EXPECT_THAT(likely_cause("/m/draft", published.draft, published.weights),
              HasSubstr("rope_theta is 500000"));
}

}  // namespace
}  // namespace lagoon::plan
