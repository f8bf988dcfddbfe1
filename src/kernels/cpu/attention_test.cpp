// Attention over tiles: every instruction set, element, window and head count against double
// precision; a row alone, among others and with other tiles has the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/vectors.h"
#include "kernels/test_weights.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int kKvHeads = 2;
constexpr float kKeyScale = 0.03f;
constexpr float kValueScale = 0.02f;

// Positions of one sequence, as a cache holds them.
class Filled {
 public:
  Filled(TestRandom& random, Element wanted, int head_dim, int window, int positions)
      : element(wanted),
        dim(head_dim),
        activations(wanted == Element::kBFloat16 ? Activations::kBFloat16 : Activations::kFloat32),
        cache({kKvHeads, head_dim, window}, int64_t{2} * round_up(positions), activations,
              wanted == Element::kFP8 ? CacheType::kFP8 : CacheType::kActivations) {
    // Tiles in a shuffled order; each a run of its own.
    const int tiles = round_up(positions) / kTilePositions;
    for (int t = 0; t < tiles; ++t)
      runs.push_back({int64_t{t} * kTilePositions, 1, (int64_t{t} * 7 + 3) % tiles * 2});
    if (tiles % 7 == 0) {
      for (int t = 0; t < tiles; ++t) runs[t].index = 2 * int64_t{t};
    }
    for (int p = 0; p < positions; ++p) {
      for (auto* vectors : {&keys, &values}) {
        std::vector<float>& all = vectors->emplace_back(size_t{kKvHeads} * head_dim);
        for (float& x : all) x = random.normal();
      }
      for (int head = 0; head < kKvHeads; ++head) {
        cache.put(runs[p / kTilePositions].index * kTilePositions + p % kTilePositions, head,
                  keys[p].data() + int64_t{head} * head_dim,
                  values[p].data() + int64_t{head} * head_dim, kKeyScale, kValueScale);
      }
      round(keys.back(), kKeyScale);
      round(values.back(), kValueScale);
    }
  }

  static int round_up(int n) { return (n + kTilePositions - 1) / kTilePositions * kTilePositions; }
  void round(std::vector<float>& all, float scale) const {
    for (float& x : all) {
      if (element == Element::kBFloat16) x = numeric::round_to_bfloat16(x);
      if (element == Element::kFP8) {
        x = numeric::e4m3_to_float(numeric::float_to_e4m3(x / scale)) * scale;
      }
    }
  }

  Element element;
  int dim;
  Activations activations;
  Cache cache;
  std::vector<TileRun> runs;
  std::vector<std::vector<float>> keys, values;  // [positions][kKvHeads * dim], rounded
};

std::vector<float> attend(const Filled& filled, int kv_head, int first, int rows, int heads,
                          const std::vector<float>& q, int64_t row_stride) {
  Attention attention;
  filled.cache.describe(kv_head, attention);
  attention.runs = filled.runs.data();
  attention.position = first;
  attention.rows = rows;
  attention.heads = heads;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(filled.dim));
  if (filled.element == Element::kFP8) {
    attention.scale *= kKeyScale;
    attention.scale_out = kValueScale;
  }
  std::vector<float> out(rows * row_stride, 99);
  attention.q = q.data() + first * row_stride;
  attention.out = out.data();
  attention.row_stride = row_stride;
  std::vector<float> scratch(attention_scratch(rows));
  vectors().attend(attention, scratch.data());
  return out;
}

std::vector<double> plain(const Filled& filled, int kv_head, const float* q, int position) {
  const int window = filled.cache.window();
  const int first = window == 0 ? 0 : std::max(0, position - window + 1);
  std::vector<double> weights, out(filled.dim, 0);
  double sum = 0;
  for (int p = first; p <= position; ++p) {
    double score = 0;
    for (int i = 0; i < filled.dim; ++i) {
      score += double{q[i]} * filled.keys[p][kv_head * filled.dim + i];
    }
    weights.push_back(std::exp(score / std::sqrt(filled.dim)));
    sum += weights.back();
  }
  for (int p = first; p <= position; ++p) {
    for (int i = 0; i < filled.dim; ++i) {
      out[i] += weights[p - first] / sum * filled.values[p][kv_head * filled.dim + i];
    }
  }
  return out;
}

TEST(CpuAttention, AgreesWithDoublePrecisionAndIsTheSameAlone) {
  TestRandom random(1);
  const int positions = 150;
  for (const Element element : {Element::kBFloat16, Element::kFP8, Element::kFloat32}) {
    for (const int dim : {1, 16, 20, 128}) {
      for (const int window : {0, 1, 7, 64, 100}) {
        const Filled filled(random, element, dim, window, positions);
        const int64_t padded = filled.cache.dim();
        for (int heads = 1; heads <= kMaxAttentionHeads; ++heads) {
          const int64_t stride = heads * padded + 5;
          std::vector<float> q(positions * stride, 0);
          for (int r = 0; r < positions; ++r) {
            for (int h = 0; h < heads; ++h) {
              for (int i = 0; i < dim; ++i) q[r * stride + h * padded + i] = random.normal();
            }
          }
          const int kv_head = heads % kKvHeads;
          std::vector<float> first_set;
          for (const InstructionSet set : available()) {
            SCOPED_TRACE(std::string(name_of(set)));
            select(set);
            std::vector<float> all;
            for (int first = 0, rows = 1; first < positions; first += rows) {
              rows = std::min(1 + (first + heads) % 17, positions - first);
              const auto out = attend(filled, kv_head, first, rows, heads, q, stride);
              all.insert(all.end(), out.begin(), out.end());
            }
            if (first_set.empty()) {
              first_set = all;
              for (int r = 0; r < positions; r += 3) {
                for (int h = 0; h < heads; ++h) {
                  const int64_t at = r * stride + h * padded;
                  const auto expected = plain(filled, kv_head, q.data() + at, r);
                  for (int i = 0; i < dim; ++i) ASSERT_NEAR(all[at + i], expected[i], 4e-6) << r;
                }
                for (int i = 0; i < 5; ++i) ASSERT_EQ(all[r * stride + heads * padded + i], 99);
              }
            }
            ASSERT_EQ(std::memcmp(all.data(), first_set.data(), all.size() * sizeof(float)), 0);
            for (int r = window % 5; r < positions; r += 11) {
              const auto alone = attend(filled, kv_head, r, 1, heads, q, stride);
              ASSERT_EQ(std::memcmp(alone.data(), all.data() + r * stride, stride * sizeof(float)),
                        0)
                  << r;
            }
          }
        }
      }
    }
  }
}

TEST(CpuAttention, LargeScoresDoNotOverflow) {
  for (const InstructionSet set : available()) {
    select(set);
    Cache cache({1, 1, 0}, 16, Activations::kFloat32, CacheType::kActivations);
    const float keys[] = {1e4f, 2e4f, -3e4f};
    for (int p = 0; p < 3; ++p) {
      const auto value = static_cast<float>(p + 1);
      cache.put(p, 0, &keys[p], &value, 1, 1);
    }
    const TileRun run = {0, 1, 0};
    Attention attention;
    cache.describe(0, attention);
    attention.runs = &run;
    attention.position = 2;
    attention.rows = attention.heads = 1;
    std::vector<float> q(16, 0), out(16), scratch(attention_scratch(1));
    q[0] = 5;
    attention.q = q.data();
    attention.out = out.data();
    attention.row_stride = 16;
    vectors().attend(attention, scratch.data());
    EXPECT_EQ(out[0], 2);
  }
}

// What lies in a tile beyond the row is not read: a NaN there, of another request, changes nothing.
TEST(CpuAttention, DoesNotSeeWhatIsBeyondTheRow) {
  TestRandom random(2);
  for (const Element element : {Element::kBFloat16, Element::kFP8, Element::kFloat32}) {
    Filled filled(random, element, 16, 40, 100);
    std::vector<float> q(size_t{100} * 16);
    for (float& x : q) x = random.normal();
    const std::vector<float> before = attend(filled, 0, 69, 2, 1, q, 16);
    const std::vector<float> nan(16, NAN);
    for (int p = 0; p < 100; ++p) {
      if (p > 29 && p <= 70) continue;
      filled.cache.put(filled.runs[p / 16].index * 16 + p % 16, 0, nan.data(), nan.data(), 1, 1);
    }
    EXPECT_EQ(attend(filled, 0, 69, 2, 1, q, 16), before);
  }
}

}  // namespace
}  // namespace lagoon::kernels::cpu
