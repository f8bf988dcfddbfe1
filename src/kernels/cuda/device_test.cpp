// Operations on the GPU against the reference and against double precision, over the shapes of the
// bundled pair and of the full-size model; and that the bits of a row do not depend on the others.
// Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/gpu_test.h"
#include "kernels/cuda/layer_rig.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/plan.h"
#include "kernels/ref/backend.h"
#include "kernels/sampling.h"
#include "kernels/test_weights.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {
namespace {

const char* name_of(Format format) {
  return format == Format::kBFloat16 ? "BF16" : format == Format::kFP8 ? "FP8" : "NVFP4";
}

// ---- Random matrices

TEST_F(GpuTest, RandomMatricesAreTheHostsToTheBit) {
  // More rows than pass through scratch at once, and rows of a larger matrix.
  for (const RandomMatrix& random : {
           RandomMatrix{.rows = 40, .columns = 48, .values = 7, .scale = 0.3F},
           RandomMatrix{
               .rows = 9000, .columns = 3072, .first_row = 123, .values = 8, .scale = 0.02F},
           RandomMatrix{.format = Format::kNVFP4,
                        .rows = 128,
                        .columns = 336,
                        .first_row = 16,
                        .values = 9,
                        .scales = 10,
                        .scale = 25000},
       }) {
    device_->weights.clear();
    const auto made = Matrix::make(*device_, random).value();
    const TestWeight weight = random_weight(random);
    const auto packed = Matrix::pack(*device_, weight.host()).value();
    const MatrixView& a = made->view();
    const MatrixView& b = packed->view();
    EXPECT_EQ(a.divisor, b.divisor);
    const int64_t bytes = packed_bytes(a.packing, a.rows, a.columns);
    EXPECT_EQ(from_device(a.values, bytes), from_device(b.values, bytes));
    if (random.format != Format::kNVFP4) continue;
    const int64_t scale_bytes = tiles_of(a.rows) * units_of(a.columns) * kUnitScaleBytes;
    EXPECT_EQ(from_device(a.scales, scale_bytes), from_device(b.scales, scale_bytes));
  }
  EXPECT_EQ(Matrix::make(*device_, {.format = Format::kFP8, .rows = 16, .columns = 16}).value(),
            nullptr);
}

// ---- Products

class Products : public GpuTest {
 protected:
  // y of `rows` rows of x, BF16 with padded rows.
  std::vector<float> product(const Matrix& matrix, const Bits16* x, int64_t rows) {
    auto* y = device_->scratch_of<float>(rows * matrix.rows());
    const Product p = {.matrix = matrix.view(), .y = y, .y_stride = matrix.rows()};
    multiply(device_->stream(), &p, 1, x, rows);
    return from_device(y, rows * matrix.rows());
  }
};

TEST_F(Products, AgreeWithDoublePrecisionInAnyCompany) {
  constexpr int kRows = 67;
  const int64_t shapes[][2] = {{40, 48},     {37, 256},   {256, 512},  {256, 768},
                               {128, 256},   {4096, 256}, {256, 1024}, {3072, 1024},
                               {1024, 3072}, {72, 3072},  {256, 9216}, {144, 18432}};
  for (const Format format : {Format::kBFloat16, Format::kFP8, Format::kNVFP4}) {
    for (const auto& [n, k] : shapes) {
      TestRandom random(static_cast<uint32_t>(n + k));
      const TestWeight weight = random.weight(format, n, k);
      device_->scratch.clear();
      auto matrix = Matrix::pack(*device_, weight.host()).value();
      std::vector<Bits16> x(static_cast<size_t>(kRows * padded(k)), 0);
      for (int r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < k; ++i) {
          x[r * padded(k) + i] = numeric::to_bfloat16(random.normal()).bits;
        }
      }
      device_->scratch.clear();
      const Bits16* on_device = to_device(x);
      const std::vector<float> all = product(*matrix, on_device, kRows);
      double difference = 0, size = 0;
      for (int r = 0; r < kRows; r += 11) {
        for (int64_t row = 0; row < n; ++row) {
          double y = 0;
          for (int64_t i = 0; i < k; ++i) {
            y += weight.at(row, i) * numeric::to_float(numeric::BFloat16{x[r * padded(k) + i]});
          }
          difference += std::pow(all[r * n + row] - y, 2);
          size += y * y;
        }
      }
      const double error = std::sqrt(difference / size);
      fmt::print("{} {} x {}: error {:.1e}\n", name_of(format), n, k, error);
      EXPECT_LT(error, 3e-6) << name_of(format) << " " << n << " x " << k;
      for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 24, 32, 33, 64, 65}) {
        const std::vector<float> some = product(*matrix, on_device, rows);
        EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << name_of(format) << " " << n << " x " << k << ", " << rows << " rows";
      }
    }
  }
}

// One kernel for few rows, products and a kernel for many.
TEST_F(Products, GateAndUpGiveTheSameBitsEitherWay) {
  constexpr int kRows = 67;
  constexpr int64_t kInner = 200, kColumns = 3072;
  for (const Format format : {Format::kBFloat16, Format::kFP8, Format::kNVFP4}) {
    TestRandom random(17);
    auto gate = Matrix::pack(*device_, random.weight(format, kInner, kColumns).host()).value();
    auto up = Matrix::pack(*device_, random.weight(format, kInner, kColumns).host()).value();
    device_->scratch.clear();
    std::vector<Bits16> values(kRows * padded(kColumns), 0);
    for (int r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kColumns; ++i) {
        values[r * padded(kColumns) + i] = numeric::to_bfloat16(random.normal()).bits;
      }
    }
    const Bits16* x = to_device(values);
    const int64_t count = kRows * padded(kInner);
    // What is written behind the columns counts, too.
    Bits16* fused = to_device(std::vector<Bits16>(count, 1));
    Bits16* split = to_device(std::vector<Bits16>(count, 2));
    for (int64_t r = 0; r < kRows; r += kStreamedRows) {
      gate_and_up(device_->stream(), gate->view(), up->view(), x + r * padded(kColumns),
                  std::min(kStreamedRows, kRows - r), fused + r * padded(kInner));
    }
    auto* gated = device_->scratch_of<float>(kRows * kInner);
    auto* raised = device_->scratch_of<float>(kRows * kInner);
    const Product products[] = {{.matrix = gate->view(), .y = gated, .y_stride = kInner},
                                {.matrix = up->view(), .y = raised, .y_stride = kInner}};
    multiply(device_->stream(), products, 2, x, kRows);
    swiglu_rows(device_->stream(), gated, raised, kRows, kInner, split);
    EXPECT_EQ(from_device(fused, count), from_device(split, count)) << name_of(format);
  }
}

// Row r of the matrix holds code r, group g has scale g; token g is 1 in one column of group g.
TEST_F(Products, DecodeEveryCodeWithEveryScaleExactly) {
  constexpr int64_t kScales = 127;
  constexpr int64_t kColumns = kScales * 16;
  std::vector<std::byte> codes(16 * kColumns / 2), scales(16 * kScales);
  for (int64_t code = 0; code < 16; ++code) {
    std::fill_n(codes.begin() + code * kColumns / 2, kColumns / 2, std::byte(code | code << 4));
    for (int s = 0; s < kScales; ++s) scales[code * kScales + s] = std::byte(s);
  }
  auto matrix =
      Matrix::pack(*device_, {Format::kNVFP4, 16, kColumns, codes.data(), scales.data(), 1})
          .value();
  for (int column = 0; column < 16; ++column) {
    std::vector<Bits16> x(kScales * padded(kColumns), 0);
    for (int64_t s = 0; s < kScales; ++s) x[s * padded(kColumns) + s * 16 + column] = 0x3f80;
    device_->scratch.clear();
    const std::vector<float> y = product(*matrix, to_device(x), kScales);
    for (int64_t s = 0; s < kScales; ++s) {
      for (int code = 0; code < 16; ++code) {
        EXPECT_EQ(y[s * 16 + code], numeric::e2m1_to_float(static_cast<uint8_t>(code)) *
                                        numeric::e4m3_to_float(static_cast<uint8_t>(s)))
            << "code " << code << " scale " << s << " column " << column;
      }
    }
  }
}

TEST_F(Products, RowsOfATableAreExact) {
  TestRandom random(5);
  for (const Format format : {Format::kBFloat16, Format::kFP8, Format::kNVFP4}) {
    const TestWeight weight = random.weight(format, 150, 272);
    auto matrix = Matrix::pack(*device_, weight.host()).value();
    device_->scratch.clear();
    const std::vector<int32_t> ids = {149, 0, 17, 130, 17};
    constexpr int64_t kColumns = 272;
    auto* out = device_->scratch_of<float>(5 * kColumns);
    read_rows(device_->stream(), matrix->view(), to_device(ids), 5, out);
    const std::vector<float> rows = from_device(out, 5 * kColumns);
    for (int r = 0; r < 5; ++r) {
      for (int64_t k = 0; k < kColumns; ++k) {
        EXPECT_NEAR(rows[r * kColumns + k], weight.at(ids[r], k),
                    std::abs(weight.at(ids[r], k)) * 1e-7);
      }
    }
  }
}

TEST_F(GpuTest, RefusesWhatItCannotHold) {
  const std::vector<std::byte> ones(4096, std::byte(0x7f));
  EXPECT_FALSE(Matrix::pack(*device_, {Format::kFP8, 16, 128, ones.data(), ones.data(), 1}).ok());
  EXPECT_FALSE(Matrix::pack(*device_, {Format::kNVFP4, 16, 128, ones.data(), ones.data(), 1}).ok());
  EXPECT_FALSE(Matrix::pack(*device_, {Format::kFloat32, 2, 128, ones.data(), nullptr, 1}).ok());
}

TEST_F(GpuTest, AnArenaFillsTheRoomThatIsLeft) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  Arena arena(kPiece, kPiece);
  const uint8_t* first = arena.take(kPiece * 3 / 4);
  arena.take(kPiece * 3 / 4);
  EXPECT_EQ(arena.bytes(), 2 * kPiece);
  EXPECT_EQ(arena.take(kPiece / 4), first + kPiece * 3 / 4);
  EXPECT_NE(arena.take(kPiece / 4), nullptr);
  EXPECT_EQ(arena.bytes(), 2 * kPiece);
  EXPECT_NE(arena.take(1), nullptr);
  EXPECT_EQ(arena.bytes(), 3 * kPiece);
}

TEST_F(GpuTest, AWholePieceStaysWhereItIs) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  Arena arena(kPiece, kPiece);
  const uint8_t* first = arena.take_whole(kPiece * 3);
  const int64_t calls = memory_calls();
  for (const int64_t bytes : {kPiece, int64_t{1}, kPiece * 3}) {
    EXPECT_EQ(arena.take_whole(bytes), first);
  }
  EXPECT_EQ(memory_calls(), calls);
  EXPECT_EQ(arena.bytes(), kPiece * 3);
  EXPECT_NE(arena.take_whole(kPiece * 4), nullptr);
  EXPECT_EQ(arena.bytes(), kPiece * 4);
}

TEST_F(GpuTest, RefusesStepsOfMoreRowsThanALaunchHas) {
  StateShape shape;
  shape.hidden = 16;
  shape.vocab = 16;
  shape.sequences = 1;
  shape.max_rows = 65536;
  const auto state = cuda::make_backend(Activations::kBFloat16).value()->allocate(shape);
  ASSERT_FALSE(state.ok());
  EXPECT_NE(state.error().message.find("65535"), std::string::npos) << state.error().message;
}

// ---- Drawing

// Flat logits, so that borders lie behind the candidates that are sorted; in odd rows many are
// equal.
TEST_F(GpuTest, DrawsTheTokensOfTheSpecification) {
  constexpr int kVocab = 3000;
  constexpr int kRows = 64;
  TestRandom random(3);
  std::vector<float> logits(size_t{kRows} * kVocab);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = random.normal() / 2;
    if (i / kVocab % 2 == 1) logits[i] = std::round(logits[i] * 4) / 4;
  }
  const float* on_device = to_device(logits);
  auto* tokens = device_->scratch_of<int32_t>(kRows);
  for (const Sampling& sampling :
       {Sampling{.temperature = 1, .top_k = 0, .top_p = 1, .seed = 1},
        {.temperature = 2, .top_k = 0, .top_p = 0.97f, .seed = 2},
        {.temperature = 2, .top_k = 0, .top_p = 0.5f, .seed = 3},
        {.temperature = 0.1f, .top_k = 0, .top_p = 0.9f, .seed = 4},
        {.temperature = 2, .top_k = 0, .top_p = 0.95f, .seed = 5, .min_p = 0.3f},
        {.temperature = 2, .top_k = 2000, .top_p = 1, .seed = 6},
        {.temperature = 2, .top_k = 2000, .top_p = 0.9f, .seed = 7},
        {.temperature = 1, .top_k = 20, .top_p = 0.9f, .seed = 8}}) {
    std::vector<Draw> draws(kRows);
    for (int r = 0; r < kRows; ++r) {
      draws[r].temperature = sampling.temperature;
      draws[r].top_k = sampling.top_k;
      draws[r].top_p = sampling.top_p;
      draws[r].min_p = sampling.min_p;
      draws[r].seed = sampling.seed;
      draws[r].row = r;
      draws[r].position = r + 1;
    }
    cuda::sample(device_->stream(), on_device, on_device, kVocab, to_device(draws), kRows, tokens,
                 nullptr);
    const std::vector<int32_t> drawn = from_device(tokens, kRows);
    for (int r = 0; r < kRows; ++r) {
      const std::span<const float> row = std::span(logits).subspan(size_t(r) * kVocab, kVocab);
      EXPECT_EQ(drawn[r], kernels::sample(row, sampling, r + 1))
          << "seed " << sampling.seed << ", row " << r;
    }
  }
}

// ---- One layer, on both backends

// The differences of rows, in order.
std::vector<double> differences(Runner& device, Runner& reference, int end, Runner::Halves halves) {
  std::vector<double> all;
  for (int first = 0; first < end; first += 97) {
    const int count = std::min(97, end - first);
    const std::vector<float> expected = reference.run(first, count, true, halves);
    const std::vector<float> found = device.run(first, count, true, halves);
    for (int r = 0; r < count; ++r) {
      const double error = relative_difference(row_of(found, r), row_of(expected, r));
      all.push_back(std::isnan(error) ? 1e9 : error);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

// A value near the middle of two BF16 numbers may round either way, which moves a row by a BF16
// step of one value, and now and then to another expert: so the middle row counts, and nine of ten.
TEST_F(GpuTest, OperationsAgreeWithTheReference) {
  for (const CacheType cache : {CacheType::kActivations, CacheType::kFP8}) {
    for (const Shape& shape :
         {kPairFull, kPairSliding, kElements, kAlone, kWide, kSliding, kFull}) {
      const int end = shape.hidden > 1000 ? (cache == CacheType::kFP8 ? 70 : 540) : 700;
      Runner reference(ref::make_backend(Activations::kBFloat16, 16), shape, cache, end, 128);
      Runner device(gpu(), shape, cache, end, 128);
      struct Case {
        Runner::Halves halves;
        const char* name;
        double middle, most;
      };
      for (const Case& c : {Case{Runner::kNone, "embed and head", 1e-6, 1e-6},
                            Case{Runner::kAttention, "attention half", 2.5e-3, 5e-3},
                            Case{Runner::kFfn, "FFN half", 1e-3, 5e-3}}) {
        const std::vector<double> found = differences(device, reference, end, c.halves);
        const double middle = found[found.size() / 2];
        const double most = found[found.size() * 9 / 10];
        fmt::print("{}, {} cache, {}: difference {:.1e} in the middle, {:.1e} at nine tenths\n",
                   shape.name, cache == CacheType::kFP8 ? "FP8" : "BF16", c.name, middle, most);
        EXPECT_LT(middle, c.middle) << shape.name << ", " << c.name;
        EXPECT_LT(most, c.most) << shape.name << ", " << c.name;
      }
    }
  }
}

// Brought along with the tokens, or read where none were asked for.
TEST_F(GpuTest, CountsTheExpertsThatAStepReads) {
  Runner device(gpu(), kWide, CacheType::kActivations, 64, 64);
  for (const int rows : {1, 5}) {
    device.run(0, rows, false);
    const ExpertUse read = device.expert_use();
    EXPECT_EQ(read.layers, 1);
    EXPECT_GE(read.distinct, kWide.top_k);
    EXPECT_LE(read.distinct, rows * kWide.top_k);
    device.run(0, rows);
    EXPECT_EQ(device.expert_use().layers, 1);
    EXPECT_EQ(device.expert_use().distinct, read.distinct);
  }
}

// Rows at the edges of chunks, windows and rings, alone and in company of any size.
TEST_F(GpuTest, BitsOfALayerDoNotDependOnTheNumberOfRows) {
  for (const CacheType cache : {CacheType::kActivations, CacheType::kFP8}) {
    for (const Shape& shape :
         {kPairFull, kPairSliding, kElements, kAlone, kWide, kSliding, kFull}) {
      constexpr int kCompany = 67;
      constexpr int kEdges[] = {127,  128,  129,  143,  144,   255,   256,   257,  511,
                                512,  513,  527,  528,  1023,  1024,  1025,  2047, 2048,
                                2049, 4097, 8191, 8193, 16383, 65535, 65536, 65537};
      Runner device(gpu(), shape, cache, 65600, 512);
      int filled = 0;
      for (const int edge : kEdges) {
        // The big model's long contexts take long to fill.
        if (edge > 20000 && shape.hidden > 1000 && shape.window > 0) continue;
        const int first = std::max(0, edge - 8);
        for (; filled < first; filled += std::min(512, first - filled)) {
          device.run(filled, std::min(512, first - filled), false);
        }
        filled = first;
        const std::vector<float> together = device.run(first, kCompany);
        for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
          for (int at = 0; at + size <= kCompany; at += std::max(size, 8)) {
            const std::vector<float> some = device.run(first + at, size);
            for (int r = 0; r < size; ++r) {
              const std::span<const float> a = row_of(some, r);
              const std::span<const float> b = row_of(together, at + r);
              ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0)
                  << shape.name << ", position " << first + at + r << ", " << size << " rows";
            }
          }
        }
        filled = first;
      }
    }
  }
}

}  // namespace
}  // namespace lagoon::kernels::cuda
