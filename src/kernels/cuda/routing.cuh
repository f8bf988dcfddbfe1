// The choice of experts by one block, for kernels that have one to spare.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {

__device__ inline float score_of(float logit, float softcap) {
  if (softcap > 0) logit = softcap * tanhf(logit / softcap);
  return 1.0f / (1.0f + expf(-logit));
}

// Sorts entries by expert: a thread counts and collects the entries of one expert. Counts of
// entries (lower half) and of experts that have any (upper half) are summed up together.
__device__ inline void sort_entries(const int32_t* of_entries, int entries, const RouteArgs& args) {
  const int experts = args.experts;
  const Routing& routing = args.routing;
  __shared__ uint64_t warps[kMostExperts / kLanes];
  const int expert = threadIdx.x;
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  int count = 0;
  if (expert < experts) {
    for (int e = 0; e < entries; ++e) count += of_entries[e] == expert ? 1 : 0;
  }
  uint64_t up_to = static_cast<uint64_t>(count) | static_cast<uint64_t>(count > 0 ? 1 : 0) << 32;
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint64_t more = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += more;
  }
  if (lane == kLanes - 1) warps[warp] = up_to;
  __syncthreads();
  for (int w = 0; w < warp; ++w) up_to += warps[w];
  const int chosen = static_cast<int>(up_to >> 32);
  if (count > 0) {
    int at = static_cast<int>(up_to & 0xffffffffu) - count;
    routing.slots[2 * (chosen - 1)] = expert;
    routing.slots[2 * (chosen - 1) + 1] = at;
    routing.views[chosen - 1] = args.table[expert];
    for (int e = 0; e < entries; ++e) {
      if (of_entries[e] == expert) routing.order[at++] = e;
    }
  }
  if (expert == static_cast<int>(blockDim.x) - 1) {  // all are counted here
    routing.slots[2 * chosen] = -1;
    routing.slots[2 * chosen + 1] = entries;
    *routing.count = chosen;
    atomicAdd(&args.use[0], 1);
    atomicAdd(&args.use[1], chosen);
  }
}

// What sort_entries() does, for entries in shared memory behind which there are -1 up to a multiple
// of four; a thread for each expert, kThreads in all. Writes if `real`.
__device__ __forceinline__ void sort_few(const int32_t* of_entries, int entries,
                                         const RouteArgs& args, bool real) {
  const Routing& routing = args.routing;
  __shared__ uint32_t warps[kWarps];
  const int expert = threadIdx.x;
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  const auto* four = reinterpret_cast<const int4*>(of_entries);
  uint32_t count = 0;
#pragma unroll 1
  for (int f = 0; f < (entries + 3) / 4; ++f) {
    const int4 v = four[f];
    count += (v.x == expert ? 1 : 0) + (v.y == expert ? 1 : 0) + (v.z == expert ? 1 : 0) +
             (v.w == expert ? 1 : 0);
  }
  // Entries in the lower half, experts that have any in the upper one.
  uint32_t up_to = count > 0 ? count | 1u << 16 : 0;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint32_t more = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += more;
  }
  if (lane == kLanes - 1) warps[warp] = up_to;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) up_to += w < warp ? warps[w] : 0;
  const int chosen = static_cast<int>(up_to >> 16);
  if (count > 0) {
    int at = static_cast<int>((up_to & 0xffffu) - count);
    const ExpertView view = args.table[expert];
    if (real) {
      routing.slots[2 * (chosen - 1)] = expert;
      routing.slots[2 * (chosen - 1) + 1] = at;
      routing.views[chosen - 1] = view;
    }
#pragma unroll 1
    for (int f = 0; f < (entries + 3) / 4; ++f) {
      const int4 v = four[f];
      const int32_t of_four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (of_four[e] == expert && real) routing.order[at++] = f * 4 + e;
      }
    }
  }
  if (expert == kThreads - 1 && real) {  // all are counted here
    routing.slots[2 * chosen] = -1;
    routing.slots[2 * chosen + 1] = entries;
    *routing.count = chosen;
    // Nobody waits for these.
    atomicAdd(&args.use[0], 1);
    atomicAdd(&args.use[1], chosen);
  }
}

// What a block that chooses has in shared memory: of its own, or where its weights have passed.
struct RouteMemory {
  float scores[kWarps][kThreads];
  uint32_t keys[kWarps][kThreads];
  float ordered[kWarps][kLanes];
  alignas(16) int32_t chosen[kWarps * kLanes];
};

// The experts of up to kWarps rows of up to 32 choices and their order, by one block with a warp
// for each row and a thread for each of up to kThreads experts: the largest key is taken top_k
// times, of equal ones that of the first expert. The logits are there; or, if not `real`, this
// only brings the code near, which would be cold otherwise, and writes nothing.
__device__ __forceinline__ void route_few(const RouteArgs& args, RouteMemory& memory, bool real) {
  constexpr int kPerLane = kThreads / kLanes;
  const int rows = static_cast<int>(args.rows);
  const int experts = args.experts;
  const int top_k = args.top_k;
  const Routing& routing = args.routing;
  auto& scores = memory.scores;
  auto& ordered = memory.ordered;
  auto& chosen = memory.chosen;
  const int thread = threadIdx.x;
  const int lane = thread % kLanes;
  const int row = thread / kLanes;
  chosen[thread] = -1;
  const float* logits = real ? args.logits : args.bias;
  const bool is_expert = thread < experts;
  const float bias = is_expert ? args.bias[thread] : 0;
  float row_logits[kWarps];
#pragma unroll
  for (int r = 0; r < kWarps; ++r) {
    row_logits[r] = r < rows && is_expert ? __ldcg(&logits[(real ? r : 0) * experts + thread]) : 0;
  }
#pragma unroll
  for (int r = 0; r < kWarps; ++r) scores[r][thread] = row_logits[r];
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    const float score = score_of(scores[r][thread], args.softcap);
    scores[r][thread] = score;
    memory.keys[r][thread] = is_expert ? key_of(score + bias) : 0;  // 0: no expert, or taken
  }
  __syncthreads();
  if (row < rows) {
    uint32_t keys[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) keys[i] = memory.keys[row][i * kLanes + lane];
    int own = 0;  // the lane's choice
#pragma unroll 1
    for (int j = 0; j < top_k; ++j) {
      uint32_t largest = keys[0];
#pragma unroll
      for (int i = 1; i < kPerLane; ++i) largest = max(largest, keys[i]);
      largest = __reduce_max_sync(0xffffffffu, largest);
      unsigned first = kThreads;
#pragma unroll
      for (int i = kPerLane - 1; i >= 0; --i) {
        if (keys[i] == largest) first = i * kLanes + lane;
      }
      const int e = static_cast<int>(__reduce_min_sync(0xffffffffu, first));
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (e == i * kLanes + lane) keys[i] = 0;
      }
      if (lane == j) own = e;
    }
    const float score = lane < top_k ? scores[row][own] : 0;
    ordered[row][lane] = score;
    __syncwarp();
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kLanes; j += 4) {  // zeros behind the choices
      const float4 v = *reinterpret_cast<const float4*>(&ordered[row][j]);
      sum = (((sum + v.x) + v.y) + v.z) + v.w;
    }
    if (lane < top_k) {
      chosen[row * top_k + lane] = own;
      if (real) {
        routing.experts[row * top_k + lane] = own;
        routing.weights[row * top_k + lane] = score / sum;
      }
    }
  }
  __syncthreads();
  sort_few(chosen, rows * top_k, args, real);
  __syncthreads();  // before all this comes again
}

}  // namespace lagoon::kernels::cuda
