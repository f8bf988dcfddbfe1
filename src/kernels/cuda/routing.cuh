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

// Few rows: a warp for each of up to kWarps rows of up to 32 choices, a thread for each of up to
// kThreads experts. A lane of a warp has experts that follow each other.
inline constexpr int kPerLane = kThreads / kLanes;

// What a block that chooses has in shared memory: of its own, or where its weights have passed.
struct RouteMemory {
  // Keys and scores of each lane's experts, the best first, and behind them twice nothing.
  uint2 sorted[kWarps][kPerLane + 2][kLanes];
  // Of each expert and row: one more than which choice it is, or zero.
  uint2 choices[kThreads];
  uint32_t of_warps[kWarps];
};

// What is known of experts before there are logits.
struct KnownExperts {
  float biases[kPerLane];  // of the lane's
  static constexpr int kQuarters = sizeof(ExpertView) / sizeof(uint4);
  uint4 view[kQuarters];  // of the thread's
  __device__ explicit KnownExperts(const RouteArgs& args) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = thread % kLanes * kPerLane + i;
      biases[i] = expert < args.experts ? args.bias[expert] : 0;
    }
    const auto* table = reinterpret_cast<const uint4*>(&args.table[min(thread, args.experts - 1)]);
#pragma unroll
    for (int i = 0; i < kQuarters; ++i) view[i] = table[i];
  }
};

// score_of() of all, without a branch for each quotient: below 2^126, 1 / x is what one step of
// Newton's makes of the approximation, for the compiler too.
__device__ __forceinline__ void scores_of(float softcap, float (&values)[kPerLane]) {
  if (softcap > 0) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) values[i] = score_of(values[i], softcap);
    return;
  }
  bool far = false;
  float quotients[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float x = 1.0f + expf(-values[i]);
    far = far || !(x < 0x1p126f);
    float near = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    quotients[i] = fmaf(near, -fmaf(x, near, -1.0f), near);
  }
  if (far) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) values[i] = score_of(values[i], 0);
    return;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) values[i] = quotients[i];
}

// The experts of a row by one warp: the largest key is taken top_k times, of equal ones that of the
// first expert. Each lane has sorted its own, so that a round asks only for the best of each.
// `values` are the logits of the lane's experts.
__device__ __forceinline__ void choose_few(const RouteArgs& args, const KnownExperts& known,
                                           RouteMemory& memory, int row, bool real,
                                           float (&values)[kPerLane]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = lane * kPerLane;
  scores_of(args.softcap, values);
  uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    // 0: no expert, or none left
    keys[i] = first + i < args.experts ? key_of(values[i] + known.biases[i]) : 0;
  }
  uint32_t ids = 0;  // of four bits each: which of the lane's, the best first
  auto& sorted = memory.sorted[row];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    int place = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (j != i) place += (j < i ? keys[j] >= keys[i] : keys[j] > keys[i]) ? 1 : 0;
    }
    sorted[place][lane] = make_uint2(keys[i], __float_as_uint(values[i]));
    ids |= static_cast<uint32_t>(i) << 4 * place;
  }
  sorted[kPerLane][lane] = sorted[kPerLane + 1][lane] = make_uint2(0, 0);
  uint2 best = sorted[0][lane];
  uint2 next = sorted[1][lane];
  const uint2* following = &sorted[2][lane];
  int own = 0;  // the lane's choice
  float own_score = 0;
  float sum = 0;
#pragma unroll 1
  for (int j = 0; j < args.top_k; ++j) {
    const uint32_t largest = __reduce_max_sync(0xffffffffu, best.x);
    const int from = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, best.x == largest))) - 1;
    const float score = __uint_as_float(__shfl_sync(0xffffffffu, best.y, from));
    const int expert = __shfl_sync(0xffffffffu, first + static_cast<int>(ids & 15u), from);
    if (lane == from) {
      best = next;
      next = *following;
      following += kLanes;
      ids >>= 4;
    }
    if (lane == j) own = expert, own_score = score;
    sum += score;
  }
  if (lane < args.top_k) {
    auto* choices = reinterpret_cast<uint8_t*>(&memory.choices[own]);
    choices[row] = static_cast<uint8_t>(lane + 1);
    if (real) {
      args.routing.experts[row * args.top_k + lane] = own;
      args.routing.weights[row * args.top_k + lane] = own_score / sum;
    }
  }
}

// What sort_entries() does, of the choices in `memory`, which are no more there then.
__device__ __forceinline__ void sort_few(const RouteArgs& args, const KnownExperts& known,
                                         RouteMemory& memory, bool real) {
  const Routing& routing = args.routing;
  const int expert = static_cast<int>(threadIdx.x);
  const int warp = expert / kLanes;
  const uint2 choices = memory.choices[expert];
  memory.choices[expert] = make_uint2(0, 0);
  // A bit for each row: choices are less than 128.
  const uint32_t low = (choices.x + 0x7f7f7f7fu) & 0x80808080u;
  const uint32_t high = (choices.y + 0x7f7f7f7fu) & 0x80808080u;
  const int count = __popc(low) + __popc(high);
  // Entries before those of this expert in the lower half, experts that have any in the upper one:
  // those of the warp by the bits of their counts.
  const uint32_t below = (1u << expert % kLanes) - 1;
  const uint32_t any = __ballot_sync(0xffffffffu, count > 0);
  uint32_t before = static_cast<uint32_t>(__popc(any & below)) << 16;
  uint32_t of_warp = static_cast<uint32_t>(__popc(any)) << 16;
#pragma unroll
  for (int bit = 0; bit < 4; ++bit) {
    const uint32_t has = __ballot_sync(0xffffffffu, (count >> bit & 1) != 0);
    before += static_cast<uint32_t>(__popc(has & below)) << bit;
    of_warp += static_cast<uint32_t>(__popc(has)) << bit;
  }
  memory.of_warps[warp] = of_warp;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) before += w < warp ? memory.of_warps[w] : 0;
  const int chosen = static_cast<int>(before >> 16);
  int at = static_cast<int>(before & 0xffffu);
  if (count > 0 && real) {
    routing.slots[2 * chosen] = expert;
    routing.slots[2 * chosen + 1] = at;
    auto* view = reinterpret_cast<uint4*>(&routing.views[chosen]);
#pragma unroll
    for (int i = 0; i < KnownExperts::kQuarters; ++i) view[i] = known.view[i];
    int row_entries = -1;
    const auto put = [&](uint32_t of_rows) {
#pragma unroll
      for (int r = 0; r < 4; ++r, row_entries += args.top_k) {
        const int choice = static_cast<int>(of_rows >> 8 * r & 0xffu);
        if (choice > 0) routing.order[at++] = row_entries + choice;
      }
    };
    put(choices.x);
    if (choices.y != 0) put(choices.y);
  }
  if (expert == kThreads - 1 && real) {
    const int all_chosen = chosen + (count > 0 ? 1 : 0);
    routing.slots[2 * all_chosen] = -1;
    routing.slots[2 * all_chosen + 1] = static_cast<int>(args.rows) * args.top_k;
    *routing.count = all_chosen;
    // Nobody waits for these.
    atomicAdd(&args.use[0], 1);
    atomicAdd(&args.use[1], all_chosen);
  }
}

// The experts of up to kWarps rows and their order, by one block. wait() comes before the logits,
// of which logits_of(row, values) gives a lane those of its experts. What is before counts for
// nothing: it goes through all this once, since code that was not run would be cold, and writes
// nothing.
template <typename Wait, typename LogitsOf>
__device__ __forceinline__ void route_few(const RouteArgs& args, RouteMemory& memory,
                                          const Wait& wait, const LogitsOf& logits_of) {
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const KnownExperts known(args);
  memory.choices[threadIdx.x] = make_uint2(0, 0);
  __syncthreads();
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool real = turn == 1;
    if (real && !wait()) return;
    if (row < args.rows) {
      float values[kPerLane];
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) values[i] = known.biases[i];
      if (real) logits_of(row, values);
      choose_few(args, known, memory, row, real, values);
    }
    __syncthreads();
    sort_few(args, known, memory, real);
    __syncthreads();  // before all this comes again
  }
}

// Logits that are complete, past the first-level cache: [rows, experts].
__device__ __forceinline__ void load_logits(const RouteArgs& args, int row,
                                            float (&values)[kPerLane]) {
  const int first = static_cast<int>(threadIdx.x) % kLanes * kPerLane;
  const float* logits = args.logits + row * args.experts + first;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) values[i] = first + i < args.experts ? __ldcg(&logits[i]) : 0;
}

}  // namespace lagoon::kernels::cuda
