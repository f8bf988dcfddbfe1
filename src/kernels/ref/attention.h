// Attention over cached keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/ref/state.h"
#include "kernels/ref/workers.h"
#include "kernels/step.h"

namespace lagoon::kernels::ref {

// The positions that rows of one sequence see, and where they lie in a cache.
struct Visible {
  int64_t lowest = 0;            // the first position
  std::vector<int64_t> entries;  // of positions lowest, lowest + 1, ...
};

// What rows at positions [first, end) see. CHECKs that the cache holds these positions: that none
// was never written, or was overwritten since.
Visible find_visible(const RefState& state, const Cache& cache, int32_t sequence, int64_t first,
                     int64_t end);

// Attention of one head for the rows of a group, from keys and values that stand in the cache:
//   out_r = sum_p e_p v_p / sum_p e_p,  e_p = exp(s_p - max s),  s_p = (q_r . k_p) / sqrt(head_dim)
// over the positions p of the row's sequence up to its own, the last cache.window() of them if that
// is not 0. All in FP32, sums in order of position. q and out: row r of the group at r * stride.
// `visible` covers what the rows of the group see.
void attend(const Cache& cache, const Visible& visible, const RowGroup& group, int kv_head,
            const CacheScales& scales, const float* q, float* out, int64_t stride, Buffer& scratch);

}  // namespace lagoon::kernels::ref
