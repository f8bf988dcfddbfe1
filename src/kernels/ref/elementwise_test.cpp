#include "kernels/ref/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "kernels/test_weights.h"

namespace lagoon::kernels::ref {
namespace {

TEST(RoundActivations, RoundsOnlyInBFloat16Mode) {
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -3.14159265f, 0.0f};
  std::vector<float> x = values;
  round_activations(Activations::kFloat32, x.data(), 5);
  EXPECT_EQ(x, values);
  round_activations(Activations::kBFloat16, x.data(), 5);
  // Two of the values lie halfway: the even neighbour.
  EXPECT_EQ(x, (std::vector<float>{1.0f, 1.0f, 1.015625f, -3.140625f, 0.0f}));
}

TEST(RmsNorm, AgreesWithDoublePrecision) {
  TestRandom random(1);
  for (const int64_t n : {1, 3, 16, 17, 128, 255}) {
    for (const float size : {1e-4f, 1.0f, 1e6f}) {
      std::vector<float> x(n), weight(n), out(n);
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        x[i] = random.normal() * size;
        weight[i] = random.normal();
        squares += double{x[i]} * x[i];
      }
      rms_norm(x.data(), weight.data(), n, 1e-6f, out.data());
      const double root = std::sqrt(squares / static_cast<double>(n) + double{1e-6f});
      for (int64_t i = 0; i < n; ++i) {
        const double expected = x[i] / root * weight[i];
        ASSERT_NEAR(out[i], expected, 1e-6 * std::abs(expected)) << n << " " << size;
      }
      rms_norm(x.data(), weight.data(), n, 1e-6f, x.data());
      EXPECT_EQ(x, out);
    }
  }
}

TEST(RmsNorm, OfZerosIsZero) {
  const std::vector<float> weight(20, 3.0f);
  std::vector<float> x(20, 0.0f);
  rms_norm(x.data(), weight.data(), 20, 1e-6f, x.data());
  EXPECT_EQ(x, std::vector<float>(20, 0.0f));
}

TEST(Rotation, TurnsPairsAsComplexNumbersAndLeavesTheRest) {
  TestRandom random(2);
  // 5 pairs of a head of 16 with frequencies that follow no formula, as YaRN's do.
  const Rope rope = {.inverse_frequencies = {1.0f, 0.37f, 0.02f, 1.3e-4f, 9.4e-8f},
                     .attention_factor = 1.3465736f};
  for (const int32_t position : {0, 1, 2, 127, 5000, 200000}) {
    std::vector<float> head(16);
    for (float& value : head) value = random.normal();
    const std::vector<float> before = head;
    Rotation(rope, position).apply(head.data());
    for (int j = 0; j < 5; ++j) {
      const float angle = static_cast<float>(position) * rope.inverse_frequencies[j];
      const std::complex<double> turned = std::complex<double>(before[j], before[j + 5]) *
                                          std::polar(double{rope.attention_factor}, double{angle});
      EXPECT_NEAR(head[j], turned.real(), 2e-6) << position;
      EXPECT_NEAR(head[j + 5], turned.imag(), 2e-6) << position;
    }
    for (int i = 10; i < 16; ++i) EXPECT_EQ(head[i], before[i]);
  }
}

TEST(Rotation, ProductOfQueryAndKeyDependsOnTheirDistanceAlone) {
  TestRandom random(3);
  const Rope rope = {.inverse_frequencies = {1.0f, 0.5f, 0.1f, 0.01f}, .attention_factor = 1};
  std::vector<float> q(8), k(8);
  for (int i = 0; i < 8; ++i) q[i] = random.normal(), k[i] = random.normal();
  const auto score = [&](int32_t query_position, int32_t key_position) {
    std::vector<float> turned_q = q, turned_k = k;
    Rotation(rope, query_position).apply(turned_q.data());
    Rotation(rope, key_position).apply(turned_k.data());
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += turned_q[i] * turned_k[i];
    return sum;
  };
  EXPECT_NEAR(score(17, 4), score(113, 100), 1e-4);
  EXPECT_GT(std::abs(score(17, 4) - score(17, 5)), 1e-3);
}

TEST(NormAndRotate, RoundsOnceAfterTheRotation) {
  TestRandom random(4);
  const Rope rope = {.inverse_frequencies = {0.3f, 0.05f}, .attention_factor = 1};
  const std::vector<float> weight = {0.5f, 1, 2, 1.5f, 1};
  std::vector<float> exact(15);
  for (float& value : exact) value = random.normal();
  std::vector<float> rounded = exact;
  std::vector<float> by_hand = exact;
  const Rotation rotation(rope, 11);
  norm_and_rotate(exact.data(), 3, 5, weight.data(), 1e-6f, rotation, Activations::kFloat32);
  norm_and_rotate(rounded.data(), 3, 5, weight.data(), 1e-6f, rotation, Activations::kBFloat16);
  for (int64_t h = 0; h < 3; ++h) {
    rms_norm(by_hand.data() + h * 5, weight.data(), 5, 1e-6f, by_hand.data() + h * 5);
    rotation.apply(by_hand.data() + h * 5);
  }
  EXPECT_EQ(exact, by_hand);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(rounded[i], numeric::round_to_bfloat16(exact[i]));
}

TEST(Softplus, IsExactToTheEndsOfItsRange) {
  for (const double x : {-80.0, -20.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 15.0, 20.0, 100.0}) {
    const double expected = std::log1p(std::exp(x));
    EXPECT_NEAR(softplus(static_cast<float>(x)), expected, 2e-7 * expected) << x;
  }
  EXPECT_EQ(softplus(1000), 1000);
  EXPECT_EQ(softplus(-1000), 0);
  EXPECT_EQ(softplus(3e38f), 3e38f);
  EXPECT_TRUE(std::isnan(softplus(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SwiGLU, IsExactToTheEndsOfItsRange) {
  for (const double gate : {-80.0, -3.0, -0.1, 0.0, 0.1, 3.0, 80.0}) {
    const double expected = gate / (1 + std::exp(-gate)) * 1.5;
    EXPECT_NEAR(swiglu(static_cast<float>(gate), 1.5f), expected, 4e-7 * std::abs(expected));
  }
  EXPECT_EQ(swiglu(-1000, 5), 0);
  EXPECT_EQ(swiglu(1000, 5), 5000);
}

std::vector<Choice> choose(const std::vector<float>& logits, const std::vector<float>& bias,
                           int top_k, float softcap = 0) {
  std::vector<Choice> choices(top_k);
  choose_experts(logits, bias, softcap, choices);
  return choices;
}

std::vector<int32_t> experts_of(const std::vector<Choice>& choices) {
  std::vector<int32_t> experts;
  experts.reserve(choices.size());
  for (const Choice& choice : choices) experts.push_back(choice.expert);
  return experts;
}

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(ChooseExperts, TakesTheLargestInOrderWithWeightsThatSumToOne) {
  const std::vector<Choice> choices = choose({0.1f, 2, -1, 1, 0.5f}, {0, 0, 0, 0, 0}, 3);
  EXPECT_EQ(experts_of(choices), (std::vector<int32_t>{1, 3, 4}));
  const double sum = logistic(2) + logistic(1) + logistic(0.5);
  EXPECT_NEAR(choices[0].weight, logistic(2) / sum, 1e-6);
  EXPECT_NEAR(choices[1].weight, logistic(1) / sum, 1e-6);
  EXPECT_NEAR(choices[2].weight, logistic(0.5) / sum, 1e-6);
}

TEST(ChooseExperts, TheBiasSelectsButDoesNotWeigh) {
  const std::vector<Choice> choices = choose({1, 0, -2}, {0, 0, 0.9f}, 2);
  EXPECT_EQ(experts_of(choices), (std::vector<int32_t>{2, 0}));
  const double sum = logistic(-2) + logistic(1);
  EXPECT_NEAR(choices[0].weight, logistic(-2) / sum, 1e-6);
  EXPECT_NEAR(choices[1].weight, logistic(1) / sum, 1e-6);
}

TEST(ChooseExperts, EqualsGoToTheLowestIndex) {
  EXPECT_EQ(experts_of(choose({0, 1, 0, 1, 1}, {0, 0, 0, 0, 0}, 4)),
            (std::vector<int32_t>{1, 3, 4, 0}));
  // 50 and 60 have the same sigmoid in FP32.
  EXPECT_EQ(experts_of(choose({50, 60}, {0, 0}, 1)), (std::vector<int32_t>{0}));
}

TEST(ChooseExperts, SoftcapBoundsTheLogitsBeforeTheSigmoid) {
  const std::vector<Choice> choices = choose({4, -4, 100}, {0, 0, 0}, 3, 2.0f);
  EXPECT_EQ(experts_of(choices), (std::vector<int32_t>{2, 0, 1}));
  const double s0 = logistic(2 * std::tanh(2.0));
  const double s1 = logistic(-2 * std::tanh(2.0));
  const double s2 = logistic(2.0);
  EXPECT_NEAR(choices[0].weight, s2 / (s0 + s1 + s2), 1e-6);
  EXPECT_NEAR(choices[1].weight, s0 / (s0 + s1 + s2), 1e-6);
  EXPECT_NEAR(choices[2].weight, s1 / (s0 + s1 + s2), 1e-6);
}

TEST(ChooseExperts, ANaNIsChosenLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(experts_of(choose({nan, -3, nan, 2}, {0, 0, 0, 0}, 3)),
            (std::vector<int32_t>{3, 1, 0}));
}

}  // namespace
}  // namespace lagoon::kernels::ref
