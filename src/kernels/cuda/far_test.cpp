// Layers of the full-size model against the reference, far out: around the edges of windows, rings,
// chunks and FP32's whole numbers. The caches of both are filled with the same random keys and
// values, since computing so many would take hours. Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/layer_rig.h"
#include "kernels/cuda/state.h"
#include "kernels/ref/backend.h"
#include "kernels/ref/state.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {
namespace {

struct Run {
  int first, count;
};
constexpr Run kRuns[] = {{511, 3}, {527, 2}, {2047, 3}, {65535, 3}};
constexpr int kPositions = 65538;
constexpr int kMostRows = 3;

// A number in [-1, 1) for each (position, place).
float noise(int position, int64_t i, uint32_t salt) {
  uint32_t x =
      static_cast<uint32_t>(position) * 0x9e3779b9u + static_cast<uint32_t>(i) * 0x85ebca6bu;
  x = (x ^ salt ^ x >> 15) * 0x2c1b3c6du;
  x = (x ^ x >> 12) * 0x297a2d39u;
  return static_cast<float>((x ^ x >> 15) >> 8) * 0x1p-23f - 1;
}

// The key or value of a position, [kv_heads, head_dim], as BF16 holds it. Keys are large, so that
// few of them have most of the weight; values stand out where a position too many or too few is
// seen.
std::vector<float> made_up(const AttentionLayer& layer, int position, bool is_key) {
  std::vector<float> x(static_cast<size_t>(layer.kv_heads) * layer.head_dim);
  const bool edge =
      position % 128 == 0 || position % 128 == 127 || position < 2 || (position + 512) % 16 < 2;
  for (size_t i = 0; i < x.size(); ++i) {
    const float scale = is_key ? 6.0f : edge ? 8.0f : 1.0f;
    x[i] = numeric::round_to_bfloat16(
        noise(position, static_cast<int64_t>(i), is_key ? 0x1234567 : 0x89abcde) * scale);
  }
  return x;
}

// What a cache of the device holds of x.
std::vector<uint8_t> stored(std::span<const float> x, bool fp8, float scale) {
  std::vector<uint8_t> bytes;
  for (const float value : x) {
    if (fp8) {
      bytes.push_back(numeric::float_to_e4m3(value / scale));
      continue;
    }
    const uint16_t bits = numeric::to_bfloat16(value).bits;
    bytes.push_back(static_cast<uint8_t>(bits));
    bytes.push_back(static_cast<uint8_t>(bits >> 8));
  }
  return bytes;
}

// The caches of one layer on both backends, filled alike.
class Caches {
 public:
  Caches(Runner& device, Runner& reference)
      : layer_(device.attention()),
        own_(reference.attention()),
        view_(as_cuda(device.state()).cache(layer_)),
        ref_(ref::as_ref(reference.state())),
        pages_(device.pages()) {}

  // Positions [filled so far, end) that a row at `end` sees.
  void fill(int end) {
    const int first = layer_.window == 0 ? filled_ : std::max(filled_, end - layer_.window + 1);
    for (int position = first; position < end; ++position) put(position);
    check_device(cudaDeviceSynchronize(), "filling a cache");
    filled_ = std::max(filled_, end);
  }

 private:
  void put(int position) {
    const std::vector<float> key = made_up(layer_, position, true);
    const std::vector<float> value = made_up(layer_, position, false);
    ref::Cache& cache = ref_.cache(0, layer_.window);
    const int64_t page = layer_.window > 0 ? 0 : pages_[position / Runner::kPageTokens];
    const int64_t entry = layer_.window > 0
                              ? ref_.step().entry(layer_.window, 0, position)
                              : page * Runner::kPageTokens + position % Runner::kPageTokens;
    cache.put(entry, position, key.data(), value.data(), {own_.k_scale, own_.v_scale});
    put(view_.keys, page, position, stored(key, view_.fp8, layer_.k_scale));
    put(view_.values, page, position, stored(value, view_.fp8, layer_.v_scale));
  }
  void put(uint8_t* to, int64_t block, int position, const std::vector<uint8_t>& bytes) const {
    const size_t of_head = bytes.size() / static_cast<size_t>(view_.kv_heads);
    const size_t pitch = of_head * static_cast<size_t>(view_.block_tokens);
    const int64_t token =
        block * view_.kv_heads * view_.block_tokens + position % view_.block_tokens;
    check_device(
        cudaMemcpy2D(to + token * static_cast<int64_t>(of_head), pitch, bytes.data(), of_head,
                     of_head, static_cast<size_t>(view_.kv_heads), cudaMemcpyHostToDevice),
        "filling a cache");
  }

  const AttentionLayer& layer_;
  const AttentionLayer& own_;
  CacheView view_;
  ref::RefState& ref_;
  std::span<const int32_t> pages_;
  int filled_ = 0;
};

void compare(Runner& device, Runner& reference, const std::string& name) {
  Caches caches(device, reference);
  std::vector<double> attention, ffn;
  for (const Run& run : kRuns) {
    caches.fill(run.first);
    for (auto* half : {&attention, &ffn}) {
      const Runner::Halves halves = half == &attention ? Runner::kAttention : Runner::kFfn;
      const std::vector<float> expected = reference.run(run.first, run.count, true, halves);
      const std::vector<float> found = device.run(run.first, run.count, true, halves);
      for (int r = 0; r < run.count; ++r) {
        const double error = relative_difference(row_of(found, r), row_of(expected, r));
        half->push_back(std::isnan(error) ? 1e9 : error);
      }
    }
  }
  for (auto* half : {&attention, &ffn}) {
    const char* which = half == &attention ? "attention" : "FFN";
    std::ranges::sort(*half);
    const double middle = (*half)[half->size() / 2];
    const double most = (*half)[half->size() * 9 / 10];
    fmt::print("{}, {}: difference {:.1e} in the middle, {:.1e} at nine tenths\n", name, which,
               middle, most);
    EXPECT_LT(middle, 2.5e-3) << name << ", " << which;
    EXPECT_LT(most, 1e-2) << name << ", " << which;
  }
}

TEST(FarGpu, LayersOfFullWidthAgreeWithTheReference) {
  if (const auto backend = cuda::make_backend(Activations::kBFloat16); !backend.ok()) {
    GTEST_SKIP() << backend.error().message;
  }
  for (const Shape& shape : {kFull, kSparse}) {
    for (const CacheType cache : {CacheType::kActivations, CacheType::kFP8}) {
      Runner reference(ref::make_backend(Activations::kBFloat16, 16), shape, cache, kPositions,
                       kMostRows);
      Runner device(gpu(), shape, cache, kPositions, kMostRows);
      compare(device, reference,
              fmt::format("{}, {} cache", shape.name, cache == CacheType::kFP8 ? "FP8" : "BF16"));
    }
  }
}

}  // namespace
}  // namespace lagoon::kernels::cuda
