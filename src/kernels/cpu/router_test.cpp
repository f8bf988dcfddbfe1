#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/operations.h"
#include "kernels/ref/elementwise.h"
#include "kernels/test_weights.h"

namespace lagoon::kernels::cpu {
namespace {

void expect_as_reference(const std::vector<float>& logits, const std::vector<float>& bias,
                         float softcap, size_t top_k) {
  std::vector<ref::Choice> expected(top_k);
  ref::choose_experts(logits, bias, softcap, expected);
  for (const InstructionSet set : available()) {
    select(set);
    std::vector<Choice> choices(top_k);
    std::vector<float> scratch(2 * logits.size());
    choose_experts(vectors(), logits, bias.data(), softcap, choices, scratch.data());
    for (size_t i = 0; i < top_k; ++i) {
      ASSERT_EQ(choices[i].expert, expected[i].expert) << i << " of " << logits.size();
      if (std::isnan(expected[i].weight)) {
        EXPECT_TRUE(std::isnan(choices[i].weight));
      } else {
        EXPECT_NEAR(choices[i].weight, expected[i].weight, 1e-6);
      }
    }
  }
}

TEST(CpuRouter, ChoosesAsTheReference) {
  TestRandom random(1);
  for (const size_t experts : {1U, 2U, 5U, 16U, 31U, 32U, 33U, 256U}) {
    for (const size_t top_k : {size_t{1}, (experts + 1) / 2, experts}) {
      for (const float softcap : {0.0f, 1.5f}) {
        std::vector<float> logits(experts), bias(experts);
        for (float& x : logits) x = 2 * random.normal();
        for (float& x : bias) x = 0.1f * random.normal();
        expect_as_reference(logits, bias, softcap, top_k);
      }
    }
  }
}

TEST(CpuRouter, TiesGoToTheLowestIndex) {
  expect_as_reference(std::vector<float>(40, 0.5f), std::vector<float>(40, 0.25f), 0, 40);
  expect_as_reference({1, 3, 3, 2, 3}, std::vector<float>(5, 0), 0, 4);
}

TEST(CpuRouter, NaNIsChosenLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  expect_as_reference({nan, 1, 0, nan, -200}, std::vector<float>(5, 0), 0, 3);
  expect_as_reference({nan, 1, 0, nan, -200}, std::vector<float>(5, 0), 0, 5);
  expect_as_reference({1, 2, 3, 4}, {0, -infinity, 0, infinity}, 0, 3);
  expect_as_reference({nan, nan, nan}, std::vector<float>(3, 0), 0, 3);
}

}  // namespace
}  // namespace lagoon::kernels::cpu
