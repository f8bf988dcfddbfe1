#include "kernels/ref/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/test_weights.h"

namespace lagoon::kernels::ref {
namespace {

constexpr int64_t kKvHeads = 2;

std::unique_ptr<RefState> allocate(int head_dim, int window, int max_rows, Activations activations,
                                   CacheType cache_type = CacheType::kActivations) {
  StateShape shape;
  shape.hidden = shape.vocab = 1;
  shape.max_rows = max_rows;
  shape.sequences = 2;
  shape.block_rows = 3;
  shape.pages = 40;
  shape.page_tokens = 4;
  shape.cache_type = cache_type;
  shape.full = {{int{kKvHeads}, head_dim, 0}};
  shape.sliding = {{int{kKvHeads}, head_dim, window}};
  auto state = RefState::allocate(shape, activations);
  EXPECT_TRUE(state.ok());
  return std::move(state).value();
}

// Begins a step of one row at a position, with the page tables of both sequences: odd pages, from
// the last, and even ones.
void begin(RefState& state, int32_t sequence, int32_t position) {
  std::vector<int32_t> odd, even;
  for (int32_t page = 0; page < 20; ++page) {
    odd.push_back(39 - 2 * page);
    even.push_back((page * 7) % 20 * 2);
  }
  const std::span<const int32_t> tables[] = {odd, even};
  const Row row = {0, position, sequence};
  state.begin({{&row, 1}, tables, nullptr});
}

// As a half does it for a step that is one group.
void attend_group(const RefState& state, const Cache& cache, const RowGroup& group, int kv_head,
                  const float* q, float* out, int64_t stride, const CacheScales& scales = {}) {
  const Visible visible = find_visible(state, cache, group.sequence, group.first_position,
                                       group.first_position + group.rows);
  Buffer scratch;
  attend(cache, visible, group, kv_head, scales, q, out, stride, scratch);
}

// Keys and values by position, as they were given to the cache.
using Vectors = std::vector<std::vector<float>>;

std::vector<float> random_vector(TestRandom& random, int64_t n) {
  std::vector<float> x(n);
  for (float& value : x) value = random.normal();
  return x;
}

void round_to_nearest(std::vector<float>& x) {
  for (float& value : x) value = numeric::round_to_bfloat16(value);
}

// One head of one row in double precision, from the last `window` positions up to `position`.
std::vector<double> plain_attention(const float* q, const Vectors& keys, const Vectors& values,
                                    int kv_head, int head_dim, int position, int window) {
  const int first = window == 0 ? 0 : std::max(0, position - window + 1);
  std::vector<double> weights, out(head_dim, 0);
  double sum = 0;
  for (int p = first; p <= position; ++p) {
    double score = 0;
    for (int i = 0; i < head_dim; ++i) score += double{q[i]} * keys[p][kv_head * head_dim + i];
    weights.push_back(std::exp(score / std::sqrt(head_dim)));
    sum += weights.back();
  }
  for (int p = first; p <= position; ++p) {
    for (int i = 0; i < head_dim; ++i) {
      out[i] += weights[p - first] / sum * values[p][kv_head * head_dim + i];
    }
  }
  return out;
}

TEST(GroupRows, CutsAtSequencesAndAtTheMostRows) {
  std::vector<Row> rows;
  rows.reserve(7);
  for (int i = 0; i < 5; ++i) rows.push_back({0, 10 + i, 1});
  for (int i = 0; i < 2; ++i) rows.push_back({0, 3 + i, 0});
  const std::vector<RowGroup> groups = group_rows(rows, 4);
  ASSERT_EQ(groups.size(), 3u);
  const int64_t expected[][4] = {{0, 4, 1, 10}, {4, 1, 1, 14}, {5, 2, 0, 3}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(groups[i].first_row, expected[i][0]);
    EXPECT_EQ(groups[i].rows, expected[i][1]);
    EXPECT_EQ(groups[i].sequence, expected[i][2]);
    EXPECT_EQ(groups[i].first_position, expected[i][3]);
  }
}

// Positions before, at and after the edges of windows and pages, groups of one to eight rows.
TEST(Attend, AgreesWithDoublePrecision) {
  TestRandom random(1);
  for (const int head_dim : {1, 16, 20}) {
    for (const int window : {0, 1, 2, 7, 16}) {
      const int positions = 30;
      const auto state = allocate(head_dim, std::max(window, 1), positions, Activations::kFloat32);
      begin(*state, 1, positions - 1);
      Cache& cache = state->cache(0, window);
      Vectors keys, values;
      for (int p = 0; p < positions; ++p) {
        keys.push_back(random_vector(random, kKvHeads * head_dim));
        values.push_back(random_vector(random, kKvHeads * head_dim));
        cache.put(state->entry(cache, 1, p), p, keys[p].data(), values[p].data());
      }
      const int64_t stride = head_dim + 3;
      const std::vector<float> q = random_vector(random, positions * stride);
      for (int rows = 1; rows <= 8; ++rows) {
        for (int first = 0; first + rows <= positions; first += rows) {
          for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
            std::vector<float> out(rows * stride, 99);
            attend_group(*state, cache, {0, rows, 1, first}, kv_head, q.data() + first * stride,
                         out.data(), stride);
            for (int r = 0; r < rows; ++r) {
              const std::vector<double> expected =
                  plain_attention(q.data() + (first + r) * stride, keys, values, kv_head, head_dim,
                                  first + r, window);
              for (int i = 0; i < head_dim; ++i) {
                ASSERT_NEAR(out[r * stride + i], expected[i], 2e-6) << window << " " << first + r;
              }
              for (int64_t i = head_dim; i < stride; ++i) ASSERT_EQ(out[r * stride + i], 99);
            }
          }
        }
      }
    }
  }
}

TEST(Attend, LargeScoresDoNotOverflow) {
  const auto state = allocate(1, 4, 4, Activations::kFloat32);
  begin(*state, 0, 2);
  Cache& cache = state->cache(0, 0);
  const float keys[][kKvHeads] = {{1e4f, 0}, {2e4f, 0}, {-3e4f, 0}};
  for (int p = 0; p < 3; ++p) {
    const float value[] = {static_cast<float>(p + 1), 0};
    cache.put(state->entry(cache, 0, p), p, keys[p], value);
  }
  const float q = 5;
  float out = 0;
  attend_group(*state, cache, {0, 1, 0, 2}, 0, &q, &out, 1);
  EXPECT_EQ(out, 2);
}

TEST(Attend, BFloat16CachesHoldRoundedKeysAndValues) {
  TestRandom random(2);
  const int dim = 24;
  const auto half = allocate(dim, 4, 8, Activations::kBFloat16);
  const auto full = allocate(dim, 4, 8, Activations::kFloat32);
  std::vector<float> out_half(dim), out_full(dim);
  const std::vector<float> q = random_vector(random, dim);
  for (int p = 0; p < 6; ++p) {
    std::vector<float> key = random_vector(random, kKvHeads * dim);
    std::vector<float> value = random_vector(random, kKvHeads * dim);
    begin(*half, 0, p);
    Cache& half_cache = half->cache(0, 4);
    half_cache.put(half->entry(half_cache, 0, p), p, key.data(), value.data());
    round_to_nearest(key);
    round_to_nearest(value);
    begin(*full, 0, p);
    Cache& full_cache = full->cache(0, 4);
    full_cache.put(full->entry(full_cache, 0, p), p, key.data(), value.data());
    attend_group(*half, half_cache, {0, 1, 0, p}, 1, q.data(), out_half.data(), dim);
    attend_group(*full, full_cache, {0, 1, 0, p}, 1, q.data(), out_full.data(), dim);
    EXPECT_EQ(out_half, out_full);
  }
}

TEST(Attend, Fp8CachesHoldCodesTimesScales) {
  TestRandom random(4);
  const int dim = 20;
  const CacheScales scales = {0.037f, 2.5f};
  for (const Activations activations : {Activations::kBFloat16, Activations::kFloat32}) {
    const auto fp8 = allocate(dim, 4, 8, activations, CacheType::kFP8);
    const auto full = allocate(dim, 4, 8, Activations::kFloat32);
    std::vector<float> out_fp8(dim), out_full(dim);
    const std::vector<float> q = random_vector(random, dim);
    for (int p = 0; p < 6; ++p) {
      std::vector<float> key = random_vector(random, kKvHeads * dim);
      std::vector<float> value = random_vector(random, kKvHeads * dim);
      key[3] = 100;  // saturates: 100 / 0.037 is above 448
      begin(*fp8, 0, p);
      Cache& fp8_cache = fp8->cache(0, 4);
      fp8_cache.put(fp8->entry(fp8_cache, 0, p), p, key.data(), value.data(), scales);
      if (activations == Activations::kBFloat16) {
        round_to_nearest(key);
        round_to_nearest(value);
      }
      for (float& k : key) {
        k = numeric::e4m3_to_float(numeric::float_to_e4m3(k / scales.key)) * scales.key;
      }
      for (float& v : value) {
        v = numeric::e4m3_to_float(numeric::float_to_e4m3(v / scales.value)) * scales.value;
      }
      EXPECT_FLOAT_EQ(key[3], 448 * scales.key);
      begin(*full, 0, p);
      Cache& full_cache = full->cache(0, 4);
      full_cache.put(full->entry(full_cache, 0, p), p, key.data(), value.data());
      attend_group(*fp8, fp8_cache, {0, 1, 0, p}, 1, q.data(), out_fp8.data(), dim, scales);
      attend_group(*full, full_cache, {0, 1, 0, p}, 1, q.data(), out_full.data(), dim);
      EXPECT_EQ(out_fp8, out_full);
    }
  }
}

// A ring that has wrapped many times, with rejected rows overwritten, gives the bits of a cache
// that never wraps.
TEST(Attend, ARingGivesTheBitsOfAnUnboundedCache) {
  TestRandom random(3);
  const int64_t dim = 16;
  const int window = 5;
  const int max_rows = 4;  // ring of 5 + 4 + 3
  const auto ring = allocate(static_cast<int>(dim), window, max_rows, Activations::kBFloat16);
  const auto unbounded = allocate(static_cast<int>(dim), window, 1000, Activations::kBFloat16);
  int committed[2] = {0, 0};
  for (int step = 0; step < 400; ++step) {
    const int32_t sequence = random.below(2);
    const int first = committed[sequence];
    const int rows = 1 + random.below(max_rows);
    const std::vector<float> q = random_vector(random, rows * dim);
    std::vector<float> out_ring(rows * dim), out_unbounded(rows * dim);
    for (int p = first; p < first + rows; ++p) {
      const std::vector<float> key = random_vector(random, kKvHeads * dim);
      const std::vector<float> value = random_vector(random, kKvHeads * dim);
      for (RefState* state : {ring.get(), unbounded.get()}) {
        Cache& cache = state->cache(0, window);
        cache.put(state->entry(cache, sequence, p), p, key.data(), value.data());
      }
    }
    const RowGroup group = {0, rows, sequence, first};
    attend_group(*ring, ring->cache(0, window), group, step % 2, q.data(), out_ring.data(), dim);
    attend_group(*unbounded, unbounded->cache(0, window), group, step % 2, q.data(),
                 out_unbounded.data(), dim);
    ASSERT_EQ(std::memcmp(out_ring.data(), out_unbounded.data(), out_ring.size() * sizeof(float)),
              0);
    committed[sequence] += 1 + random.below(rows);  // the rest is rejected
  }
  EXPECT_GT(std::min(committed[0], committed[1]), 200);
}

TEST(AttendDeathTest, ReadingWhatWasNeverWrittenOrWasOverwrittenIsABug) {
  const auto state = allocate(1, 4, 4, Activations::kFloat32);
  begin(*state, 0, 3);
  Cache& cache = state->cache(0, 4);
  const float one[kKvHeads] = {1, 1};
  for (const int p : {0, 1, 3}) cache.put(state->entry(cache, 0, p), p, one, one);
  float out = 0;
  EXPECT_DEATH(attend_group(*state, cache, {0, 1, 0, 3}, 0, one, &out, 1), "CHECK failed");
  cache.put(state->entry(cache, 0, 2), 2, one, one);
  attend_group(*state, cache, {0, 1, 0, 3}, 0, one, &out, 1);
  EXPECT_EQ(out, 1);
  cache.put(state->entry(cache, 0, 12), 12, one, one);  // the ring holds 11: in the place of 1
  EXPECT_DEATH(attend_group(*state, cache, {0, 1, 0, 3}, 0, one, &out, 1), "CHECK failed");
}

}  // namespace
}  // namespace lagoon::kernels::ref
