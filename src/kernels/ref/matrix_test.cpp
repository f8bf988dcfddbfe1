#include "kernels/ref/matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/test_weights.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::ref {
namespace {

std::unique_ptr<Matrix> copy(const HostMatrix& host) {
  auto matrix = Matrix::copy(host);
  EXPECT_TRUE(matrix.ok());
  return std::move(matrix).value();
}

// The value of an e4m3 byte by its definition: sign, exponent with bias 7, three mantissa bits.
double e4m3(int byte) {
  const int exponent = (byte >> 3) & 15;
  const int mantissa = byte & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

double e2m1(int code) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

TEST(Dot, AgreesWithDoublePrecisionAtAllLengths) {
  TestRandom random(1);
  for (int64_t n = 0; n <= 67; ++n) {
    std::vector<float> a(n), b(n);
    double expected = 0;
    double magnitude = 0;
    for (int64_t i = 0; i < n; ++i) {
      a[i] = random.normal();
      b[i] = random.normal();
      expected += double{a[i]} * b[i];
      magnitude += std::abs(double{a[i]} * b[i]);
    }
    EXPECT_NEAR(dot(a.data(), b.data(), n), expected, 1e-6 * magnitude) << n;
  }
}

// The order of the sum is part of the specification: other backends may follow it bit by bit.
TEST(Dot, AddsInTheStatedOrder) {
  TestRandom random(2);
  for (const int64_t n : {1, 15, 16, 17, 31, 48, 250}) {
    std::vector<float> a(n), b(n);
    for (int64_t i = 0; i < n; ++i) a[i] = random.normal(), b[i] = random.normal();
    std::vector<float> sums(16, 0.0f);
    for (int64_t k = 0; k < n; ++k) {
      const float product = a[k] * b[k];
      sums[k % 16] = sums[k % 16] + product;
    }
    while (sums.size() > 1) {
      const size_t half = sums.size() / 2;
      for (size_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
      sums.resize(half);
    }
    EXPECT_EQ(dot(a.data(), b.data(), n), sums[0]) << n;
  }
}

// Row s has all 16 codes under the e4m3 scale s: all finite scales, both signs.
TEST(Matrix, DecodesEveryNVFP4CodeUnderEveryScaleExactly) {
  std::vector<uint8_t> values, scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; code += 2) {
      values.push_back(static_cast<uint8_t>(code | (code + 1) << 4));
    }
    scales.push_back(static_cast<uint8_t>(scale));
  }
  const auto matrix =
      copy({Format::kNVFP4, 256, 16, reinterpret_cast<const std::byte*>(values.data()),
            reinterpret_cast<const std::byte*>(scales.data()), 3});
  EXPECT_EQ(matrix->divisor(), 3);
  float scratch[16];
  float read[16];
  for (int scale = 0; scale < 256; ++scale) {
    if ((scale & 0x7f) == 0x7f) continue;  // NaN
    const float* row = matrix->row_times_divisor(scale, scratch);
    matrix->read_row(scale, read);
    for (int code = 0; code < 16; ++code) {
      const double exact = e2m1(code) * e4m3(scale);
      ASSERT_EQ(double{row[code]}, exact) << scale << " " << code;
      ASSERT_EQ(read[code], static_cast<float>(exact) / 3.0f);
    }
  }
}

TEST(Matrix, DecodesFP8WithItsBlockScalesAtOddShapes) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>(1, 1), {129, 257}, {128, 128}, {300, 127}}) {
    const int64_t blocks = (columns + 127) / 128;
    std::vector<uint8_t> values(rows * columns);
    std::vector<float> scales((rows + 127) / 128 * blocks);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint8_t>(i * 37 % 256);
      if ((values[i] & 0x7f) == 0x7f) values[i] = 1;
    }
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.125f * static_cast<float>(i + 1);
    const auto matrix =
        copy({Format::kFP8, rows, columns, reinterpret_cast<const std::byte*>(values.data()),
              reinterpret_cast<const std::byte*>(scales.data()), 1});
    std::vector<float> row(columns);
    for (int64_t r = 0; r < rows; ++r) {
      matrix->read_row(r, row.data());
      for (int64_t c = 0; c < columns; ++c) {
        const float scale = scales[r / 128 * blocks + c / 128];
        ASSERT_EQ(double{row[c]}, e4m3(values[r * columns + c]) * scale) << r << " " << c;
      }
    }
  }
}

TEST(Matrix, ReadsBFloat16AndFloat32AsStored) {
  const float values[] = {1, -2.5f, 3e-39f, 0, 1e30f, -0.0f};
  uint16_t halves[6];
  for (int i = 0; i < 6; ++i) halves[i] = numeric::to_bfloat16(values[i]).bits;
  const auto full =
      copy({Format::kFloat32, 2, 3, reinterpret_cast<const std::byte*>(values), nullptr, 1});
  const auto half =
      copy({Format::kBFloat16, 2, 3, reinterpret_cast<const std::byte*>(halves), nullptr, 1});
  float row[3];
  for (int64_t r = 0; r < 2; ++r) {
    full->read_row(r, row);
    for (int c = 0; c < 3; ++c) EXPECT_EQ(row[c], values[r * 3 + c]);
    half->read_row(r, row);
    for (int c = 0; c < 3; ++c) EXPECT_EQ(row[c], numeric::round_to_bfloat16(values[r * 3 + c]));
  }
}

TEST(Matrix, RefusesWhatTheFormatCannotBe) {
  const std::vector<std::byte> bytes(1024);
  const auto odd = Matrix::copy({Format::kNVFP4, 4, 24, bytes.data(), bytes.data(), 1});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(odd.error().message,
            "an NVFP4 matrix of 4 x 24 cannot be used: its columns must be a multiple of 16");
  for (const float scale : {0.0f, INFINITY, NAN}) {
    const auto bad = Matrix::copy({Format::kNVFP4, 4, 32, bytes.data(), bytes.data(), scale});
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.error().message.find("global scale"), std::string::npos);
  }
}

class MultiplyTest : public testing::TestWithParam<Format> {};

TEST_P(MultiplyTest, AgreesWithDoublePrecisionAtOddShapes) {
  TestRandom random(3);
  Workers workers(2);
  for (const int64_t n : {1, 7, 8, 9, 130}) {
    for (int64_t k : {1, 15, 16, 17, 48, 160, 257}) {
      if (GetParam() == Format::kNVFP4) k = (k + 15) / 16 * 16;
      const TestWeight weight = random.weight(GetParam(), n, k);
      const auto matrix = copy(weight.host());
      const int64_t rows = 5;
      std::vector<float> x(rows * k), y(rows * n, -1);
      for (float& value : x) value = random.normal();
      const std::vector<int32_t> x_rows = {4, 0, 0, 2, 1};
      for (const bool gathered : {false, true}) {
        Product product = make_product(matrix.get(), n, k, rows, x.data(), y.data());
        if (gathered) product.x_rows = x_rows;
        multiply(workers, {&product, 1});
        for (int64_t r = 0; r < rows; ++r) {
          const float* row = x.data() + (gathered ? x_rows[r] : r) * k;
          for (int64_t i = 0; i < n; ++i) {
            double expected = 0;
            double magnitude = 0;
            for (int64_t c = 0; c < k; ++c) {
              expected += weight.at(i, c) * row[c];
              magnitude += std::abs(weight.at(i, c) * row[c]);
            }
            ASSERT_NEAR(y[r * n + i], expected, 2e-6 * magnitude) << n << " " << k;
          }
        }
      }
    }
  }
}

TEST_P(MultiplyTest, RowsAreTheSameBitsAloneTogetherAndOnAnyNumberOfThreads) {
  TestRandom random(4);
  const int64_t n = 77;
  const int64_t k = 176;
  const auto matrix = copy(random.weight(GetParam(), n, k).host());
  const int64_t rows = 16;
  std::vector<float> x(rows * k), expected(rows * n);
  for (float& value : x) value = random.normal();
  Workers alone(1);
  for (int64_t r = 0; r < rows; ++r) {
    const Product product =
        make_product(matrix.get(), n, k, 1, x.data() + r * k, expected.data() + r * n);
    multiply(alone, {&product, 1});
  }
  for (const int threads : {1, 2, 3}) {
    Workers workers(threads);
    for (int64_t m = 1; m <= rows; ++m) {
      std::vector<float> y(m * n);
      const Product product = make_product(matrix.get(), n, k, m, x.data(), y.data());
      multiply(workers, {&product, 1});
      ASSERT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MultiplyTest,
                         testing::Values(Format::kBFloat16, Format::kFloat32, Format::kFP8,
                                         Format::kNVFP4));

TEST(Multiply, DoesSeveralProductsAtATime) {
  TestRandom random(5);
  const TestWeight a = random.weight(Format::kBFloat16, 19, 32);
  const TestWeight b = random.weight(Format::kFloat32, 3, 17);
  const auto matrix_a = copy(a.host());
  const auto matrix_b = copy(b.host());
  std::vector<float> x(64, 1.0f), y_a(38), y_b(3), nothing(19, 7);
  const Product products[] = {make_product(matrix_a.get(), 19, 32, 2, x.data(), y_a.data()),
                              make_product(matrix_a.get(), 19, 32, 0, x.data(), nothing.data()),
                              make_product(matrix_b.get(), 3, 17, 1, x.data(), y_b.data())};
  Workers workers(2);
  multiply(workers, products);
  const auto row_sum = [](const TestWeight& weight, int64_t row) {
    double sum = 0;
    for (int64_t c = 0; c < weight.columns; ++c) sum += weight.at(row, c);
    return sum;
  };
  for (int64_t i = 0; i < 38; ++i) EXPECT_NEAR(y_a[i], row_sum(a, i % 19), 1e-5);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(y_b[i], row_sum(b, i), 1e-5);
  EXPECT_EQ(nothing, std::vector<float>(19, 7));
}

}  // namespace
}  // namespace lagoon::kernels::ref
