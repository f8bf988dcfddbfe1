// The chosen experts of a step, all in one launch: as many blocks as the device holds take tiles of
// chosen experts in turn, each for all rows of the expert, eight at a time. In full rounds a warp
// has a tile to itself and adds up its slices, in the order that all agree on, so that nothing is
// exchanged; of what is left the warps of a team share one (deal.cuh).
#include <type_traits>

#include "kernels/cuda/deal.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/weights.cuh"

namespace lagoon::kernels::cuda {
namespace {

struct Addresses {
  const uint8_t* values;
  const uint8_t* scales;
};
template <bool kEarly>
__device__ __forceinline__ Addresses addresses_of(const MatrixView& m) {
  static_assert(sizeof(MatrixView) == 32 && sizeof(ExpertView) == 96);
  // Both with one load; views are cut from scratch, which is aligned.
  const ulonglong2 both = read_choice<kEarly>(reinterpret_cast<const ulonglong2*>(&m));
  return {reinterpret_cast<const uint8_t*>(both.x), reinterpret_cast<const uint8_t*>(both.y)};
}

// Asks for what a block will want to know of the first kThreads chosen experts, all at once: the
// sectors come to the first-level cache, where later loads, which depend on each other, find them.
// What comes has to be put somewhere, or it would not be loaded.
__device__ __forceinline__ uint32_t bring_near(const ExpertArgs& args, MatrixView ExpertView::* a,
                                               MatrixView ExpertView::* b) {
  const auto slot = static_cast<int>(threadIdx.x);
  if (slot >= args.most_slots) return 0;
  const ExpertView& view = args.routing.views[slot];
  return static_cast<uint32_t>((view.*a).packing) + static_cast<uint32_t>((view.*b).packing) +
         static_cast<uint32_t>(args.routing.slots[2 * slot + 1]) +
         static_cast<uint32_t>(args.routing.order[slot]);
}

// Waits for the choice of experts, and for what was there before it.
__device__ __forceinline__ void wait_for_choice(const Routing& routing) {
  if (routing.made == nullptr) {
    wait_for_others();
    return;
  }
  if (threadIdx.x == 0) wait_for(routing.made, 1);
  __syncthreads();
}

// Sums over units [begin, end) of two tiles: of a slice, or of all slices in order. `ahead`: x of
// what is multiplied next.
template <Packing P, typename Next>
__device__ __forceinline__ void multiply_item(WeightStream<P, 2>& weights, int begin, int end,
                                              int slice, const Bits16* x, const Bits16* ahead,
                                              const float* const (&scales)[2], float (&total)[2][4],
                                              const Next& next) {
#pragma unroll 1
  for (int first = begin; first < end; first += slice) {
    const int slice_end = min(first + slice, end);
    float sums[2][4] = {};
    weights.multiply(first, slice_end, x, slice_end < end ? x + slice_end * kUnitColumns : ahead,
                     scales, sums, next);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[m][i] = first == begin ? sums[m][i] : total[m][i] + sums[m][i];
      }
    }
  }
}

// Calls put(r, column, sums of both tiles) for what a lane has of two whole tiles, of up to eight
// rows: keep_sums(). A loop, since code is fetched anew each time.
template <typename Put>
__device__ __forceinline__ void put_sums(int lane, int rows, const float (&sums)[2][4],
                                         const Put& put) {
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const int row = lane % 4 * 2 + i % 2;
    const float a = i < 2 ? (i == 0 ? sums[0][0] : sums[0][1]) : (i == 2 ? sums[0][2] : sums[0][3]);
    const float b = i < 2 ? (i == 0 ? sums[1][0] : sums[1][1]) : (i == 2 ? sums[1][2] : sums[1][3]);
    if (i % 2 < rows && row < rows) put(row, lane / 4 + i / 2 * 8, a, b);
  }
}

// What comes before the first item: its weights are asked for, others are waited for, and what it
// is multiplied with, columns_of(pass), which is returned, and the views `a` and `b` of chosen
// experts come near. `otherwise`: for a warp that has no item.
template <bool kEarly, Packing P, typename Open, typename ColumnsOf>
__device__ __forceinline__ const Bits16* begin_items(
    WeightStream<P, 2>& weights, const ExpertArgs& args, const Walk<P>& walk, const Pass& pass,
    const StreamMemory<2>& shared, MatrixView ExpertView::* a, MatrixView ExpertView::* b,
    uint32_t near, const Bits16* otherwise, const Open& open, const ColumnsOf& columns_of) {
  using Source = typename WeightStream<P, 2>::Source;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  constexpr std::bool_constant<kEarly> kWhen;
  weights.fill([&](Source& source) { open(kWhen, source); });
  const Bits16* own = walk.ended(pass) ? otherwise : columns_of(kWhen, pass);
  if (kEarly) wait_for_others();
  let_others_start();
  if (kEarly) near = bring_near(args, a, b);
  weights.bring(own + walk.first(pass) * kUnitColumns, walk.end(pass) - walk.first(pass),
                shared.of(1, 0, warp) + lane);
  shared.of(1, 1, warp)[lane] = __uint_as_float(near);
  return own;
}

// h[e] = BF16(silu(gate x) * (up x)). kEarly: Routing::settled.
template <Packing P, bool kEarly>
__global__ void __launch_bounds__(kThreads, 2)
    expert_gate_kernel(const __grid_constant__ ExpertArgs args, const Bits16* x, Bits16* h) {
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.hidden);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const Routing& routing = args.routing;
  uint32_t near = 0;
  if (!kEarly) {
    wait_for_choice(routing);
    near = bring_near(args, &ExpertView::gate, &ExpertView::up);
  }
  const Deal deal(read_choice<kEarly>(routing.count), args, part, Weights::kPerUnit);
  const Walk<P> walk = {args, deal, part, &ExpertView::gate};
  Pass opened = walk.template begin<kEarly>();
  const auto open = [&](auto early, typename Weights::Source& source) {
    for (; !walk.ended(opened) && source.units == 0; walk.template advance<early>(opened)) {
      const ExpertView& view = routing.views[opened.slot];
      const int first = walk.first(opened);
      source.set(0, addresses_of<early>(view.gate), opened.tile * part.units + first);
      source.set(1, addresses_of<early>(view.up), opened.tile * part.units + first);
      source.units = walk.end(opened) - first;
    }
  };
  const auto next = [&](typename Weights::Source& source) { open(std::false_type(), source); };
  // Rows that are not there are multiplied like the last one, and left.
  const auto x_of = [&](auto early, const Pass& of) {
    const int place = min(of.row + part.lane / 4, of.rows_end - 1);
    const int entry = read_choice<early>(&routing.order[place]);
    return x + args.top_k.quotient(entry) * padded(args.hidden) + part.lane % 4 * 16;
  };
  Weights weights(shared.ring);
  Pass pass = opened;
  const Bits16* own_x = begin_items<kEarly, P>(weights, args, walk, pass, shared, &ExpertView::gate,
                                               &ExpertView::up, near, x, open, x_of);
  int turn = 0;  // of the team
  while (!walk.ended(pass)) {
    Pass following = pass;
    walk.template advance<false>(following);
    const Bits16* following_x = walk.ended(following) ? own_x : x_of(std::false_type(), following);
    const MatrixView& gate = routing.views[pass.slot].gate;
    const MatrixView& up = routing.views[pass.slot].up;
    const float* const scales[2] = {fp8_scales(gate, pass.tile, part.units),
                                    fp8_scales(up, pass.tile, part.units)};
    float sums[2][4] = {};
    multiply_item<P>(weights, walk.first(pass), walk.end(pass), part.cut.units, own_x,
                     following_x + walk.first(following) * kUnitColumns, scales, sums, next);
    const auto row_of = [&](int r) { return routing.order[pass.row + r]; };
    if (pass.whole) {
      const int64_t stride = padded(args.inner);
      put_sums(part.lane, pass.rows(), sums, [&](int r, int column, float g, float u) {
        const int n = pass.tile * kTileRows + column;
        const float activated = swiglu(finish<P>(gate, g), finish<P>(up, u));
        h[row_of(r) * stride + n] = static_cast<Bits16>(n < args.inner ? to_bits(activated) : 0);
      });
      zero_behind(args.inner, pass.tile, pass.rows(), part.lane, kLanes, row_of, h);
    } else {
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn % 2, m, warp));
      }
      part.meet();
      const int first_warp = part.in_block * part.cut.slices;
      put_gated<P>(gate, up, pass.tile, part, turn, shared.of(turn % 2, 0, first_warp),
                   shared.of(turn % 2, 1, first_warp), pass.rows(), row_of, h);
      ++turn;
    }
    pass = following;
    own_x = following_x;
  }
  // Who waits for this kernel waits for those before it.
  if (!kEarly && routing.made != nullptr) wait_for_others();
}

// y[e] = down h[e]; an item is a pair of tiles. The choice of experts is there: the kernel before
// this one let nobody start until it was.
template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    expert_down_kernel(const __grid_constant__ ExpertArgs args, const Bits16* h, float* y) {
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const Part part(args.inner);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int last_tile = static_cast<int>(tiles_of(args.hidden)) - 1;
  const Routing& routing = args.routing;
  const Deal deal(read_choice<true>(routing.count), args, part, Weights::kPerUnit);
  const Walk<P> walk = {args, deal, part, &ExpertView::down};
  // Behind the last tile, the last is read once more.
  const auto tile_of = [&](const Pass& of, int m) { return min(2 * of.tile + m, last_tile); };
  Pass opened = walk.template begin<true>();
  const auto open = [&](auto early, typename Weights::Source& source) {
    for (; !walk.ended(opened) && source.units == 0; walk.template advance<early>(opened)) {
      const Addresses down = addresses_of<early>(routing.views[opened.slot].down);
      const int first = walk.first(opened);
      source.set(0, down, tile_of(opened, 0) * part.units + first);
      source.set(1, down, tile_of(opened, 1) * part.units + first);
      source.units = walk.end(opened) - first;
    }
  };
  const auto next = [&](typename Weights::Source& source) { open(std::false_type(), source); };
  // Rows that are not there are multiplied like the last one, and left.
  const auto h_of = [&](auto early, const Pass& of) {
    const int place = min(of.row + part.lane / 4, of.rows_end - 1);
    const int entry = read_choice<early>(&routing.order[place]);
    return h + entry * padded(args.inner) + part.lane % 4 * 16;
  };
  Weights weights(shared.ring);
  Pass pass = opened;
  const Bits16* own_h = begin_items<true, P>(weights, args, walk, pass, shared, &ExpertView::down,
                                             &ExpertView::down, 0, h, open, h_of);
  int turn = 0;  // of the team
  while (!walk.ended(pass)) {
    Pass following = pass;
    walk.template advance<false>(following);
    const Bits16* following_h = walk.ended(following) ? own_h : h_of(std::false_type(), following);
    const MatrixView& down = routing.views[pass.slot].down;
    const float* const scales[2] = {fp8_scales(down, tile_of(pass, 0), part.units),
                                    fp8_scales(down, tile_of(pass, 1), part.units)};
    float sums[2][4] = {};
    multiply_item<P>(weights, walk.first(pass), walk.end(pass), part.cut.units, own_h,
                     following_h + walk.first(following) * kUnitColumns, scales, sums, next);
    const auto put = [&](int m, int r, int column, float sum) {
      const int n = (2 * pass.tile + m) * kTileRows + column;
      if (n >= args.hidden) return;
      y[int64_t{routing.order[pass.row + r]} * args.hidden + n] = finish<P>(down, sum);
    };
    if (pass.whole) {
      put_sums(part.lane, pass.rows(), sums, [&](int r, int column, float first, float second) {
        put(0, r, column, first);
        put(1, r, column, second);
      });
    } else {
      for (int m = 0; m < 2; ++m) {
        const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
        keep_sums<1>(one, part.lane, shared.of(turn % 2, m, warp));
      }
      part.meet();
      const int first_warp = part.in_block * part.cut.slices;
      for (int i = part.thread(turn); i < pass.rows() * 2 * kTileRows; i += part.threads()) {
        const int row = i / (2 * kTileRows);
        const int m = i / kTileRows % 2;
        put(m, row, i % kTileRows,
            sum_slices<1>(shared.of(turn % 2, m, first_warp), part.cut.slices,
                          row * kTileRows + i % kTileRows));
      }
      ++turn;
    }
    pass = following;
    own_h = following_h;
  }
}

// As many blocks as there may be work for, or as the device holds.
unsigned grid_of(unsigned held, int64_t most_slots, int64_t groups) {
  return static_cast<unsigned>(std::min<int64_t>(held, most_slots * groups));
}

// `rows` of the matrices, `columns` to multiply with.
ExpertArgs args_of(const Routing& routing, int64_t inner, int64_t hidden, int64_t most_slots,
                   int64_t top_k, unsigned grid, int64_t items, int64_t columns) {
  return {.routing = routing,
          .inner = static_cast<int>(inner),
          .hidden = static_cast<int>(hidden),
          .most_slots = static_cast<int>(most_slots),
          .staggered = false,
          .top_k = Divider(top_k),
          .tiles = Divider(items),
          .warps = Divider(int64_t{grid} * kWarps),
          .teams = Divider(int64_t{grid} * slices_of(columns).tiles())};
}

template <Packing P, bool kEarly>
void start_gate_kernel(Stream stream, int64_t inner, int64_t hidden, const Routing& routing,
                       int top_k, int64_t most_slots, const Bits16* x, Bits16* h) {
  const unsigned held = resident_blocks<expert_gate_kernel<P, kEarly>>(kThreads, kStreamBytes<2>);
  const unsigned grid = grid_of(held, most_slots, blocks_of(inner, hidden));
  ExpertArgs args =
      args_of(routing, inner, hidden, most_slots, top_k, grid, tiles_of(inner), hidden);
  args.staggered = routing.made != nullptr;  // while the shared expert's blocks have processors
  start(stream, expert_gate_kernel<P, kEarly>, dim3(grid), kThreads, kStreamBytes<2>, args, x, h);
}

template <Packing P>
void start_gate(Stream stream, int64_t inner, int64_t hidden, const Routing& routing, int top_k,
                int64_t most_slots, const Bits16* x, Bits16* h) {
  const auto start_kernel =
      routing.settled ? start_gate_kernel<P, true> : start_gate_kernel<P, false>;
  start_kernel(stream, inner, hidden, routing, top_k, most_slots, x, h);
}

template <Packing P>
void start_down(Stream stream, int64_t inner, int64_t hidden, const Routing& routing,
                int64_t most_slots, const Bits16* h, float* y) {
  const unsigned held = resident_blocks<expert_down_kernel<P>>(kThreads, kStreamBytes<2>);
  const unsigned grid = grid_of(held, most_slots, blocks_of(hidden, inner));
  start(
      stream, expert_down_kernel<P>, dim3(grid), kThreads, kStreamBytes<2>,
      args_of(routing, inner, hidden, most_slots, 1, grid, ceil_divide(tiles_of(hidden), 2), inner),
      h, y);
}

}  // namespace

void expert_gate_and_up(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                        const Routing& routing, int top_k, int64_t most_slots, const Bits16* x,
                        Bits16* h) {
  const auto start_packed = packing == Packing::kBFloat16 ? start_gate<Packing::kBFloat16>
                            : packing == Packing::kFP8    ? start_gate<Packing::kFP8>
                                                          : start_gate<Packing::kNVFP4>;
  start_packed(stream, inner, hidden, routing, top_k, most_slots, x, h);
}

void expert_down(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                 const Routing& routing, int64_t most_slots, const Bits16* h, float* y) {
  const auto start_packed = packing == Packing::kBFloat16 ? start_down<Packing::kBFloat16>
                            : packing == Packing::kFP8    ? start_down<Packing::kFP8>
                                                          : start_down<Packing::kNVFP4>;
  start_packed(stream, inner, hidden, routing, most_slots, h, y);
}

}  // namespace lagoon::kernels::cuda
