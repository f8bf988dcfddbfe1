#include "numeric/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace lagoon::numeric {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float next_up(float x) {
  return std::nextafter(x, kInfinity);
}
float next_down(float x) {
  return std::nextafter(x, -kInfinity);
}

TEST(DType, NamesAndSizesAreThoseOfSafetensors) {
  const std::vector<std::pair<std::string_view, size_t>> published = {
      {"BF16", 2}, {"F16", 2}, {"F32", 4}, {"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U8", 1},   {"I8", 1},  {"I16", 2}, {"I32", 4}, {"I64", 8},     {"BOOL", 1}};
  for (const auto& [name, size] : published) {
    const std::optional<DType> dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
    EXPECT_EQ(dtype_size(*dtype), size) << name;
  }
}

TEST(DType, OtherNamesAreUnknown) {
  for (std::string_view name : {"", "bf16", "BF16 ", "F4", "F8_E8M0", "U16", "U32", "U64", "C64"})
    EXPECT_FALSE(dtype_from_name(name).has_value()) << name;
}

TEST(E4M3, AllBytesHaveTheValueOfTheirFields) {
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    const double magnitude = exponent == 0 ? std::ldexp(mantissa / 8.0, -6)
                                           : std::ldexp(1 + mantissa / 8.0, exponent - 7);
    EXPECT_EQ(value, bits < 128 ? magnitude : -magnitude) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(e4m3_to_float(0x01), 0.001953125F);
}

TEST(E4M3, AllValuesReturnToTheirByte) {
  for (int bits = 0; bits < 256; ++bits) {
    const uint8_t byte = static_cast<uint8_t>(bits);
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(byte)), byte) << bits;
  }
}

// Between neighbours the nearer one is taken, and in the middle the one with an even mantissa.
TEST(E4M3, RoundsToTheNearestAndTiesToEven) {
  for (int low = 0; low < 0x7e; ++low) {
    const int high = low + 1;
    const float a = e4m3_to_float(static_cast<uint8_t>(low));
    const float b = e4m3_to_float(static_cast<uint8_t>(high));
    const float middle = (a + b) / 2;  // exact: one bit more than e4m3 holds
    const int even = (low & 1) == 0 ? low : high;
    EXPECT_EQ(float_to_e4m3(middle), even) << low;
    EXPECT_EQ(float_to_e4m3(next_down(middle)), low) << low;
    EXPECT_EQ(float_to_e4m3(next_up(middle)), high) << low;
    EXPECT_EQ(float_to_e4m3(next_up(a)), low) << low;
    EXPECT_EQ(float_to_e4m3(next_down(b)), high) << low;
    EXPECT_EQ(float_to_e4m3(-middle), even | 0x80) << low;
    EXPECT_EQ(float_to_e4m3(-next_up(middle)), high | 0x80) << low;
  }
}

TEST(E4M3, SaturatesAndKeepsNaN) {
  for (float x : {448.0F, next_up(448.0F), 464.0F, 480.0F, 1e30F, kInfinity}) {
    EXPECT_EQ(float_to_e4m3(x), 0x7e) << x;
    EXPECT_EQ(float_to_e4m3(-x), 0xfe) << x;
  }
  EXPECT_EQ(float_to_e4m3(kNaN) & 0x7f, 0x7f);
  EXPECT_EQ(float_to_e4m3(-kNaN) & 0x7f, 0x7f);
  EXPECT_EQ(float_to_e4m3(std::bit_cast<float>(0x7f800001u)) & 0x7f, 0x7f);  // signalling
  EXPECT_EQ(float_to_e4m3(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::denorm_min()), 0x80);
}

TEST(E2M1, AllCodes) {
  const std::vector<float> magnitudes = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 16; ++code) {
    const float magnitude = magnitudes[code & 7u];
    EXPECT_EQ(e2m1_to_float(code), code < 8 ? magnitude : -magnitude) << int{code};
    EXPECT_EQ(std::signbit(e2m1_to_float(code)), code >= 8) << int{code};
  }
}

TEST(BFloat16, AllValuesReturnToTheirBits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_float(BFloat16{static_cast<uint16_t>(bits)});
    const uint16_t back = to_bfloat16(value).bits;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_float(BFloat16{back}))) << bits;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

// For every upper half: the lower halves just below, at and just above the middle.
TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t lower : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = std::bit_cast<float>((upper << 16) | lower);
      const uint32_t rounded = to_bfloat16(x).bits;
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(round_to_bfloat16(x))) << upper << " " << lower;
        ASSERT_EQ(rounded >> 15, upper >> 15);
        continue;
      }
      const bool up = lower > 0x8000u || (lower == 0x8000u && (upper & 1u) == 1u);
      ASSERT_EQ(rounded, upper + (up ? 1 : 0)) << upper << " " << lower;
    }
  }
}

TEST(BFloat16, TheLargestFloatsBecomeInfinity) {
  EXPECT_EQ(round_to_bfloat16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(round_to_bfloat16(-std::numeric_limits<float>::max()), -kInfinity);
  EXPECT_EQ(round_to_bfloat16(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(round_to_bfloat16(std::bit_cast<float>(0x7f800001u))));
}

}  // namespace
}  // namespace lagoon::numeric
