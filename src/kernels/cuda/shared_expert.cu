// The shared expert of a layer and the choice of the others, of up to eight rows, in one kernel of
// blocks that are all there together: some multiply with the router, one chooses, and the rest have
// gate, up and down.
#include <algorithm>

#include "kernels/cuda/routing.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/weights.cuh"

namespace lagoon::kernels::cuda {
namespace {

// Other formats take kernels of their own. Longer rings, of up to 24 KiB a warp, made no
// difference, and the experts' blocks would not find room beside them.
constexpr Packing kOnly = Packing::kBFloat16;
constexpr int kBytes = kStreamBytes<2>;

struct Joint {
  SharedExpert shared;
  int rows = 0;
  int routers = 0;             // blocks with the router; one chooses, the rest are the others
  uint32_t* logits = nullptr;  // [kWarps, kThreads] zeros between kernels
  Meeting meeting;             // of the others
};

// Logits are their own sign of being there: zeros are none yet. A logit of 0 is written as -0, of
// the same score.
__device__ inline void show(uint32_t* place, float logit) {
  const uint32_t bits = __float_as_uint(logit);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(place),
               "r"(bits == 0 ? 0x80000000u : bits)
               : "memory");
}
__device__ inline uint4 look(const uint32_t* place) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(place)
               : "memory");
  return v;
}

// Waits for the logits of a lane's experts, and leaves zeros.
__device__ __forceinline__ void take_logits(const Joint& args, int experts, int row,
                                            float (&values)[kPerLane]) {
  static_assert(kPerLane == 8);
  const int first = static_cast<int>(threadIdx.x) % kLanes * kPerLane;
  uint32_t* own = args.logits + row * kThreads + first;
  uint4 low, high;
  bool missing = true;
  do {
    low = look(own);
    high = look(own + 4);
    const uint32_t bits[kPerLane] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    missing = false;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      missing = missing | (bits[i] == 0 & first + i < experts);
      values[i] = __uint_as_float(bits[i]);
    }
  } while (__any_sync(0xffffffffu, missing));
  *reinterpret_cast<uint4*>(own) = *reinterpret_cast<uint4*>(own + 4) = make_uint4(0, 0, 0, 0);
}

// Tiles, or pairs of them, that a team takes in turn: such that all blocks have some.
struct Items {
  int at, step, end;
  __device__ Items(const Part& part, int first, int grid, int all)
      : at(part.in_block * grid + first), step(part.cut.tiles() * grid), end(all) {}
};

// The lane's columns of the row that it multiplies: rows that are not there are multiplied like the
// last one, and left.
__device__ __forceinline__ const Bits16* row_of(const Bits16* x, int columns, const Part& part,
                                                int rows) {
  return x + min(part.lane / 4, rows - 1) * padded(columns) + part.lane % 4 * 16;
}

// Logits by `grid` blocks, of which this is `first`.
__device__ __forceinline__ void multiply_router(const Joint& args, int first, int grid) {
  using Weights = WeightStream<kOnly, 1>;
  extern __shared__ uint4 memory[];
  const StreamMemory<1> shared(reinterpret_cast<uint8_t*>(memory));
  const MatrixView& router = args.shared.router;
  const Part part(router.columns);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int units = part.end - part.first;
  Items items(part, first, grid, static_cast<int>(tiles_of(router.rows)));
  Items opened = items;
  const auto next = [&](typename Weights::Source& source) {
    if (opened.at >= opened.end) return;
    source.set(0, router, opened.at * part.units + part.first);
    source.units = units;
    opened.at = units > 0 ? opened.at + opened.step : opened.end;
  };
  Weights weights(shared.ring);
  weights.fill(next);
  wait_for_others();
  const Bits16* x = row_of(args.shared.x, router.columns, part, args.rows);
  const Bits16* first_x = x + part.first * kUnitColumns;
  weights.bring(first_x, units, shared.of(1, 0, warp) + part.lane);
#pragma unroll 1
  for (int turn = 0; items.at < items.end; items.at += items.step, ++turn) {
    float sums[1][4] = {};
    const float* const scales[1] = {nullptr};
    weights.multiply(part.first, part.end, x, first_x, scales, sums, next);
    keep_sums<1>(sums, part.lane, shared.of(turn % 2, 0, warp));
    part.meet();
    const float* slices = shared.of(turn % 2, 0, part.in_block * part.cut.slices);
#pragma unroll 1
    for (int i = part.thread(turn); i < args.rows * kTileRows; i += part.threads()) {
      const int n = items.at * kTileRows + i % kTileRows;
      if (n >= router.rows) continue;
      show(&args.logits[i / kTileRows * kThreads + n], sum_slices<1>(slices, part.cut.slices, i));
    }
  }
}

// Gate, up and down by `grid` blocks, of which this is `first`. One loop for both phases, since
// code that has not run is cold: an item is a tile of both gate and up, then a pair of tiles of
// down, of which the last is read twice if there is no other.
__device__ __forceinline__ void multiply_shared(const Joint& args, int first, int grid) {
  using Weights = WeightStream<kOnly, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const MatrixView& gate = args.shared.gate;
  const MatrixView& up = args.shared.up;
  const MatrixView& down = args.shared.down;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int last_tile = static_cast<int>(tiles_of(down.rows)) - 1;
  const Part gate_part(gate.columns);
  Part part = gate_part;
  Items items(part, first, grid, static_cast<int>(tiles_of(gate.rows)));
  const Part down_part(down.columns);
  const Items down_items(down_part, first, grid, last_tile / 2 + 1);
  // Weights of down are asked for while the ring empties, before h is there.
  bool opens_down = false;
  Items opened = items;
  const auto next = [&](typename Weights::Source& source) {
    if (!opens_down && (opened.at >= opened.end || gate_part.end == gate_part.first)) {
      opens_down = true;
      opened = down_items;
    }
    if (opened.at >= opened.end) return;
    if (opens_down) {
      const int before = down_part.first;
      source.set(0, down, 2 * opened.at * down_part.units + before);
      source.set(1, down, min(2 * opened.at + 1, last_tile) * down_part.units + before);
      source.units = down_part.end - before;
    } else {
      source.set(0, gate, opened.at * gate_part.units + gate_part.first);
      source.set(1, up, opened.at * gate_part.units + gate_part.first);
      source.units = gate_part.end - gate_part.first;
    }
    opened.at += opened.step;
  };
  Weights weights(shared.ring);
  weights.fill(next);
  wait_for_others();
#pragma unroll 1
  for (int phase = 0; phase < 2; ++phase) {
    const Bits16* from = phase == 0 ? args.shared.x : args.shared.h;
    const Bits16* x = row_of(from, phase == 0 ? gate.columns : down.columns, part, args.rows);
    const Bits16* first_x = x + part.first * kUnitColumns;
    if (items.at < items.end) {
      weights.bring(first_x, part.end - part.first, shared.of(1, 0, warp) + part.lane);
    }
#pragma unroll 1
    for (int turn = 0; items.at < items.end; items.at += items.step, ++turn) {
      float sums[2][4] = {};
      const float* const scales[2] = {nullptr, nullptr};
      weights.multiply(part.first, part.end, x, first_x, scales, sums, next);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn % 2, m, warp));
      }
      part.meet();
      const int first_warp = part.in_block * part.cut.slices;
      const float* slices[2] = {shared.of(turn % 2, 0, first_warp),
                                shared.of(turn % 2, 1, first_warp)};
      if (phase == 0) {
        put_gated<kOnly>(
            gate, up, items.at, part, turn, slices[0], slices[1], args.rows,
            [](int r) { return r; }, args.shared.h);
        continue;
      }
#pragma unroll 1
      for (int i = part.thread(turn); i < args.rows * 2 * kTileRows; i += part.threads()) {
        const int row = i / (2 * kTileRows);
        const int n = 2 * items.at * kTileRows + i % (2 * kTileRows);
        if (n >= down.rows) continue;
        args.shared.y[static_cast<int64_t>(row) * down.rows + n] =
            sum_slices<1>(i / kTileRows % 2 == 0 ? slices[0] : slices[1], part.cut.slices,
                          row * kTileRows + i % kTileRows);
      }
    }
    if (phase == 1) break;
    __syncthreads();
    if (threadIdx.x == 0) {
      args.meeting.arrive();
      args.meeting.wait_for_all();
    }
    part = down_part;
    items = down_items;
    __syncthreads();
  }
  if (threadIdx.x == 0) args.meeting.leave();
}

__global__ void __launch_bounds__(kThreads, 2)
    shared_expert_kernel(const __grid_constant__ Joint args,
                         const __grid_constant__ RouteArgs route) {
  const auto block = static_cast<int>(blockIdx.x);
  let_others_start();  // whoever waits for the choice comes when all of these blocks are there
  if (block > args.routers) {
    multiply_shared(args, block - args.routers - 1, static_cast<int>(gridDim.x) - args.routers - 1);
  } else if (block > 0) {
    multiply_router(args, block - 1, args.routers);
  } else {
    extern __shared__ uint4 memory[];
    static_assert(sizeof(RouteMemory) <= kBytes);
    route_few(
        route, *reinterpret_cast<RouteMemory*>(memory),
        [&](int row, float(&values)[kPerLane]) { take_logits(args, route.experts, row, values); });
    // The block's threads have met after what they wrote.
    if (threadIdx.x == 0) {
      asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(route.routing.made) : "memory");
    }
  }
}

// The experts' blocks come beside these, if both divide the first-level cache alike.
void divide_for_shared_memory() {
  static const bool done = [] {
    if (cudaFuncSetAttribute(shared_expert_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             100) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // a wish
    }
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

bool shared_expert_and_route(Stream stream, const SharedExpert& shared, const RouteArgs& route) {
  for (const MatrixView* m : {&shared.gate, &shared.up, &shared.down, &shared.router}) {
    if (m->packing != kOnly) return false;
  }
  if (!routes_in_a_block(route)) return false;
  divide_for_shared_memory();
  // No more blocks than the device holds: they wait for each other.
  const auto held = static_cast<int>(resident_blocks<shared_expert_kernel>(kThreads, kBytes));
  const auto routers = static_cast<int>(blocks_of(shared.router.rows, shared.router.columns));
  const auto others = std::min(static_cast<int>(blocks_of(shared.gate.rows, shared.gate.columns)),
                               held - routers - 1);
  if (others < 1) return false;
  constexpr int kLine = 32;  // nobody counts where others look
  Joint joint;
  joint.shared = shared;
  joint.rows = static_cast<int>(route.rows);
  joint.routers = routers;
  joint.meeting = {route.zeros + kLine, others};
  joint.logits = reinterpret_cast<uint32_t*>(route.zeros + 2 * kLine);
  static_assert(2 * kLine + kWarps * kThreads == kRouteZeros && kRouteZeros <= kMostArrivals);
  // If it does not start, nobody may wait for its choice.
  return start(stream, shared_expert_kernel, dim3(static_cast<unsigned>(1 + routers + others)),
               kThreads, kBytes, joint, route) == cudaSuccess;
}

}  // namespace lagoon::kernels::cuda
