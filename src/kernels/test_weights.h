// Random weights in every format for the tests, with the values they stand for in double precision.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "numeric/dtype.h"
#include "numeric/random_numbers.h"

namespace lagoon::kernels {

struct TestWeight {
  Format format = Format::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<std::byte> bytes, scales;
  float global_scale = 1;
  std::vector<double> values;  // [rows, columns]

  HostMatrix host() const {
    return {format,      rows, columns, bytes.data(), scales.empty() ? nullptr : scales.data(),
            global_scale};
  }
  double at(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

class TestRandom {
 public:
  explicit TestRandom(uint32_t seed) : engine_(seed) {}

  float normal() { return std::normal_distribution<float>()(engine_); }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine_); }

  // Values of about `scale` * N(0, 1) + `shift`; kFP8 and kNVFP4: of about that size.
  TestWeight weight(Format format, int64_t rows, int64_t columns, float scale = 1,
                    float shift = 0) {
    TestWeight w;
    w.format = format;
    w.rows = rows;
    w.columns = columns;
    w.values.resize(rows * columns);
    switch (format) {
      case Format::kFloat32:
        fill<float>(w, [&](double& value) {
          const float x = normal() * scale + shift;
          value = x;
          return x;
        });
        break;
      case Format::kBFloat16:
        fill<uint16_t>(w, [&](double& value) {
          const numeric::BFloat16 x = numeric::to_bfloat16(normal() * scale + shift);
          value = numeric::to_float(x);
          return x.bits;
        });
        break;
      case Format::kFP8:
        fill_fp8(w, scale);
        break;
      case Format::kNVFP4:
        fill_nvfp4(w, scale);
        break;
    }
    return w;
  }

 private:
  template <typename Element, typename Make>
  void fill(TestWeight& w, const Make& make) {
    w.bytes.resize(w.values.size() * sizeof(Element));
    for (size_t i = 0; i < w.values.size(); ++i) {
      const Element element = make(w.values[i]);
      std::memcpy(w.bytes.data() + i * sizeof(Element), &element, sizeof(Element));
    }
  }

  void fill_fp8(TestWeight& w, float scale) {
    const int64_t blocks = (w.columns + 127) / 128;
    std::vector<float> scales((w.rows + 127) / 128 * blocks);
    for (float& s : scales) s = scale * static_cast<float>(1 + below(4)) / 4;
    w.scales.resize(scales.size() * sizeof(float));
    std::memcpy(w.scales.data(), scales.data(), w.scales.size());
    int64_t i = 0;
    fill<uint8_t>(w, [&](double& value) {
      const uint8_t code = numeric::float_to_e4m3(normal());
      const float s = scales[i / w.columns / 128 * blocks + i % w.columns / 128];
      value = double{numeric::e4m3_to_float(code)} * s;
      ++i;
      return code;
    });
  }

  void fill_nvfp4(TestWeight& w, float scale) {
    w.global_scale = 3 / scale;
    w.scales.resize(w.values.size() / 16);
    for (std::byte& s : w.scales) s = static_cast<std::byte>(0x30 + below(16));  // 0.5 .. 1.875
    w.bytes.resize(w.values.size() / 2);
    for (size_t i = 0; i < w.bytes.size(); ++i) {
      const int low = below(16);
      const int high = below(16);
      w.bytes[i] = static_cast<std::byte>(low | high << 4);
      const double s =
          double{numeric::e4m3_to_float(static_cast<uint8_t>(w.scales[i / 8]))} / w.global_scale;
      w.values[2 * i] = numeric::e2m1_to_float(static_cast<uint8_t>(low)) * s;
      w.values[2 * i + 1] = numeric::e2m1_to_float(static_cast<uint8_t>(high)) * s;
    }
  }

  std::mt19937 engine_;
};

// What Backend::prepare_random() is to make, BF16 or NVFP4, number by number; without `values`.
inline TestWeight random_weight(const RandomMatrix& random) {
  TestWeight w;
  w.format = random.format;
  w.rows = random.rows;
  w.columns = random.columns;
  const numeric::RandomNumbers numbers{random.values};
  const auto first = static_cast<uint64_t>(random.first_row * random.columns);
  const auto count = static_cast<uint64_t>(random.rows * random.columns);
  if (random.format == Format::kBFloat16) {
    w.bytes.resize(2 * count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto x = numeric::to_bfloat16(random.scale * numbers.normal(first + i));
      std::memcpy(&w.bytes[2 * i], &x.bits, 2);
    }
    return w;
  }
  w.global_scale = random.scale;
  w.bytes.resize(count / 2);
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t codes = numeric::random_e2m1_codes(numbers.word((first + i) / 8));
    const uint32_t code = codes >> (4 * ((first + i) % 8)) & 15u;
    w.bytes[i / 2] |= static_cast<std::byte>(code << (4 * (i % 2)));
  }
  w.scales.resize(count / 16);
  const numeric::RandomNumbers scales{random.scales};
  for (uint64_t i = 0; i < w.scales.size(); ++i) {
    w.scales[i] = std::byte{scales.block_scale(first / 16 + i)};
  }
  return w;
}

}  // namespace lagoon::kernels
