// The chosen experts of a step, all in one launch: as many blocks as the device holds take tiles of
// chosen experts in turn, each for all rows of the expert, eight at a time. The warps of a block
// share a tile, or, where there are enough tiles, have one each: then a warp adds up its slices by
// itself, in the same order, and nothing is exchanged.
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/weights.cuh"

namespace lagoon::kernels::cuda {
namespace {

struct ExpertArgs {
  Routing routing;
  int64_t inner, hidden;
  int top_k;
};

// How tiles (or pairs of them) of the chosen experts are dealt out: to blocks, several at a time
// and in slices, or whole ones to warps.
struct Deal {
  bool whole;
  int items, first, stride;  // of this warp, which takes items first, first + stride, ...
  int of_expert;             // items of a chosen expert
  // `tiles` of an expert, of which a block takes part.cut.tiles() at a time.
  __device__ Deal(int chosen, int tiles, const Part& part, int stages_of_unit) {
    const int groups = (tiles + part.cut.tiles() - 1) / part.cut.tiles();
    const int blocks = static_cast<int>(gridDim.x);
    const auto rounds = [](int work, int workers) { return (work + workers - 1) / workers; };
    // In halves of a stage: the end of a shared item takes as long as two stages, that of a whole
    // one as half of one.
    const int stages = part.units * stages_of_unit;
    const int slice = part.cut.units * stages_of_unit;
    whole = rounds(chosen * tiles, blocks * kWarps) * (2 * stages + 1) <
            rounds(chosen * groups, blocks) * (2 * slice + 4);
    of_expert = whole ? tiles : groups;
    items = chosen * of_expert;
    first = static_cast<int>(blockIdx.x);
    stride = blocks;
    if (whole) {
      first = first * kWarps + static_cast<int>(threadIdx.x) / kLanes;
      stride *= kWarps;
    }
  }
};

// An item: a tile (or pair) of a chosen expert (a slot), for its rows.
struct Work {
  int slot, tile, rows_begin, rows_end;  // rows: of Routing::order
  __device__ Work(const Routing& routing, const Deal& deal, const Part& part, int item)
      : slot(item / deal.of_expert),
        tile(item % deal.of_expert),
        rows_begin(routing.slots[2 * slot + 1]),
        rows_end(routing.slots[2 * slot + 3]) {
    if (!deal.whole) tile = tile * part.cut.tiles() + part.in_block;
  }
  __device__ int passes() const { return (rows_end - rows_begin + 7) / 8; }
};

// The units that a warp has of an item.
struct Units {
  int first, end;
  __device__ Units(const Deal& deal, const Part& part)
      : first(deal.whole ? 0 : part.first), end(deal.whole ? part.units : part.end) {}
};

// Sums over the units that a warp has of two tiles: of a slice, or of all slices in order.
template <Packing P, typename Next>
__device__ __forceinline__ void multiply_item(WeightStream<P, 2>& weights, const Deal& deal,
                                              const Part& part, const Bits16* x,
                                              const float* const (&scales)[2], float (&total)[2][4],
                                              Next& next) {
  const Units units(deal, part);
  float own[2][4] = {};
  for (int first = units.first; first < units.end; first += part.cut.units) {
    float sums[2][4] = {};
    const int stages =
        (min(first + part.cut.units, units.end) - first) * WeightStream<P, 2>::kPerUnit;
    for (int stage = 0; stage < stages; ++stage) {
      weights.multiply(first, stage, x, scales, own, sums, next);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[m][i] = first == units.first ? sums[m][i] : total[m][i] + sums[m][i];
      }
    }
  }
}

// Where sum i of a lane belongs: keep_sums().
__device__ __forceinline__ int row_of_sum(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}
__device__ __forceinline__ int column_of_sum(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}

// What put_gated() does, from the sums of two whole tiles.
template <Packing P, typename RowOf>
__device__ __forceinline__ void put_gated_sums(const MatrixView& gate, const MatrixView& up,
                                               int64_t tile, int lane, const float (&sums)[2][4],
                                               const RowOf& row_of, Bits16* h) {
  const int64_t stride = padded(gate.rows);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = row_of(row_of_sum(lane, i));
    const int64_t n = tile * kTileRows + column_of_sum(lane, i);
    if (row < 0) continue;
    const float g = finish<P>(gate, sums[0][i]);
    const float u = finish<P>(up, sums[1][i]);
    h[row * stride + n] = static_cast<Bits16>(n < gate.rows ? to_bits(swiglu(g, u)) : 0);
  }
  // The last tile writes what is behind the columns.
  if (tile != tiles_of(gate.rows) - 1) return;
  for (int r = 0; r < 8; ++r) {
    const int64_t row = row_of(r);
    if (row < 0) continue;
    for (int64_t n = tiles_of(gate.rows) * kTileRows + lane; n < stride; n += kLanes) {
      h[row * stride + n] = 0;
    }
  }
}

// h[e] = BF16(silu(gate x) * (up x))
template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    expert_gate_kernel(ExpertArgs args, const Bits16* x, Bits16* h) {
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.hidden);
  const int warp = threadIdx.x / kLanes;
  const int tiles = static_cast<int>(tiles_of(args.inner));
  let_others_start();
  wait_for_others();
  const Routing& routing = args.routing;
  const Deal deal(*routing.count, tiles, part, Weights::kPerUnit);
  int opened = deal.first;
  int passes = 0;  // left of the item before `opened`
  typename Weights::Source again;
  auto next = [&](typename Weights::Source& source) {
    if (passes > 0) {
      --passes;
      source = again;
      return;
    }
    const Units units(deal, part);
    for (; opened < deal.items && source.stages == 0; opened += deal.stride) {
      const Work work(routing, deal, part, opened);
      const ExpertView& view = routing.views[work.slot];
      if (view.gate.packing != P || work.tile >= tiles) continue;
      source.set(0, view.gate, work.tile, part, units.first);
      source.set(1, view.up, work.tile, part, units.first);
      source.stages = (units.end - units.first) * Weights::kPerUnit;
      passes = source.stages > 0 ? work.passes() - 1 : 0;
      again = source;
    }
  };
  Weights weights(shared.ring, part.lane);
  weights.fill(next);
  int turn = 0;
  for (int item = deal.first; item < deal.items; item += deal.stride) {
    const Work work(routing, deal, part, item);
    const MatrixView gate = routing.views[work.slot].gate;
    const MatrixView up = routing.views[work.slot].up;
    if (gate.packing != P) continue;
    const bool real = work.tile < tiles;
    for (int at = work.rows_begin; at < work.rows_end; at += 8, turn ^= 1) {
      float sums[2][4] = {};
      if (real) {
        const int place = at + part.lane / 4;
        const Bits16* own_x =
            place < work.rows_end
                ? x + routing.order[place] / args.top_k * padded(args.hidden) + part.lane % 4 * 16
                : nullptr;
        const float* const scales[2] = {fp8_scales(gate, work.tile, part.units),
                                        fp8_scales(up, work.tile, part.units)};
        multiply_item<P>(weights, deal, part, own_x, scales, sums, next);
      }
      const auto row_of = [&](int r) {
        return at + r < work.rows_end ? routing.order[at + r] : -1;
      };
      if (deal.whole) {
        put_gated_sums<P>(gate, up, work.tile, part.lane, sums, row_of, h);
        continue;
      }
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn, m, warp));
      }
      __syncthreads();
      if (!real) continue;
      const int first_warp = part.in_block * part.cut.slices;
      put_gated<P>(gate, up, work.tile, part, shared.of(turn, 0, first_warp),
                   shared.of(turn, 1, first_warp), row_of, h);
    }
  }
}

// y[e] = down h[e]; an item is a pair of tiles.
template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    expert_down_kernel(ExpertArgs args, const Bits16* h, float* y) {
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.inner);
  const int warp = threadIdx.x / kLanes;
  const int64_t tiles = tiles_of(args.hidden);
  const int pairs = static_cast<int>(ceil_divide(tiles, 2));
  const int first_warp = part.in_block * part.cut.slices;
  let_others_start();
  wait_for_others();
  const Routing& routing = args.routing;
  const Deal deal(*routing.count, pairs, part, Weights::kPerUnit);
  // Behind the last tile, the last is read once more.
  const auto tile_of = [&](const Work& work, int m) {
    return min(int64_t{2} * work.tile + m, tiles - 1);
  };
  int opened = deal.first;
  int passes = 0;  // left of the item before `opened`
  typename Weights::Source again;
  auto next = [&](typename Weights::Source& source) {
    if (passes > 0) {
      --passes;
      source = again;
      return;
    }
    const Units units(deal, part);
    for (; opened < deal.items && source.stages == 0; opened += deal.stride) {
      const Work work(routing, deal, part, opened);
      const MatrixView& down = routing.views[work.slot].down;
      if (down.packing != P || work.tile >= pairs) continue;
      for (int m = 0; m < 2; ++m) source.set(m, down, tile_of(work, m), part, units.first);
      source.stages = (units.end - units.first) * Weights::kPerUnit;
      passes = source.stages > 0 ? work.passes() - 1 : 0;
      again = source;
    }
  };
  Weights weights(shared.ring, part.lane);
  weights.fill(next);
  int turn = 0;
  for (int item = deal.first; item < deal.items; item += deal.stride) {
    const Work work(routing, deal, part, item);
    const MatrixView down = routing.views[work.slot].down;
    if (down.packing != P) continue;
    const bool real = work.tile < pairs;
    for (int at = work.rows_begin; at < work.rows_end; at += 8, turn ^= 1) {
      float sums[2][4] = {};
      if (real) {
        const int place = at + part.lane / 4;
        const Bits16* own_h =
            place < work.rows_end
                ? h + routing.order[place] * padded(args.inner) + part.lane % 4 * 16
                : nullptr;
        const float* const scales[2] = {fp8_scales(down, tile_of(work, 0), part.units),
                                        fp8_scales(down, tile_of(work, 1), part.units)};
        multiply_item<P>(weights, deal, part, own_h, scales, sums, next);
      }
      const auto put = [&](int m, int r, int column, float sum) {
        const int64_t n = (int64_t{2} * work.tile + m) * kTileRows + column;
        if (at + r >= work.rows_end || n >= args.hidden) return;
        y[routing.order[at + r] * args.hidden + n] = finish<P>(down, sum);
      };
      if (deal.whole) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          put(i / 4, row_of_sum(part.lane, i % 4), column_of_sum(part.lane, i % 4),
              sums[i / 4][i % 4]);
        }
        continue;
      }
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn, m, warp));
      }
      __syncthreads();
      if (!real) continue;
      for (int i = part.thread(); i < 2 * 8 * kTileRows; i += part.threads()) {
        const int m = i / (8 * kTileRows);
        const int in_tile = i % (8 * kTileRows);
        put(m, in_tile / kTileRows, in_tile % kTileRows,
            sum_slices<1>(shared.of(turn, m, first_warp), part.cut.slices, in_tile));
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
