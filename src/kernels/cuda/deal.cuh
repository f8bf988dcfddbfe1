// How the chosen experts of a step are dealt out to the warps and teams of a grid: an item is a
// tile, or a pair of tiles, of an expert.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/tiles.cuh"

namespace lagoon::kernels::cuda {

// Quotients by a number that the host knows: of i where i * divisor is below 2^32.
struct Divider {
  uint32_t divisor = 1;
  uint32_t reciprocal = 0;  // rounded up, of 2^32
  explicit Divider(int64_t by)
      : divisor(static_cast<uint32_t>(by)),
        reciprocal(by == 1 ? 0
                           : static_cast<uint32_t>(((uint64_t{1} << 32) + divisor - 1) / divisor)) {
  }
  __device__ int quotient(int i) const {
    return divisor == 1 ? i : static_cast<int>(__umulhi(static_cast<uint32_t>(i), reciprocal));
  }
  __device__ int rounds(int i) const { return quotient(i + static_cast<int>(divisor) - 1); }
};

struct ExpertArgs {
  Routing routing;
  int inner, hidden;
  int most_slots;
  bool staggered;  // whether blocks come one after the other, in order, while others have work
  Divider top_k;   // 1 where entries are the rows of what is multiplied
  Divider tiles;   // of an expert, or pairs of them: the items
  Divider warps;   // of the grid
  Divider teams;
};

// How the items of all chosen experts are dealt out. So many first ones are taken whole, one warp
// each, in full rounds; the rest in slices, by teams, unless it fills most of a round.
struct Deal {
  int items, whole;
  __device__ Deal(int chosen, const ExpertArgs& args, const Part& part, int stages_of_unit)
      : items(chosen * static_cast<int>(args.tiles.divisor)),
        whole(args.warps.quotient(items) * static_cast<int>(args.warps.divisor)) {
    // In halves of a stage: the end of a shared item takes as long as two stages, that of a whole
    // one as half of one.
    const int of_whole = 2 * part.units * stages_of_unit + 1;
    const int of_slice = 2 * part.cut.units * stages_of_unit + 4;
    if (of_whole < args.teams.rounds(items - whole) * of_slice) whole = items;
  }
};

// Reads what the choice of experts left: past the first-level cache before wait_for_others(), where
// that may hold what was there before, unless the choice itself was waited for.
template <bool kEarly, typename T>
__device__ __forceinline__ T read_choice(const T* from) {
  return kEarly ? __ldcg(from) : *from;
}

// A pass of a warp: up to eight rows of an item.
struct Pass {
  int item;
  int slot = 0, tile = 0;     // a chosen expert, and a tile (or pair) of it
  int row = 0, rows_end = 0;  // places in Routing::order; the end is that of the item
  bool whole = true;
  __device__ int rows() const { return min(rows_end - row, 8); }
};

// The passes of a warp, one after the other.
template <Packing P>
struct Walk {
  const ExpertArgs& args;
  const Deal& deal;
  const Part& part;
  MatrixView ExpertView::* matrix;

  template <bool kEarly>
  __device__ Pass begin() const {
    // A round that is not full gives some warps of every block an item, not all warps of some.
    Pass pass = {.item = static_cast<int>(threadIdx.x / kLanes * gridDim.x + blockIdx.x)};
    open<kEarly>(pass);
    return pass;
  }
  __device__ bool ended(const Pass& pass) const { return pass.item >= deal.items; }
  template <bool kEarly>
  __device__ void advance(Pass& pass) const {
    pass.row += 8;
    if (pass.row < pass.rows_end) return;
    pass.item += stride(pass);
    open<kEarly>(pass);
  }
  // The units that the warp has of it.
  __device__ int first(const Pass& pass) const { return pass.whole ? 0 : part.first; }
  __device__ int end(const Pass& pass) const { return pass.whole ? part.units : part.end; }

 private:
  __device__ int stride(const Pass& pass) const {
    return static_cast<int>(pass.whole ? args.warps.divisor : args.teams.divisor);
  }
  // The block's place among those that take a last round, which may not be full: those that came
  // first, or every second one first, since neighbours tend to be on one processor.
  __device__ int in_turn() const {
    const auto block = static_cast<int>(blockIdx.x);
    if (args.staggered) return block;
    return block / 2 + (block % 2 == 0 ? 0 : static_cast<int>(gridDim.x + 1) / 2);
  }
  // Finds the next item of an expert of this packing, from pass.item on.
  template <bool kEarly>
  __device__ void open(Pass& pass) const {
    for (;; pass.item += stride(pass)) {
      if (pass.whole && pass.item >= deal.whole) {
        pass.whole = false;
        pass.item = deal.whole + in_turn() * part.cut.tiles() + part.in_block;
      }
      if (ended(pass)) return;
      pass.slot = args.tiles.quotient(pass.item);
      pass.tile = pass.item - pass.slot * static_cast<int>(args.tiles.divisor);
      pass.row = read_choice<kEarly>(&args.routing.slots[2 * pass.slot + 1]);
      pass.rows_end = read_choice<kEarly>(&args.routing.slots[2 * pass.slot + 3]);
      const MatrixView& view = args.routing.views[pass.slot].*matrix;
      const int32_t packing = read_choice<kEarly>(reinterpret_cast<const int32_t*>(&view.packing));
      if (packing == static_cast<int32_t>(P)) return;
    }
  }
};

}  // namespace lagoon::kernels::cuda
