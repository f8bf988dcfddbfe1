#include "kernels/cpu/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/instruction_set.h"
#include "kernels/ref/matrix.h"
#include "kernels/test_weights.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr Format kFormats[] = {Format::kBFloat16, Format::kFloat32, Format::kFP8, Format::kNVFP4};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sets that multiply BF16 activations by dot products.
bool has_dots(InstructionSet set) {
  return set == InstructionSet::kAvx512Bf16 || set == InstructionSet::kNeonBf16;
}

Weight packed(const TestWeight& weight) {
  auto matrix = pack(weight.host());
  EXPECT_TRUE(matrix.ok());
  return std::move(matrix).value();
}

std::vector<float> normals(TestRandom& random, int64_t n, bool bfloat16 = true) {
  std::vector<float> x(n);
  for (float& value : x) {
    value = random.normal();
    if (bfloat16) value = numeric::round_to_bfloat16(value);
  }
  return x;
}

// All rows and panels in one call.
std::vector<float> product_of(const PackedWeight* weight, const float* x, int m) {
  const Matrix& matrix = as_matrix(weight);
  std::vector<float> y(m * matrix.rows());
  multiply(matrix, x, matrix.columns(), m, y.data(), matrix.rows(), 0, matrix.panels());
  return y;
}

// Equal bits; a NaN equals any NaN, whose sign processors choose differently.
void expect_same(const std::vector<float>& actual, const std::vector<float>& expected,
                 const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << where << " " << i << ": " << actual[i] << " " << expected[i];
  }
}

// Within rounding of FP32 of the sum in double precision. `values`: W [rows, columns].
void expect_near(const std::vector<double>& values, int64_t rows, int64_t columns,
                 const std::vector<float>& x, const std::vector<float>& y, int m,
                 const std::string& where) {
  for (int r = 0; r < m; ++r) {
    for (int64_t n = 0; n < rows; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < columns; ++k) {
        const double product = values[n * columns + k] * x[r * columns + k];
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(y[r * rows + n], sum, 2e-6 * magnitude) << where << " " << r << " " << n;
    }
  }
}

// Runs the tests with every instruction set that this processor has.
class CpuMatrix : public testing::TestWithParam<InstructionSet> {
 protected:
  CpuMatrix() : before_(selected()) { select(GetParam()); }
  ~CpuMatrix() override { select(before_); }
  CpuMatrix(const CpuMatrix&) = delete;
  CpuMatrix& operator=(const CpuMatrix&) = delete;

 private:
  InstructionSet before_;
};

TEST_P(CpuMatrix, AgreesWithDoublePrecisionAtAllRemainders) {
  TestRandom random(1);
  constexpr int kRows[] = {1, 15, 16, 17, 33};
  int turn = 0;
  for (const Format format : kFormats) {
    for (int64_t columns = 1; columns <= 130; ++columns) {
      if (format == Format::kNVFP4 && columns % 16 != 0) continue;
      const int64_t rows = kRows[turn % 5];
      const TestWeight w = random.weight(format, rows, columns);
      const Weight weight = packed(w);
      const int m = 1 + turn++ % 7;
      const std::vector<float> x = normals(random, m * columns, turn % 2 == 0);
      expect_near(w.values, rows, columns, x, product_of(weight.get(), x.data(), m), m,
                  std::to_string(rows) + " x " + std::to_string(columns));
    }
  }
}

TEST_P(CpuMatrix, AgreesWithDoublePrecisionForAnyNumberOfRows) {
  TestRandom random(2);
  for (const Format format : kFormats) {
    for (const int64_t columns : {16, 272, 400}) {
      const TestWeight w = random.weight(format, 150, columns);
      const Weight weight = packed(w);
      for (const int m :
           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 64, 65, 200}) {
        if (m > 20 && columns != 272) continue;
        const std::vector<float> x = normals(random, m * columns);
        expect_near(w.values, 150, columns, x, product_of(weight.get(), x.data(), m), m,
                    std::to_string(m) + " rows, " + std::to_string(columns) + " columns");
      }
    }
  }
}

// Rows that BF16 cannot hold lie among the others: their neighbours must not notice.
TEST_P(CpuMatrix, ARowDoesNotDependOnTheOthers) {
  TestRandom random(3);
  for (const Format format : kFormats) {
    const TestWeight w = random.weight(format, 70, 272);
    const Weight weight = packed(w);
    std::vector<float> x = normals(random, int64_t{200} * 272);
    for (const int64_t r : {2, 3, 7, 64, 100}) x[r * 272 + 5] = 1.00001f;
    std::vector<float> alone;
    for (int r = 0; r < 200; ++r) {
      const std::vector<float> y = product_of(weight.get(), x.data() + int64_t{r} * 272, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int m = 2; m <= 200; m = m < 20 ? m + 1 : m + 45) {
      alone.resize(size_t{200} * 70);
      expect_same(product_of(weight.get(), x.data(), m),
                  {alone.begin(), alone.begin() + int64_t{m} * 70}, std::to_string(m) + " rows");
    }
  }
}

TEST_P(CpuMatrix, PanelsStridesAndAlignmentChangeNothing) {
  TestRandom random(4);
  for (const Format format : kFormats) {
    const int64_t columns = format == Format::kNVFP4 ? 144 : 141;
    const TestWeight w = random.weight(format, 117, columns);
    const Weight weight = packed(w);
    const Matrix& matrix = as_matrix(weight.get());
    for (const int m : {1, 3, 7, 13}) {
      const std::vector<float> x = normals(random, m * columns);
      const std::vector<float> expected = product_of(weight.get(), x.data(), m);
      // One float off any alignment, rows apart, in pieces of panels.
      const int64_t x_stride = columns + 3;
      const int64_t y_stride = 117 + 5;
      std::vector<float> spread(m * x_stride + 1, kInfinity);
      for (int r = 0; r < m; ++r) {
        std::copy_n(x.data() + r * columns, columns, spread.data() + 1 + r * x_stride);
      }
      for (const int64_t piece : {1, 3, 5}) {
        std::vector<float> y(m * y_stride + 1, 77);
        for (int64_t begin = 0; begin < matrix.panels(); begin += piece) {
          multiply(matrix, spread.data() + 1, x_stride, m, y.data() + 1, y_stride, begin,
                   std::min(begin + piece, matrix.panels()));
        }
        std::vector<float> actual;
        EXPECT_EQ(y[0], 77);
        for (int r = 0; r < m; ++r) {
          const float* row = y.data() + 1 + r * y_stride;
          actual.insert(actual.end(), row, row + 117);
          for (int64_t n = 117; n < y_stride; ++n) EXPECT_EQ(row[n], 77) << "written beyond";
        }
        expect_same(actual, expected, std::to_string(piece) + " panels at a time");
      }
      // Only the outputs of the asked panels are written.
      std::vector<float> y(m * int64_t{117}, 77);
      multiply(matrix, x.data(), columns, m, y.data(), 117, 2, 4);
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t n = 0; n < 117; ++n) {
          EXPECT_EQ(y[r * 117 + n], n >= 32 && n < 64 ? expected[r * 117 + n] : 77);
        }
      }
    }
  }
}

TEST_P(CpuMatrix, HasTheBitsOfPlainCode) {
  TestRandom random(5);
  for (const Format format : kFormats) {
    for (const int64_t columns : {16, 144, 304, 640}) {
      const TestWeight w = random.weight(format, 100, columns);
      const Weight weight = packed(w);
      for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 33, 100}) {
        std::vector<float> x = normals(random, m * columns, false);
        // Not for BF16 in any row, so that the dot products stay out of it.
        for (int r = 0; r < m; ++r) x[r * columns] = 1.00001f;
        select(GetParam());
        const std::vector<float> actual = product_of(weight.get(), x.data(), m);
        select(InstructionSet::kPortable);
        expect_same(actual, product_of(weight.get(), x.data(), m), std::to_string(m) + " rows");
      }
    }
  }
}

// Every code under every scale, alone: a product with 1 is the weight.
TEST_P(CpuMatrix, WeightsAreExact) {
  std::vector<uint8_t> codes, scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int code = 0; code < 16; code += 2) codes.push_back(uint8_t(code | (code + 1) << 4));
    scales.push_back(static_cast<uint8_t>((scale & 0x7f) == 0x7f ? 0x38 : scale));
  }
  std::vector<uint8_t> bytes;
  for (int n = 0; n < 16; ++n) {
    for (int k = 0; k < 256; ++k) bytes.push_back(uint8_t((k & 0x7f) == 0x7f ? n : k));
  }
  const float block_scales[] = {0.75f, 3e-5f};
  const HostMatrix hosts[] = {
      {Format::kNVFP4, 256, 16, reinterpret_cast<const std::byte*>(codes.data()),
       reinterpret_cast<const std::byte*>(scales.data()), 3},
      {Format::kFP8, 16, 256, reinterpret_cast<const std::byte*>(bytes.data()),
       reinterpret_cast<const std::byte*>(block_scales)}};
  for (const HostMatrix& host : hosts) {
    const auto reference = ref::Matrix::copy(host);
    ASSERT_TRUE(reference.ok());
    auto weight = pack(host);
    ASSERT_TRUE(weight.ok());
    std::vector<float> row(host.columns);
    for (int64_t k = 0; k < host.columns; ++k) {
      std::vector<float> x(host.columns, 0.0f);
      x[k] = 1;
      const std::vector<float> y = product_of(weight->get(), x.data(), 1);
      for (int64_t n = 0; n < host.rows; ++n) {
        (*reference)->read_row(n, row.data());
        ASSERT_EQ(y[n], row[k]) << n << " " << k;  // 0 == -0
      }
    }
  }
}

// Mostly small numbers, here and there one from the ends of FP32's range; all of them BF16 numbers.
std::vector<float> with_extremes(TestRandom& random, int64_t n) {
  constexpr float kExtremes[] = {0,      -0.0f,  1,       -1,        1e38f,      -1e38f,   3e38f,
                                 1e-38f, 1e-40f, -1e-45f, kInfinity, -kInfinity, 0x1p-126f};
  std::vector<float> values(n);
  for (float& value : values) {
    const float extreme = kExtremes[random.below(std::size(kExtremes))];
    value = numeric::round_to_bfloat16(random.below(20) == 0 ? extreme : random.normal());
  }
  return values;
}

// Infinities come out as such, NaN as NaN, and subnormal numbers count, but in dot products.
TEST_P(CpuMatrix, ExtremesAreAddedAsNumbers) {
  TestRandom random(6);
  constexpr int64_t kRows = 20;
  constexpr int64_t kColumns = 40;
  for (const Format format : {Format::kBFloat16, Format::kFloat32}) {
    const bool flushes = has_dots(GetParam()) && format == Format::kBFloat16;
    const auto counted = [&](float value) -> double {
      return flushes && std::abs(value) < 0x1p-126f ? 0 : value;
    };
    for (const int m : {1, 3, 14}) {
      const std::vector<float> values = with_extremes(random, kRows * kColumns);
      const std::vector<float> x = with_extremes(random, m * kColumns);
      TestWeight w = random.weight(format, kRows, kColumns);
      for (size_t i = 0; i < values.size(); ++i) {
        const numeric::BFloat16 rounded = numeric::to_bfloat16(values[i]);
        if (format == Format::kBFloat16) {
          std::memcpy(w.bytes.data() + 2 * i, &rounded, 2);
        } else {
          std::memcpy(w.bytes.data() + 4 * i, &values[i], 4);
        }
      }
      const Weight weight = packed(w);
      const std::vector<float> y = product_of(weight.get(), x.data(), m);
      for (int64_t i = 0; i < m * kRows; ++i) {
        const float* row = x.data() + i / kRows * kColumns;
        const float* weights = values.data() + i % kRows * kColumns;
        double sum = 0;
        double magnitude = 0;  // of the finite products
        for (int64_t k = 0; k < kColumns; ++k) {
          const double product = counted(weights[k]) * counted(row[k]);
          sum += product;
          if (std::isfinite(product)) magnitude += std::abs(product);
        }
        if (std::isnan(sum)) {
          EXPECT_TRUE(std::isnan(y[i])) << i;
        } else if (magnitude > 1e38) {
          continue;  // FP32 may overflow on the way
        } else if (std::isinf(sum)) {
          EXPECT_EQ(y[i], sum) << i;
        } else {
          EXPECT_NEAR(y[i], sum, 2e-6 * magnitude + 1e-37) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuMatrix, testing::ValuesIn(available().begin(), available().end()),
                         [](const auto& set) { return std::string(name_of(set.param)); });

// FP32 activations are multiplied as without the dot products.
TEST(CpuMatrixDots, TakeOnlyRowsThatBFloat16Holds) {
  const InstructionSet before = selected();
  TestRandom random(7);
  const TestWeight w = random.weight(Format::kBFloat16, 48, 160);
  const Weight weight = packed(w);
  const std::vector<float> exact = normals(random, int64_t{3} * 160, true);
  const std::vector<float> rounded = normals(random, int64_t{3} * 160, false);
  select(InstructionSet::kPortable);
  const std::vector<float> exact_plain = product_of(weight.get(), exact.data(), 3);
  const std::vector<float> rounded_plain = product_of(weight.get(), rounded.data(), 3);
  for (const InstructionSet set : available()) {
    select(set);
    expect_same(product_of(weight.get(), rounded.data(), 3), rounded_plain, "FP32");
    const std::vector<float> y = product_of(weight.get(), exact.data(), 3);
    // Other sums: were they the same to the last bit in all of 144, no dot product was used.
    EXPECT_EQ(has_dots(set), y != exact_plain);
  }
  select(before);
}

TEST(CpuMatrixPack, ReadsRowsBackAsTheReference) {
  TestRandom random(8);
  for (const Format format : kFormats) {
    for (const int64_t columns : {16, 272}) {
      const TestWeight w = random.weight(format, 35, columns);
      const Weight weight = packed(w);
      const Matrix& matrix = as_matrix(weight.get());
      EXPECT_EQ(matrix.rows(), 35);
      EXPECT_EQ(matrix.columns(), columns);
      EXPECT_EQ(matrix.format(), format);
      EXPECT_EQ(matrix.panels(), 3);
      const auto reference = ref::Matrix::copy(w.host());
      ASSERT_TRUE(reference.ok());
      std::vector<float> expected(columns);
      std::vector<float> actual(columns);
      for (int64_t row = 0; row < w.rows; ++row) {
        (*reference)->read_row(row, expected.data());
        matrix.read_row(row, actual.data());
        expect_same(actual, expected, "row " + std::to_string(row));
      }
    }
  }
}

// What a product reads: no more than the checkpoint has, where shapes are those of a model.
TEST(CpuMatrixPack, TakesNoMoreBytesThanTheCheckpoint) {
  TestRandom random(9);
  for (const Format format : kFormats) {
    const TestWeight w = random.weight(format, 128, 1024);
    const Weight weight = packed(w);
    const int64_t stored = static_cast<int64_t>(w.bytes.size()) +
                           (format == Format::kNVFP4 ? static_cast<int64_t>(w.scales.size()) : 0);
    const int64_t fp8_scales = format == Format::kFP8 ? 8 * 8 * 4 : 0;  // one per panel and block
    EXPECT_EQ(as_matrix(weight.get()).bytes(), stored + fp8_scales);
  }
}

std::string error_of(const HostMatrix& host) {
  const auto weight = pack(host);
  return weight.ok() ? "none" : weight.error().message;
}

TEST(CpuMatrixPack, RefusesWhatCannotBeMultiplied) {
  TestRandom random(10);
  TestWeight fp8 = random.weight(Format::kFP8, 20, 30);
  fp8.bytes[7 * 30 + 11] = std::byte{0xff};
  EXPECT_EQ(error_of(fp8.host()),
            "an FP8 matrix of 20 x 30 cannot be used: its weight at row 7, column 11 is NaN");
  TestWeight nvfp4 = random.weight(Format::kNVFP4, 20, 32);
  HostMatrix odd = nvfp4.host();
  odd.columns = 24;
  EXPECT_EQ(error_of(odd),
            "an NVFP4 matrix of 20 x 24 cannot be used: its columns must be a multiple of 16");
  HostMatrix unscaled = nvfp4.host();
  unscaled.global_scale = 0;
  EXPECT_EQ(error_of(unscaled), "an NVFP4 matrix of 20 x 32 cannot be used: its global scale is 0");
  nvfp4.scales[3 * 2 + 1] = std::byte{0x7f};
  EXPECT_EQ(error_of(nvfp4.host()),
            "an NVFP4 matrix of 20 x 32 cannot be used: its scale at row 3, column 16 is NaN");
}

TEST(CpuInstructionSet, IsChosenByName) {
  for (const InstructionSet set : available()) {
    const auto found = instruction_set(name_of(set));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, set);
  }
  EXPECT_EQ(available().front(), InstructionSet::kPortable);
#if defined(__x86_64__)
  const auto foreign = instruction_set("neon");
#else
  const auto foreign = instruction_set("avx2");
#endif
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, ErrorCode::kUnsupported);
  const auto unknown = instruction_set("mmx");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("'mmx' is not an instruction set"), std::string::npos);
}

TEST(CpuInstructionSet, IsChosenByTheEnvironment) {
  const InstructionSet before = selected();
  ASSERT_EQ(setenv("LAGOON_CPU", "portable", 1), 0);
  EXPECT_TRUE(select_from_environment().ok());
  EXPECT_EQ(selected(), InstructionSet::kPortable);
  ASSERT_EQ(setenv("LAGOON_CPU", "sse9", 1), 0);
  const auto refused = select_from_environment();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("LAGOON_CPU"), std::string::npos);
  EXPECT_EQ(selected(), InstructionSet::kPortable);
  ASSERT_EQ(unsetenv("LAGOON_CPU"), 0);
  EXPECT_TRUE(select_from_environment().ok());
  select(before);
}

}  // namespace
}  // namespace lagoon::kernels::cpu
