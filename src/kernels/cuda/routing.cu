// The choice of experts for each row, their order, and the sum over what they gave.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

__device__ float score_of(float logit, float softcap) {
  if (softcap > 0) logit = softcap * tanhf(logit / softcap);
  return 1.0f / (1.0f + expf(-logit));
}

// A block chooses the experts of a row, a thread for each expert: its place is the number of those
// that come before it. A NaN comes last.
__global__ void __launch_bounds__(kMostExperts)
    choose_kernel(const float* logits, const float* bias, int experts, int top_k, float softcap,
                  Routing routing) {
  __shared__ uint64_t ranks[kMostExperts];  // larger comes first: sigmoid + bias, then the index
  __shared__ float scores[kMostExperts];
  __shared__ float chosen[kMostExperts];
  const int expert = threadIdx.x;
  const int64_t row = blockIdx.x;
  uint64_t own = 0;
  let_others_start();
  wait_for_others();
  if (expert < experts) {
    scores[expert] = score_of(logits[row * experts + expert], softcap);
    own = rank_of(key_of(scores[expert] + bias[expert]), expert);
    ranks[expert] = own;
  }
  __syncthreads();
  int place = 0;
  if (expert < experts) {
#pragma unroll 8
    for (int e = 0; e < experts; ++e) place += ranks[e] > own ? 1 : 0;
    if (place < top_k) {
      routing.experts[row * top_k + place] = expert;
      chosen[place] = scores[expert];
    }
  }
  __syncthreads();
  float sum = 0;
  for (int j = 0; j < top_k; ++j) sum += chosen[j];
  for (int j = threadIdx.x; j < top_k; j += blockDim.x) {
    routing.weights[row * top_k + j] = chosen[j] / sum;
  }
}

// Sorts entries by expert: a thread counts and collects the entries of one expert. Counts of
// entries (lower half) and of experts that have any (upper half) are summed up together.
__device__ void sort_entries(const int32_t* of_entries, int entries, int experts,
                             const ExpertView* table, const Routing& routing, int32_t* use) {
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
    routing.views[chosen - 1] = table[expert];
    for (int e = 0; e < entries; ++e) {
      if (of_entries[e] == expert) routing.order[at++] = e;
    }
  }
  if (expert == static_cast<int>(blockDim.x) - 1) {  // all are counted here
    routing.slots[2 * chosen] = -1;
    routing.slots[2 * chosen + 1] = entries;
    *routing.count = chosen;
    use[0] += 1;
    use[1] += chosen;
  }
}

__global__ void __launch_bounds__(kMostExperts)
    sort_kernel(int entries, int experts, const ExpertView* table, Routing routing, int32_t* use) {
  let_others_start();
  wait_for_others();
  sort_entries(routing.experts, entries, experts, table, routing, use);
}

// Both at once, in one block, for up to kWarps rows of up to 32 choices: a warp a row. The top_k-th
// largest key is found bit by bit; of those equal to it the first ones count.
template <int kPerLane>
__global__ void __launch_bounds__(kPerLane* kLanes)
    route_few_kernel(const float* logits, const float* bias, int rows, int experts, int top_k,
                     float softcap, const ExpertView* table, Routing routing, int32_t* use) {
  __shared__ uint64_t ranks[kWarps][kLanes];
  __shared__ float scores[kWarps][kLanes];
  __shared__ float ordered[kWarps][kLanes];
  __shared__ int32_t chosen[kWarps * kLanes];
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x / kLanes;
  let_others_start();
  wait_for_others();
  if (row < rows) {
    uint32_t keys[kPerLane];
    float own[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * kLanes + lane;
      own[i] = e < experts ? score_of(logits[int64_t{row} * experts + e], softcap) : 0;
      keys[i] = e < experts ? key_of(own[i] + bias[e]) : 0;
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
  sort_entries(chosen, rows * top_k, experts, table, routing, use);
}

__global__ void add_routed_kernel(const float* mlp, const float* y, Routing routing, int top_k,
                                  float scale, int64_t hidden, float* residual, float* tap) {
  let_others_start();
  wait_for_others();
  const int64_t row = blockIdx.y;
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= hidden) return;
  float sum = 0;
  for (int j = 0; j < top_k; ++j) {
    const int64_t entry = row * top_k + j;
    sum = fmaf(routing.weights[entry], y[entry * hidden + i], sum);
  }
  const int64_t at = row * hidden + i;
  const float value = residual[at] + fmaf(scale, sum, mlp[at]);
  residual[at] = value;
  if (tap != nullptr) tap[at] = value;
}

}  // namespace

void route(Stream stream, const float* logits, const float* bias, const ExpertView* table,
           int64_t rows, int experts, int top_k, float softcap, const Routing& routing,
           int32_t* use) {
  const auto threads = static_cast<unsigned>(ceil_divide(experts, kLanes) * kLanes);
  if (rows <= kWarps && top_k <= kLanes) {
    // A thread for each expert, and a warp for each row.
    const unsigned few = threads < kWarps * kLanes ? kWarps * kLanes : threads;
    const auto kernel = experts <= 8 * kLanes ? route_few_kernel<8> : route_few_kernel<32>;
    start(stream, kernel, dim3(1), few, 0, logits, bias, static_cast<int>(rows), experts, top_k,
          softcap, table, routing, use);
    return;
  }
  start(stream, choose_kernel, dim3(static_cast<unsigned>(rows)), threads, 0, logits, bias, experts,
        top_k, softcap, routing);
  start(stream, sort_kernel, dim3(1), threads, 0, static_cast<int>(rows * top_k), experts, table,
        routing, use);
}

void add_routed(Stream stream, const float* mlp, const float* y, const Routing& routing, int top_k,
                float scale, int64_t rows, int64_t hidden, float* residual, float* tap) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(hidden, 256)), static_cast<unsigned>(rows));
  start(stream, add_routed_kernel, grid, 256, 0, mlp, y, routing, top_k, scale, hidden, residual,
        tap);
}

}  // namespace lagoon::kernels::cuda
