// Products with up to eight rows: as many blocks as the device holds take tiles in turn, and their
// weights arrive in rings of shared memory (weights.cuh) without a pause between tiles.
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/weights.cuh"

namespace lagoon::kernels::cuda {
namespace {

template <Packing P>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(const __grid_constant__ Products args) {
  const auto first = static_cast<int>(blockIdx.x);
  const auto grid = static_cast<int>(gridDim.x);
  using Weights = WeightStream<P, 1>;
  extern __shared__ uint4 memory[];
  const StreamMemory<1> shared(reinterpret_cast<uint8_t*>(memory));
  const int blocks = args.blocks();
  const Part part(args.products[0].matrix.columns);
  const int warp = threadIdx.x / kLanes;
  const int units = part.end - part.first;
  int opened = first;
  const auto next = [&](typename Weights::Source& source) {
    for (; opened < blocks && source.units == 0; opened += grid) {
      const MatrixView& m = args.of(opened).matrix;
      const int tile = args.tiles_before(opened, part.cut.tiles()) + part.in_block;
      if (tile >= static_cast<int>(tiles_of(m.rows))) continue;
      source.set(0, m, tile * part.units + part.first);
      source.units = units;
    }
  };
  Weights weights(shared.ring);
  if (!args.settles) let_others_start();
  weights.fill(next);
  wait_for_others();
  if (args.settles) let_others_start();
  // Rows that are not there are multiplied like the last one, and left.
  const int row = min(part.lane / 4, static_cast<int>(args.rows) - 1);
  const Bits16* x = args.x + row * padded(args.products[0].matrix.columns) + part.lane % 4 * 16;
  const Bits16* first_x = x + part.first * kUnitColumns;
  weights.bring(first_x, units, shared.of(1, 0, warp) + part.lane);
  int turn = 0;
  for (int block = first; block < blocks; block += grid, ++turn) {
    const Product& product = args.of(block);
    const MatrixView& m = product.matrix;
    const int tile = args.tiles_before(block, part.cut.tiles()) + part.in_block;
    if (tile >= static_cast<int>(tiles_of(m.rows))) continue;
    // What the thread's first output is added to is there when its weights are.
    const int outputs = static_cast<int>(args.rows) * kTileRows;
    const int output = part.thread(turn);
    const int first_n = tile * kTileRows + output % kTileRows;
    const float before = output < outputs && first_n < m.rows
                             ? before_product(product, output / kTileRows, first_n)
                             : 0;
    float sums[1][4] = {};
    const float* const scales[1] = {fp8_scales(m, tile, part.units)};
    weights.multiply(part.first, part.end, x, first_x, scales, sums, next);
    keep_sums<1>(sums, part.lane, shared.of(turn % 2, 0, warp));
    part.meet();
    const float* slices = shared.of(turn % 2, 0, part.in_block * part.cut.slices);
    for (int i = output; i < outputs; i += part.threads()) {
      const int n = tile * kTileRows + i % kTileRows;
      if (n >= m.rows) continue;
      put_product(product, i / kTileRows, n,
                  i == output ? before : before_product(product, i / kTileRows, n),
                  finish<P>(m, sum_slices<1>(slices, part.cut.slices, i)));
    }
  }
}

// Of the dense or shared feed-forward, for up to kStreamedRows rows.
struct GateArgs {
  MatrixView gate, up;
  const Bits16* x = nullptr;
  int64_t rows = 0;
  Bits16* h = nullptr;
  int blocks = 0;  // that h takes
};

template <Packing P>
__global__ void __launch_bounds__(kThreads, 2) gate_kernel(const __grid_constant__ GateArgs args) {
  const auto first = static_cast<int>(blockIdx.x);
  const auto grid = static_cast<int>(gridDim.x);
  using Weights = WeightStream<P, 2>;
  extern __shared__ uint4 memory[];
  const StreamMemory<2> shared(reinterpret_cast<uint8_t*>(memory));
  const MatrixView& gate = args.gate;
  const MatrixView& up = args.up;
  const Part part(gate.columns);
  const int warp = threadIdx.x / kLanes;
  const int units = part.end - part.first;
  const int tiles = static_cast<int>(tiles_of(gate.rows));
  int opened = first;
  const auto next = [&](typename Weights::Source& source) {
    for (; opened < args.blocks && source.units == 0; opened += grid) {
      const int tile = opened * part.cut.tiles() + part.in_block;
      if (tile >= tiles) continue;
      source.set(0, gate, tile * part.units + part.first);
      source.set(1, up, tile * part.units + part.first);
      source.units = units;
    }
  };
  Weights weights(shared.ring);
  let_others_start();
  weights.fill(next);
  wait_for_others();
  // Rows that are not there are multiplied like the last one, and left.
  const int row = min(part.lane / 4, static_cast<int>(args.rows) - 1);
  const Bits16* own_x = args.x + row * padded(gate.columns) + part.lane % 4 * 16;
  const Bits16* first_x = own_x + part.first * kUnitColumns;
  weights.bring(first_x, units, shared.of(1, 0, warp) + part.lane);
  int turn = 0;
  for (int block = first; block < args.blocks; block += grid, ++turn) {
    const int tile = block * part.cut.tiles() + part.in_block;
    if (tile >= tiles) continue;
    float sums[2][4] = {};
    const float* const scales[2] = {fp8_scales(gate, tile, part.units),
                                    fp8_scales(up, tile, part.units)};
    weights.multiply(part.first, part.end, own_x, first_x, scales, sums, next);
    for (int m = 0; m < 2; ++m) {
      const float one[1][4] = {{sums[m][0], sums[m][1], sums[m][2], sums[m][3]}};
      keep_sums<1>(one, part.lane, shared.of(turn % 2, m, warp));
    }
    part.meet();
    const int first_warp = part.in_block * part.cut.slices;
    put_gated<P>(
        gate, up, tile, part, turn, shared.of(turn % 2, 0, first_warp),
        shared.of(turn % 2, 1, first_warp), static_cast<int>(args.rows), [](int r) { return r; },
        args.h);
  }
}

unsigned smaller(unsigned held, int blocks) {
  return held < static_cast<unsigned>(blocks) ? held : static_cast<unsigned>(blocks);
}

template <Packing P>
void start_product(Stream stream, const Products& args) {
  const unsigned held = resident_blocks<product_kernel<P>>(kThreads, kStreamBytes<1>);
  start(stream, product_kernel<P>, dim3(smaller(held, args.blocks())), kThreads, kStreamBytes<1>,
        args);
}

template <Packing P>
void start_gate(Stream stream, const GateArgs& args) {
  const unsigned held = resident_blocks<gate_kernel<P>>(kThreads, kStreamBytes<2>);
  start(stream, gate_kernel<P>, dim3(smaller(held, args.blocks)), kThreads, kStreamBytes<2>, args);
}

GateArgs gate_args(const MatrixView& gate, const MatrixView& up, const Bits16* x, int64_t rows,
                   Bits16* h) {
  return {gate, up, x, rows, h, static_cast<int>(blocks_of(gate.rows, gate.columns))};
}

}  // namespace

void multiply_few(Stream stream, Packing packing, const Products& products) {
  if (packing == Packing::kBFloat16) start_product<Packing::kBFloat16>(stream, products);
  if (packing == Packing::kFP8) start_product<Packing::kFP8>(stream, products);
  if (packing == Packing::kNVFP4) start_product<Packing::kNVFP4>(stream, products);
}

void gate_and_up(Stream stream, const MatrixView& gate, const MatrixView& up, const Bits16* x,
                 int64_t rows, Bits16* h) {
  const GateArgs args = gate_args(gate, up, x, rows, h);
  if (gate.packing == Packing::kBFloat16) start_gate<Packing::kBFloat16>(stream, args);
  if (gate.packing == Packing::kFP8) start_gate<Packing::kFP8>(stream, args);
  if (gate.packing == Packing::kNVFP4) start_gate<Packing::kNVFP4>(stream, args);
}

}  // namespace lagoon::kernels::cuda
