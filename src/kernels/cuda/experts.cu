// The chosen experts of a step, all in one launch: as many blocks as the device holds take tiles of
// chosen experts in turn, each for all rows of the expert, eight at a time.
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/weights.cuh"

namespace lagoon::kernels::cuda {
namespace {

struct ExpertArgs {
  Routing routing;
  int64_t inner, hidden;
  int top_k;
};

// A block's work: a few tiles (a group) of a chosen expert (a slot).
struct Work {
  int slot, group, first, end;  // [first, end) of Routing::order
  __device__ Work(const Routing& routing, int item, int groups)
      : slot(item / groups),
        group(item % groups),
        first(routing.slots[2 * slot + 1]),
        end(routing.slots[2 * slot + 3]) {}
  __device__ int passes() const { return (end - first + 7) / 8; }
};

// h[e] = BF16(silu(gate x) * (up x))
template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    expert_gate_kernel(ExpertArgs args, const Bits16* x, Bits16* h) {
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.hidden);
  const int warp = threadIdx.x / kLanes;
  const int groups = static_cast<int>(blocks_of(args.inner, args.hidden));
  let_others_start();
  wait_for_others();
  const Routing& routing = args.routing;
  const int items = *routing.count * groups;
  int opened = blockIdx.x;
  int passes = 0;  // left of the item before `opened`
  typename Weights::Source again;
  auto next = [&](typename Weights::Source& source) {
    if (passes > 0) {
      --passes;
      source = again;
      return;
    }
    for (; opened < items && source.stages == 0; opened += gridDim.x) {
      const Work work(routing, opened, groups);
      const ExpertView& view = routing.views[work.slot];
      const int64_t tile = work.group * int64_t{part.cut.tiles()} + part.in_block;
      if (view.gate.packing != P || tile >= tiles_of(args.inner)) continue;
      source.set(0, view.gate, tile, part);
      source.set(1, view.up, tile, part);
      source.stages = (part.end - part.first) * Weights::kPerUnit;
      passes = source.stages > 0 ? work.passes() - 1 : 0;
      again = source;
    }
  };
  Weights weights(shared.ring, part.lane);
  weights.fill(next);
  int turn = 0;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const Work work(routing, item, groups);
    const MatrixView gate = routing.views[work.slot].gate;
    const MatrixView up = routing.views[work.slot].up;
    if (gate.packing != P) continue;
    const int64_t tile = work.group * int64_t{part.cut.tiles()} + part.in_block;
    const bool real = tile < tiles_of(args.inner);
    for (int at = work.first; at < work.end; at += 8, turn ^= 1) {
      float sums[2][4] = {};
      if (real) {
        const int place = at + part.lane / 4;
        const Bits16* own_x =
            place < work.end
                ? x + routing.order[place] / args.top_k * padded(args.hidden) + part.lane % 4 * 16
                : nullptr;
        float own[2][4] = {};
        const float* const scales[2] = {fp8_scales(gate, tile, part.units),
                                        fp8_scales(up, tile, part.units)};
        const int stages = (part.end - part.first) * Weights::kPerUnit;
        for (int stage = 0; stage < stages; ++stage) {
          weights.multiply(part.first, stage, own_x, scales, own, sums, next);
        }
      }
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn, m, warp));
      }
      __syncthreads();
      if (!real) continue;
      const int first_warp = part.in_block * part.cut.slices;
      put_gated<P>(
          gate, up, tile, part, shared.of(turn, 0, first_warp), shared.of(turn, 1, first_warp),
          [&](int r) { return at + r < work.end ? routing.order[at + r] : -1; }, h);
    }
  }
}

// y[e] = down h[e]; a warp takes a slice of two tiles.
template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    expert_down_kernel(ExpertArgs args, const Bits16* h, float* y) {
  constexpr int kTiles = 2;
  using Weights = WeightStream<P, kTiles>;
  extern __shared__ uint4 memory[];
  const StreamMemory<kTiles> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.inner);
  const int warp = threadIdx.x / kLanes;
  const int64_t tiles = tiles_of(args.hidden);
  const int groups = static_cast<int>(ceil_divide(tiles, kTiles * part.cut.tiles()));
  const int first_warp = part.in_block * part.cut.slices;
  let_others_start();
  wait_for_others();
  const Routing& routing = args.routing;
  const int items = *routing.count * groups;
  // The first of the two tiles. Behind the last one, the last is read once more.
  const auto tile_of = [&](int group) {
    return (group * int64_t{part.cut.tiles()} + part.in_block) * kTiles;
  };
  int opened = blockIdx.x;
  int passes = 0;  // left of the item before `opened`
  typename Weights::Source again;
  auto next = [&](typename Weights::Source& source) {
    if (passes > 0) {
      --passes;
      source = again;
      return;
    }
    for (; opened < items && source.stages == 0; opened += gridDim.x) {
      const Work work(routing, opened, groups);
      const MatrixView& down = routing.views[work.slot].down;
      const int64_t tile = tile_of(work.group);
      if (down.packing != P || tile >= tiles) continue;
      for (int m = 0; m < kTiles; ++m) source.set(m, down, min(tile + m, tiles - 1), part);
      source.stages = (part.end - part.first) * Weights::kPerUnit;
      passes = source.stages > 0 ? work.passes() - 1 : 0;
      again = source;
    }
  };
  Weights weights(shared.ring, part.lane);
  weights.fill(next);
  int turn = 0;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const Work work(routing, item, groups);
    const MatrixView down = routing.views[work.slot].down;
    if (down.packing != P) continue;
    const int64_t tile = tile_of(work.group);
    const bool real = tile < tiles;
    for (int at = work.first; at < work.end; at += 8, turn ^= 1) {
      float sums[kTiles][4] = {};
      if (real) {
        const int place = at + part.lane / 4;
        const Bits16* own_h =
            place < work.end ? h + routing.order[place] * padded(args.inner) + part.lane % 4 * 16
                             : nullptr;
        float own[kTiles][4] = {};
        const float* scales[kTiles];
        for (int m = 0; m < kTiles; ++m) {
          scales[m] = fp8_scales(down, min(tile + m, tiles - 1), part.units);
        }
        const int stages = (part.end - part.first) * Weights::kPerUnit;
        for (int stage = 0; stage < stages; ++stage) {
          weights.multiply(part.first, stage, own_h, scales, own, sums, next);
        }
      }
      for (int m = 0; m < kTiles; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn, m, warp));
      }
      __syncthreads();
      if (!real) continue;
      for (int i = part.thread(); i < kTiles * 8 * kTileRows; i += part.threads()) {
        const int m = i / (8 * kTileRows);
        const int in_tile = i % (8 * kTileRows);
        const int place = at + in_tile / kTileRows;
        const int64_t n = (tile + m) * kTileRows + in_tile % kTileRows;
        if (place >= work.end || n >= args.hidden) continue;
        const float* slices = shared.of(turn, m, first_warp);
        y[routing.order[place] * args.hidden + n] =
            finish<P>(down, sum_slices<1>(slices, part.cut.slices, in_tile));
      }
    }
  }
}

// As many blocks as there may be work for, or as the device holds.
dim3 grid_of(unsigned held, int64_t most_slots, int64_t groups) {
  const int64_t most = most_slots * groups;
  return dim3(most < held ? static_cast<unsigned>(most) : held);
}

template <Packing P>
void start_gate(Stream stream, const ExpertArgs& args, int64_t most_slots, const Bits16* x,
                Bits16* h) {
  const unsigned held = resident_blocks<expert_gate_kernel<P>>(kThreads, kStreamBytes<2>);
  start(stream, expert_gate_kernel<P>,
        grid_of(held, most_slots, blocks_of(args.inner, args.hidden)), kThreads, kStreamBytes<2>,
        args, x, h);
}

template <Packing P>
void start_down(Stream stream, const ExpertArgs& args, int64_t most_slots, const Bits16* h,
                float* y) {
  const unsigned held = resident_blocks<expert_down_kernel<P>>(kThreads, kStreamBytes<2>);
  start(stream, expert_down_kernel<P>,
        grid_of(held, most_slots, blocks_of(args.hidden, args.inner)), kThreads, kStreamBytes<2>,
        args, h, y);
}

}  // namespace

void expert_gate_and_up(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                        const Routing& routing, int top_k, int64_t most_slots, const Bits16* x,
                        Bits16* h) {
  const ExpertArgs args = {routing, inner, hidden, top_k};
  if (packing == Packing::kBFloat16) {
    start_gate<Packing::kBFloat16>(stream, args, most_slots, x, h);
  } else if (packing == Packing::kFP8) {
    start_gate<Packing::kFP8>(stream, args, most_slots, x, h);
  } else {
    start_gate<Packing::kNVFP4>(stream, args, most_slots, x, h);
  }
}

void expert_down(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                 const Routing& routing, int64_t most_slots, const Bits16* h, float* y) {
  const ExpertArgs args = {routing, inner, hidden, 1};
  if (packing == Packing::kBFloat16) {
    start_down<Packing::kBFloat16>(stream, args, most_slots, h, y);
  } else if (packing == Packing::kFP8) {
    start_down<Packing::kFP8>(stream, args, most_slots, h, y);
  } else {
    start_down<Packing::kNVFP4>(stream, args, most_slots, h, y);
  }
}

}  // namespace lagoon::kernels::cuda
