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
    atomicAdd(&args.use[0], 1);
    atomicAdd(&args.use[1], chosen);
  }
}

// Few rows: a warp for each of up to kWarps rows of up to 32 choices, a thread for each of up to
// kThreads experts. A lane of a warp has experts that follow each other.
inline constexpr int kPerLane = kThreads / kLanes;

// What a block that chooses has in shared memory.
struct RouteMemory {
  // Keys and scores of each lane's experts, the best first, and behind them twice nothing.
  uint2 sorted[kWarps][kPerLane + 2][kLanes];
  // Of a row's choices, zeros behind the last.
  float scores[kWarps][kLanes];
  int32_t experts[kWarps][kLanes];
  // Of each expert and row: one more than which choice it is, or zero.
  uint2 choices[kThreads];
  uint32_t of_warps[kWarps];
};

// Stores, and an addition, without a branch around them: code that does not count goes where code
// that does will.
__device__ __forceinline__ void put_if(bool real, void* place, uint32_t value) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.u32 [%1], %2; }" ::"r"(real ? 1u : 0u),
      "l"(place), "r"(value)
      : "memory");
}
__device__ __forceinline__ void put_if(bool real, void* place, const uint4& v) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.v4.u32 [%1], {%2,%3,%4,%5}; }" ::"r"(
          real ? 1u : 0u),
      "l"(place), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
      : "memory");
}
__device__ __forceinline__ void add_if(bool real, int32_t* place, int32_t value) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p red.global.add.s32 [%1], %2; }" ::"r"(
                   real ? 1u : 0u),
               "l"(place), "r"(value)
               : "memory");
}

// What is known of experts before there are logits.
struct KnownExperts {
  float biases[kPerLane];  // of the lane's; NaNs behind the last, which come after all others
  static constexpr int kQuarters = sizeof(ExpertView) / sizeof(uint4);
  uint4 view[kQuarters];  // of the thread's
  __device__ explicit KnownExperts(const RouteArgs& args) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = thread % kLanes * kPerLane + i;
      biases[i] = expert < args.experts ? args.bias[expert] : __uint_as_float(0x7fc00000u);
    }
    const auto* table = reinterpret_cast<const uint4*>(&args.table[min(thread, args.experts - 1)]);
#pragma unroll
    for (int i = 0; i < kQuarters; ++i) view[i] = table[i];
  }
};

// score_of() of all, without a branch for each quotient: below 2^126, 1 / x is what one step of
// Newton's makes of the approximation, for the compiler too. `spare`: kPerLane places of the lane,
// kLanes apart.
__device__ __forceinline__ void scores_of(float softcap, uint2* spare, float (&values)[kPerLane]) {
  bool other = softcap > 0;
  float quotients[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float x = 1.0f + expf(-values[i]);
    other = other | !(x < 0x1p126f);
    float near = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    quotients[i] = fmaf(near, -fmaf(x, near, -1.0f), near);
  }
  if (other) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) spare[i * kLanes].x = __float_as_uint(values[i]);
#pragma unroll 1
    for (int i = 0; i < kPerLane; ++i) {
      const float score = score_of(__uint_as_float(spare[i * kLanes].x), softcap);
      spare[i * kLanes].x = __float_as_uint(score);
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) quotients[i] = __uint_as_float(spare[i * kLanes].x);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) values[i] = quotients[i];
}

// Sorts the lane's keys, of equal ones the first first, and returns which they were: four bits
// each, the best lowest.
__device__ __forceinline__ uint32_t sort_lane(const float (&scores)[kPerLane],
                                              const float (&biases)[kPerLane], uint2* sorted) {
  uint32_t keys[kPerLane];
  int places[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    keys[i] = key_of(scores[i] + biases[i]);
    places[i] = kPerLane - 1 - i;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
#pragma unroll
    for (int j = i + 1; j < kPerLane; ++j) {
      const int before = keys[i] >= keys[j] ? 1 : 0;
      places[i] -= before;
      places[j] += before;
    }
  }
  uint32_t ids = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    sorted[places[i] * kLanes] = make_uint2(keys[i], __float_as_uint(scores[i]));
    ids |= static_cast<uint32_t>(i) << 4 * places[i];
  }
  sorted[kPerLane * kLanes] = sorted[(kPerLane + 1) * kLanes] = make_uint2(0, 0);
  return ids;
}

// The sum of a row's scores, in order: in each round twelve come together, since most models choose
// no more.
__device__ __forceinline__ float sum_scores(const float (&scores)[kLanes], int top_k) {
  constexpr int kTogether = 12;
  float sum = 0;
#pragma unroll 1
  for (int first = 0; first < top_k; first += kTogether) {
    float4 parts[kTogether / 4];
#pragma unroll
    for (int i = 0; i < kTogether / 4; ++i) {
      const int at = min(first + 4 * i, kLanes - 4);
      parts[i] = *reinterpret_cast<const float4*>(&scores[at]);
    }
#pragma unroll
    for (int i = 0; i < kTogether / 4; ++i) {
      if (first + 4 * i < kLanes) {
        sum = (((sum + parts[i].x) + parts[i].y) + parts[i].z) + parts[i].w;
      }
    }
  }
  return sum;
}

// The experts of a row by one warp: the largest key is taken top_k times, of equal ones that of the
// first expert. Each lane has sorted its own, so that a round asks only for the best of each.
// `values` are the logits of the lane's experts.
__device__ __forceinline__ void choose_few(const RouteArgs& args, const KnownExperts& known,
                                           RouteMemory& memory, int row, bool real,
                                           float (&values)[kPerLane]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int top_k = args.top_k;
  uint2* following = &memory.sorted[row][0][lane];
  scores_of(args.softcap, following, values);
  uint32_t ids = sort_lane(values, known.biases, following);
  uint2 best = following[0];
  uint2 next = following[kLanes];
  following += kLanes;
  const uint32_t below = (1u << lane) - 1;
#pragma unroll 1
  for (int j = 0; j < top_k; ++j) {
    const uint32_t largest = __reduce_max_sync(0xffffffffu, best.x);
    const uint32_t equal = __ballot_sync(0xffffffffu, best.x == largest);
    if (best.x == largest && (equal & below) == 0) {
      memory.scores[row][j] = __uint_as_float(best.y);
      memory.experts[row][j] = lane * kPerLane + static_cast<int>(ids & 15u);
      best = next;
      following += kLanes;
      ids >>= 4;
    }
    next = *following;  // there when it is needed, in the round after
  }
  __syncwarp();
  const int own = memory.experts[row][lane];
  const float weight = memory.scores[row][lane] / sum_scores(memory.scores[row], top_k);
  if (lane < top_k) {
    auto* choices = reinterpret_cast<uint8_t*>(&memory.choices[own]);
    choices[row] = static_cast<uint8_t>(lane + 1);
    put_if(real, &args.routing.experts[row * top_k + lane], static_cast<uint32_t>(own));
    put_if(real, &args.routing.weights[row * top_k + lane], __float_as_uint(weight));
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
  static_assert(kWarps == 8);
  const uint4 first_four = *reinterpret_cast<const uint4*>(&memory.of_warps[0]);
  const uint4 last_four = *reinterpret_cast<const uint4*>(&memory.of_warps[4]);
  const uint32_t of_warps[kWarps] = {first_four.x, first_four.y, first_four.z, first_four.w,
                                     last_four.x,  last_four.y,  last_four.z,  last_four.w};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) before += w < warp ? of_warps[w] : 0;
  const int chosen = static_cast<int>(before >> 16);
  int at = static_cast<int>(before & 0xffffu);
  if (count > 0) {
    put_if(real, &routing.slots[2 * chosen], static_cast<uint32_t>(expert));
    put_if(real, &routing.slots[2 * chosen + 1], static_cast<uint32_t>(at));
    auto* view = reinterpret_cast<uint4*>(&routing.views[chosen]);
#pragma unroll
    for (int i = 0; i < KnownExperts::kQuarters; ++i) put_if(real, view + i, known.view[i]);
    uint32_t row_entries = ~0u;  // less one
    const auto put = [&](uint32_t of_rows) {
#pragma unroll
      for (int r = 0; r < 4; ++r, row_entries += static_cast<uint32_t>(args.top_k)) {
        const uint32_t choice = of_rows >> 8 * r & 0xffu;
        put_if(real && choice > 0, &routing.order[at], row_entries + choice);
        at += choice > 0 ? 1 : 0;
      }
    };
    put(choices.x);
    if (args.rows > 4) put(choices.y);
  }
  if (expert == kThreads - 1) {  // all are counted here
    const int all = chosen + (count > 0 ? 1 : 0);
    put_if(real, &routing.slots[2 * all], ~0u);
    put_if(real, &routing.slots[2 * all + 1], static_cast<uint32_t>(args.rows) * args.top_k);
    put_if(real, routing.count, static_cast<uint32_t>(all));
    add_if(real, &args.use[0], 1);
    add_if(real, &args.use[1], all);
  }
}

// The experts of up to kWarps rows and their order, by one block that has waited for nobody yet:
// logits_of(row, values) gives a lane the logits of its experts. Before it waits it goes through
// all this once for nothing, since code that was not run would be cold, and writes nothing.
template <typename LogitsOf>
__device__ __forceinline__ void route_few(const RouteArgs& args, RouteMemory& memory,
                                          const LogitsOf& logits_of) {
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const KnownExperts known(args);
  memory.choices[threadIdx.x] = make_uint2(0, 0);
  memory.scores[row][threadIdx.x % kLanes] = 0;
  memory.experts[row][threadIdx.x % kLanes] = 0;
  __syncthreads();
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool real = turn == 1;
    if (real) wait_for_others();
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
