#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/ref/matrix.h"

namespace lagoon::kernels::ref {
namespace {

// Replaces scores by exp(score - largest score); returns their sum.
float exponentiate(float* scores, int64_t n) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, scores[i]);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    scores[i] = std::exp(scores[i] - largest);
    sum += scores[i];
  }
  return sum;
}

void add_scaled(float scale, const float* __restrict x, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] += scale * x[i];
}

}  // namespace

Visible find_visible(const RefState& state, const Cache& cache, int32_t sequence, int64_t first,
                     int64_t end) {
  Visible visible;
  visible.lowest = lowest_seen(cache.window(), first);
  visible.entries.reserve(end - visible.lowest);
  for (int64_t p = visible.lowest; p < end; ++p) {
    visible.entries.push_back(state.entry(cache, sequence, static_cast<int32_t>(p)));
    CHECK(cache.position(visible.entries.back()) == p);
  }
  return visible;
}

void attend(const Cache& cache, const Visible& visible, const RowGroup& group, int kv_head,
            const CacheScales& scales, const float* q, float* out, int64_t stride,
            Buffer& scratch) {
  const int64_t dim = cache.head_dim();
  const int64_t lowest = lowest_seen(cache.window(), group.first_position);
  const int64_t span = group.first_position + group.rows - lowest;
  const std::span<const int64_t> entries =
      std::span(visible.entries).subspan(lowest - visible.lowest, span);
  float* decoded = scratch.floats(dim + group.rows * span);
  float* scores = decoded + dim;  // [rows, span]: column i is position lowest + i
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));

  // Each key and value is decoded once for all rows. Row r sees columns [begin(r), end(r)).
  const auto begin = [&](int64_t r) {
    return lowest_seen(cache.window(), group.first_position + r) - lowest;
  };
  const auto end = [&](int64_t r) { return group.first_position + r + 1 - lowest; };
  for (int64_t i = 0; i < span; ++i) {
    const float* key = cache.key(entries[i], kv_head, decoded, scales);
    for (int64_t r = 0; r < group.rows; ++r) {
      if (i < begin(r) || i >= end(r)) continue;
      scores[r * span + i] = dot(q + r * stride, key, dim) * scale;
    }
  }
  std::vector<float> sums(group.rows);
  for (int64_t r = 0; r < group.rows; ++r) {
    sums[r] = exponentiate(scores + r * span + begin(r), end(r) - begin(r));
    std::fill_n(out + r * stride, dim, 0.0f);
  }
  for (int64_t i = 0; i < span; ++i) {
    const float* value = cache.value(entries[i], kv_head, decoded, scales);
    for (int64_t r = 0; r < group.rows; ++r) {
      if (i < begin(r) || i >= end(r)) continue;
      add_scaled(scores[r * span + i], value, dim, out + r * stride);
    }
  }
  for (int64_t r = 0; r < group.rows; ++r) {
    for (int64_t i = 0; i < dim; ++i) out[r * stride + i] /= sums[r];
  }
}

}  // namespace lagoon::kernels::ref
