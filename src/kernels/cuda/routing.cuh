// The choice of experts by one block, for kernels that have one to spare.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/start.cuh"

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
    // Nobody waits for these.
    atomicAdd(&args.use[0], 1);
    atomicAdd(&args.use[1], chosen);
  }
}

// The experts of up to kWarps rows of up to 32 choices and their order, by one block with a warp
// for each row and a thread for each of up to kThreads experts. The top_k-th largest key is found
// bit by bit; of those equal to it the first ones count.
// Waits for the logits by itself.
__device__ inline void route_few(const RouteArgs& args) {
  constexpr int kPerLane = kThreads / kLanes;
  const int rows = static_cast<int>(args.rows);
  const int experts = args.experts;
  const int top_k = args.top_k;
  const Routing& routing = args.routing;
  __shared__ uint64_t ranks[kWarps][kLanes];
  __shared__ float scores[kWarps][kLanes];
  __shared__ float ordered[kWarps][kLanes];
  __shared__ int32_t chosen[kWarps * kLanes];
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x / kLanes;
  // What the device's memory holds from the start comes before the logits.
  float bias[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kLanes + lane;
    bias[i] = e < experts ? args.bias[e] : 0;
  }
  if (static_cast<int>(threadIdx.x) < experts) prefetch(&args.table[threadIdx.x]);
  wait_for_others();
  if (row < rows) {
    uint32_t keys[kPerLane];
    float own[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * kLanes + lane;
      own[i] = e < experts ? score_of(args.logits[int64_t{row} * experts + e], args.softcap) : 0;
      keys[i] = e < experts ? key_of(own[i] + bias[i]) : 0;
    }
    // The largest key that at least top_k keys reach.
    uint32_t border = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      int reach = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) reach += keys[i] >= (border | bit) ? 1 : 0;
      reach = __reduce_add_sync(0xffffffffu, reach);
      if (reach >= top_k) border |= bit;
      if (reach == top_k) break;
    }
    int above = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) above += keys[i] > border ? 1 : 0;
    int ties = top_k - static_cast<int>(__reduce_add_sync(0xffffffffu, above));  // that count
    int found = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * kLanes + lane;
      const uint32_t before = (1u << lane) - 1;
      const uint32_t equal = __ballot_sync(0xffffffffu, e < experts && keys[i] == border);
      const bool takes =
          e < experts && (keys[i] > border || (keys[i] == border && __popc(equal & before) < ties));
      const uint32_t taken = __ballot_sync(0xffffffffu, takes);
      if (takes) {
        const int at = found + __popc(taken & before);
        ranks[row][at] = rank_of(keys[i], e);
        scores[row][at] = own[i];
      }
      ties -= min(ties, __popc(equal));
      found += __popc(taken);
    }
    __syncwarp();
    if (lane < top_k) {
      int place = 0;
      for (int j = 0; j < top_k; ++j) place += ranks[row][j] > ranks[row][lane] ? 1 : 0;
      const int e = id_of(ranks[row][lane]);
      ordered[row][place] = scores[row][lane];
      chosen[row * top_k + place] = e;
      routing.experts[row * top_k + place] = e;
    }
    __syncwarp();
    float sum = 0;
    for (int j = 0; j < top_k; ++j) sum += ordered[row][j];
    if (lane < top_k) routing.weights[row * top_k + lane] = ordered[row][lane] / sum;
  }
  __syncthreads();
  sort_entries(chosen, rows * top_k, args);
}

}  // namespace lagoon::kernels::cuda
