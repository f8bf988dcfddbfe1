// Every instruction set against double precision and against plain C++, bit for bit.
#include "kernels/cpu/vectors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/ref/elementwise.h"
#include "kernels/test_weights.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void for_each_set(const std::function<void(const Vectors&)>& body) {
  for (const InstructionSet set : available()) {
    SCOPED_TRACE(std::string(name_of(set)));
    select(set);
    body(vectors());
  }
}

// |x - expected| in units of the last place of `expected`.
double ulps(float x, double expected) {
  const auto near = static_cast<float>(std::abs(expected));
  const double unit = std::nextafter(near, kInfinity) - near;
  return std::abs(x - expected) / unit;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(CpuVectors, ExponentialsAreWithinTwoUnits) {
  std::vector<float> x;
  for (float at = -87.2f; at < 88.2f; at += 0.00137f) x.push_back(at);
  for (const float at : {0.0f, -0.0f, 1e-8f, -1e-8f, 1e-40f, 0.34657359f, -0.34657359f}) {
    x.push_back(at);
  }
  for_each_set([&](const Vectors& v) {
    std::vector<float> out(x.size());
    v.exponentials(x.data(), static_cast<int64_t>(x.size()), out.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, ulps(out[i], std::exp(double{x[i]})));
    EXPECT_LT(worst, 2);
    // Attention leaves sums as they are where the maximum does not change.
    const float zero = 0;
    float one = 0;
    v.exponentials(&zero, 1, &one);
    EXPECT_EQ(one, 1);
  });
}

TEST(CpuVectors, ExponentialsOfExtremes) {
  for_each_set([](const Vectors& v) {
    const float x[] = {-kInfinity, -1000, -87.4f, 1000, kInfinity, kNaN, -kNaN};
    float out[7];
    v.exponentials(x, 7, out);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], 0);
    for (int i = 3; i < 5; ++i) EXPECT_GT(out[i], 1e38f);
    EXPECT_TRUE(std::isnan(out[5]) && std::isnan(out[6]));
  });
}

TEST(CpuVectors, GatesAgreeWithDoublePrecision) {
  std::vector<float> x = {0, -0.0f, 1e-30f, -1e-30f};
  for (float at = -80; at < 80; at += 0.0173f) x.push_back(at);
  const auto n = static_cast<int64_t>(x.size());
  for_each_set([&](const Vectors& v) {
    std::vector<float> softplus(x.size());
    std::vector<float> sigmoid(x.size());
    std::vector<float> swiglu = x;
    const std::vector<float> up(x.size(), 1.25f);
    v.softplus(x.data(), n, softplus.data());
    v.sigmoid(x.data(), n, sigmoid.data());
    v.swiglu(swiglu.data(), up.data(), n, false);
    for (size_t i = 0; i < x.size(); ++i) {
      const double at = x[i];
      EXPECT_LT(ulps(softplus[i], std::max(at, 0.0) + std::log1p(std::exp(-std::abs(at)))), 4)
          << at;
      EXPECT_LT(ulps(sigmoid[i], 1 / (1 + std::exp(-at))), 4) << at;
      EXPECT_NEAR(swiglu[i], at / (1 + std::exp(-at)) * 1.25, 4e-7 * std::abs(at)) << at;
    }
    const float extremes[] = {-200, 200, kNaN, -kInfinity, kInfinity};
    float out[5];
    v.softplus(extremes, 5, out);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], 200);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], 0);
    EXPECT_EQ(out[4], kInfinity);
  });
}

TEST(CpuVectors, NormAndRotationAgreeWithTheReference) {
  TestRandom random(1);
  Rope rope = {.inverse_frequencies = {}, .attention_factor = 1.3f};
  for (const int64_t n : {1, 2, 15, 16, 17, 20, 128, 256, 1000}) {
    std::vector<float> x(n), weight(n);
    for (float& value : x) value = random.normal() * 3;
    for (float& value : weight) value = 1 + 0.2f * random.normal();
    rope.inverse_frequencies.assign(static_cast<size_t>(n / 4), 0);
    for (float& f : rope.inverse_frequencies) f = std::abs(random.normal());
    const ref::Rotation rotation(rope, 77);
    std::vector<float> cosines, sines;
    for (const float f : rope.inverse_frequencies) {
      cosines.push_back(std::cos(77 * f) * rope.attention_factor);
      sines.push_back(std::sin(77 * f) * rope.attention_factor);
    }
    std::vector<float> normed(n), rotated = x;
    ref::rms_norm(x.data(), weight.data(), n, 1e-5f, normed.data());
    ref::norm_and_rotate(rotated.data(), 1, static_cast<int>(n), weight.data(), 1e-5f, rotation,
                         Activations::kFloat32);
    for_each_set([&](const Vectors& v) {
      std::vector<float> out(n + 1, 99);
      v.rms_norm(x.data(), weight.data(), n, 1e-5f, false, out.data());
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], normed[i], 2e-6) << n << " " << i;
      EXPECT_EQ(out[n], 99);
      v.norm_and_rotate(x.data(), weight.data(), n, 1e-5f, cosines.data(), sines.data(),
                        static_cast<int64_t>(cosines.size()), false, out.data());
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], rotated[i], 3e-6) << n << " " << i;
      EXPECT_EQ(out[n], 99);
    });
  }
}

// All functions, every remainder, at three misalignments: the bits of plain C++, in its bounds.
TEST(CpuVectors, EverySetGivesTheSameBits) {
  TestRandom random(2);
  std::vector<float> a(200), b(200);
  for (float& value : a) value = random.normal() * 4;
  for (float& value : b) value = random.normal() * 4;
  std::vector<std::vector<float>> expected;
  for_each_set([&](const Vectors& v) {
    size_t at = 0;
    for (const int64_t shift : {0, 1, 3}) {
      for (int64_t n = 1; n <= 70; ++n) {
        for (const bool round : {false, true}) {
          const float* x = a.data() + shift;
          const float* y = b.data() + shift;
          std::vector<float> out(12 * (n + 1), 99);
          const auto part = [&](int i) { return out.data() + i * (n + 1); };
          v.rms_norm(x, y, n, 1e-6f, round, part(0));
          v.norm_and_rotate(x, y, n, 1e-6f, x, y, n / 2, round, part(1));
          v.softplus(x, n, part(2));
          v.sigmoid(x, n, part(3));
          v.exponentials(x, n, part(4));
          for (const int i : {5, 6, 7, 8, 9}) std::copy_n(x, n, part(i));
          v.swiglu(part(5), y, n, round);
          v.scale(part(6), 0.37f, n, round);
          v.scale_each(part(7), y, n, round);
          v.add_scaled(part(8), 0.37f, y, n);
          v.add(part(9), y, n);
          *part(10) = static_cast<float>(v.argmax(x, n));
          for (int i = 0; i < 10; ++i) ASSERT_EQ(part(i)[n], 99) << i << " " << n;
          if (at == expected.size()) expected.push_back(out);
          ASSERT_TRUE(same_bits(out, expected[at])) << n << " " << shift;
          ++at;
        }
      }
    }
  });
}

TEST(CpuVectors, RoundingIsThatOfTheNumericFolder) {
  std::vector<float> x = {1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f, kInfinity, -kInfinity,
                          1e-40f,      0,           -0.0f};
  TestRandom random(3);
  for (int i = 0; i < 500; ++i) x.push_back(random.normal());
  for_each_set([&](const Vectors& v) {
    std::vector<float> rounded = x;
    v.scale(rounded.data(), 1, static_cast<int64_t>(x.size()), true);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(rounded[i], numeric::round_to_bfloat16(x[i])) << x[i];
    }
    float nan = kNaN;
    v.scale(&nan, 1, 1, true);
    EXPECT_TRUE(std::isnan(nan));
  });
}

TEST(CpuVectors, ArgmaxIsTheFirstLargest) {
  for_each_set([](const Vectors& v) {
    for (const int64_t n : {1, 7, 16, 255, 256, 257, 1000}) {
      std::vector<float> x(n, -kInfinity);
      EXPECT_EQ(v.argmax(x.data(), n), 0);
      x[0] = kNaN;
      EXPECT_EQ(v.argmax(x.data(), n), 0);
      for (int64_t first = 0; first < n; ++first) {
        std::vector<float> y(n, -3);
        y[0] = kNaN;
        y[first] = 2;
        y[n - 1] = 2;
        ASSERT_EQ(v.argmax(y.data(), n), first) << n;
      }
    }
  });
}

}  // namespace
}  // namespace lagoon::kernels::cpu
