// Products of matrices with rows. The layout is that of layout.h, the cut of the
// work that of plan.h: an output is the sum, in order, of at most eight slices of columns, each
// summed in order of columns by one warp. Columns of mma.m16n8k16 do not meet, so that the bits of
// a row do not depend on the others.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kThreads = kWarps * kLanes;

// What a lane loads of a unit.
template <Packing P>
struct Unit {
  static constexpr int kLoads = P == Packing::kBFloat16 ? 8 : P == Packing::kFP8 ? 4 : 2;
  uint4 loads[kLoads];
  uint32_t scale = 0;  // NVFP4: four bytes; FP8: an FP32

  __device__ void load(const MatrixView& m, int64_t tile, int units, int unit, int lane) {
    const int64_t at = tile * units + unit;
    const uint8_t* from = m.values + at * unit_bytes(P) + lane * 16;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) loads[i] = load_once(from + i * (kLanes * 16));
    if constexpr (P == Packing::kNVFP4) {
      scale = load_word_once(m.scales + at * kUnitScaleBytes + lane * 4);
    } else if constexpr (P == Packing::kFP8) {
      scale = reinterpret_cast<const uint32_t*>(m.scales)[tile / 8 * units + unit];
    }
  }

  // The weights of product j of a step: rows g, g + 8 and columns 4 j, 4 j + 1, then 4 j + 2, 4 j
  // + 3.
  __device__ void fragment(int step, int j, uint32_t (&a)[4]) const {
    if constexpr (P == Packing::kBFloat16) {
      const uint4& v = loads[step * 4 + j];
      a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
    } else if constexpr (P == Packing::kFP8) {
      const uint4& v = loads[step * 2 + j / 2];
      const uint32_t g = j % 2 == 0 ? v.x : v.z;
      const uint32_t upper = j % 2 == 0 ? v.y : v.w;
      a[0] = multiply_pairs(fp8_pair(g, 0), kFP8Factor);
      a[1] = multiply_pairs(fp8_pair(upper, 0), kFP8Factor);
      a[2] = multiply_pairs(fp8_pair(g, 1), kFP8Factor);
      a[3] = multiply_pairs(fp8_pair(upper, 1), kFP8Factor);
    } else {
      const uint4& v = loads[step];
      const uint32_t g = j / 2 == 0 ? v.x : v.y;
      const uint32_t upper = j / 2 == 0 ? v.z : v.w;
      const uint32_t g_scale = scale_pair(scale >> (step * 16) & 0xff);
      const uint32_t upper_scale = scale_pair(scale >> (step * 16 + 8) & 0xff);
      a[0] = multiply_pairs(code_pair(g, j % 2 * 2), g_scale);
      a[1] = multiply_pairs(code_pair(upper, j % 2 * 2), upper_scale);
      a[2] = multiply_pairs(code_pair(g, j % 2 * 2 + 1), g_scale);
      a[3] = multiply_pairs(code_pair(upper, j % 2 * 2 + 1), upper_scale);
    }
  }
};

// sums += M units times eight rows of x for each of N row tiles; x points at the lane's columns of
// the first unit of the matrix, or is null where there is no such row.
template <Packing P, int M, int N>
__device__ void multiply_units(const Unit<P> (&units)[M], const Bits16* const (&x)[N],
                               int64_t column, float (&sums)[M][N][4]) {
  float own[M][N][4] = {};  // FP8: before the scale
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint4 b[N][2];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      b[n][0] = b[n][1] = make_uint4(0, 0, 0, 0);
      if (x[n] != nullptr) {
        const auto* from = reinterpret_cast<const uint4*>(x[n] + column + step * kStepColumns);
        b[n][0] = __ldg(from);
        b[n][1] = __ldg(from + 1);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        uint32_t a[4];
        units[m].fragment(step, j, a);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const uint4& v = b[n][j / 2];
          float(&into)[4] = P == Packing::kFP8 ? own[m][n] : sums[m][n];
          mma(into, a[0], a[1], a[2], a[3], j % 2 == 0 ? v.x : v.z, j % 2 == 0 ? v.y : v.w);
        }
      }
    }
  }
  if constexpr (P == Packing::kFP8) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const float scale = __uint_as_float(units[m].scale);
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = fmaf(own[m][n][i], scale, sums[m][n][i]);
      }
    }
  }
}

// Units of a matrix that are loaded together, so that enough bytes are on their way.
template <Packing P, int M, int N>
inline constexpr int kTogether = N == 8                    ? 1
                                 : P == Packing::kBFloat16 ? (M == 1 && N < 4 ? 2 : 1)
                                 : P == Packing::kFP8      ? (M == 1 && N == 1 ? 3 : 2)
                                                           : (N < 4 ? 3 : 2);

// The sums of a slice of a tile of M matrices. Order: unit after unit.
template <Packing P, int M, int N>
__device__ void multiply_slice(const MatrixView (&matrices)[M], int64_t tile, int units, int first,
                               int end, const Bits16* const (&x)[N], int lane,
                               float (&sums)[M][N][4]) {
  constexpr int kMany = kTogether<P, M, N>;
  for (int unit = first; unit < end; unit += kMany) {
    Unit<P> loaded[kMany][M];
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      if (unit + i < end) {
#pragma unroll
        for (int m = 0; m < M; ++m) loaded[i][m].load(matrices[m], tile, units, unit + i, lane);
      }
    }
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      if (unit + i < end) {
        multiply_units<P, M, N>(loaded[i], x, (unit + i) * int64_t{kUnitColumns}, sums);
      }
    }
  }
}

// Sums of one tile for 8 N rows: [8 N rows][16]. A row and its tile's row.
template <int N>
__device__ void keep_sums(const float (&sums)[N][4], int lane, float* out) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = n * 8 + lane % 4 * 2 + i % 2;
      out[row * kTileRows + lane / 4 + i / 2 * 8] = sums[n][i];
    }
  }
}

// The sum over slices of output `i` of a tile, in order.
template <int N>
__device__ float sum_slices(const float* slices, int count, int i) {
  float sum = slices[i];
  for (int s = 1; s < count; ++s) sum += slices[s * (8 * N * kTileRows) + i];
  return sum;
}

template <Packing P>
__device__ float finish(const MatrixView& m, float sum) {
  return P == Packing::kNVFP4 ? __fdiv_rn(sum * kCodeFactor, m.divisor) : sum;
}

// Nothing here may be merged into other operations: two kernels have to agree on the bits.
__device__ float swiglu(float gate, float up) {
  return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, expf(-gate))), up);
}

// Which part of which tile a warp of a block has.
struct Part {
  Slices cut;
  int units, lane, slice, in_block, first, end;
  __device__ explicit Part(int64_t columns) : cut(slices_of(columns)) {
    const int warp = threadIdx.x / kLanes;
    units = static_cast<int>(units_of(columns));
    lane = threadIdx.x % kLanes;
    slice = warp % cut.slices;
    in_block = warp / cut.slices;
    first = min(slice * cut.units, units);
    end = min(first + cut.units, units);
  }
  // Threads that share a tile.
  __device__ int threads() const { return cut.slices * kLanes; }
  __device__ int thread() const { return slice * kLanes + lane; }
};

struct ProductArgs {
  Product products[kMostProducts];
  int block_ends[kMostProducts];  // blocks of the products before and of this one
  int count;
  const Bits16* x;
  int64_t rows;
};

template <Packing P, int N>
__global__ void __launch_bounds__(kThreads)
    multiply_kernel(const __grid_constant__ ProductArgs args) {
  __shared__ float slices[kWarps * 8 * N * kTileRows];
  int p = 0;
  while (static_cast<int>(blockIdx.x) >= args.block_ends[p]) ++p;
  const Product& product = args.products[p];
  const MatrixView m = product.matrix;
  const Part part(m.columns);
  const int64_t block = blockIdx.x - (p == 0 ? 0 : args.block_ends[p - 1]);
  const int64_t tile = block * part.cut.tiles() + part.in_block;
  const int64_t first_row = blockIdx.y * int64_t{8 * N};
  const bool real = tile < tiles_of(m.rows);
  float sums[1][N][4] = {};
  if (real) {
    const MatrixView matrices[1] = {m};
    const Bits16* x[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t row = first_row + n * 8 + part.lane / 4;
      x[n] = row < args.rows ? args.x + row * padded(m.columns) + part.lane % 4 * 16 : nullptr;
    }
    multiply_slice<P, 1, N>(matrices, tile, part.units, part.first, part.end, x, part.lane, sums);
  }
  float* own = slices + part.in_block * part.cut.slices * (8 * N * kTileRows);
  keep_sums<N>(sums[0], part.lane, own + part.slice * (8 * N * kTileRows));
  __syncthreads();
  if (!real) return;
  for (int i = part.thread(); i < 8 * N * kTileRows; i += part.threads()) {
    const int64_t row = first_row + i / kTileRows;
    const int64_t n = tile * kTileRows + i % kTileRows;
    if (row >= args.rows || n >= m.rows) continue;
    float y = finish<P>(m, sum_slices<N>(own, part.cut.slices, i));
    const int64_t at = row * product.y_stride + n;
    if (product.add) y = product.y[at] + y;
    product.y[at] = y;
    if (product.copy != nullptr) product.copy[at] = y;
  }
}

// h of one tile for eight rows: rows[r] is the row of h that row r of the tile of rows is, -1:
// none.
template <Packing P>
__device__ void gate_tile(const MatrixView& gate, const MatrixView& up, int64_t tile, bool real,
                          const Part& part, const Bits16* x, float* gate_slices, float* up_slices,
                          const int32_t* rows, Bits16* h) {
  constexpr int kSums = 8 * kTileRows;
  float sums[2][1][4] = {};
  if (real) {
    const Bits16* const pointers[1] = {x};
    const MatrixView matrices[2] = {gate, up};
    multiply_slice<P, 2, 1>(matrices, tile, part.units, part.first, part.end, pointers, part.lane,
                            sums);
  }
  const int base = part.in_block * part.cut.slices * kSums;
  keep_sums<1>(sums[0], part.lane, gate_slices + base + part.slice * kSums);
  keep_sums<1>(sums[1], part.lane, up_slices + base + part.slice * kSums);
  __syncthreads();
  if (real) {
    const int64_t stride = padded(gate.rows);
    for (int i = part.thread(); i < kSums; i += part.threads()) {
      const int32_t row = rows[i / kTileRows];
      const int64_t n = tile * kTileRows + i % kTileRows;
      if (row < 0) continue;
      const float g = finish<P>(gate, sum_slices<1>(gate_slices + base, part.cut.slices, i));
      const float u = finish<P>(up, sum_slices<1>(up_slices + base, part.cut.slices, i));
      h[row * stride + n] = static_cast<Bits16>(n < gate.rows ? to_bits(swiglu(g, u)) : 0);
    }
    // The last tile writes what is behind the columns.
    if (tile == tiles_of(gate.rows) - 1) {
      const int64_t first = tiles_of(gate.rows) * kTileRows;
      for (int r = 0; r < 8; ++r) {
        if (rows[r] < 0) continue;
        for (int64_t n = first + part.thread(); n < stride; n += part.threads()) {
          h[rows[r] * stride + n] = 0;
        }
      }
    }
  }
  __syncthreads();  // the sums are used again
}

template <Packing P>
__global__ void __launch_bounds__(kThreads)
    gate_kernel(MatrixView gate, MatrixView up, const Bits16* x, int64_t rows, Bits16* h) {
  __shared__ float gate_slices[kWarps * 8 * kTileRows];
  __shared__ float up_slices[kWarps * 8 * kTileRows];
  __shared__ int32_t ids[8];
  const Part part(gate.columns);
  const int64_t tile = blockIdx.x * int64_t{part.cut.tiles()} + part.in_block;
  const int64_t first_row = blockIdx.y * int64_t{8};
  if (threadIdx.x < 8) {
    const int64_t row = first_row + threadIdx.x;
    ids[threadIdx.x] = row < rows ? static_cast<int32_t>(row) : -1;
  }
  __syncthreads();
  const int32_t row = ids[part.lane / 4];
  const Bits16* own = row < 0 ? nullptr : x + row * padded(gate.columns) + part.lane % 4 * 16;
  gate_tile<P>(gate, up, tile, tile < tiles_of(gate.rows), part, own, gate_slices, up_slices, ids,
               h);
}

__global__ void swiglu_kernel(const float* gate, const float* up, int64_t inner, Bits16* h) {
  const int64_t n = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t stride = padded(inner);
  if (n >= stride) return;
  const int64_t at = blockIdx.y * inner + n;
  h[blockIdx.y * stride + n] =
      static_cast<Bits16>(n < inner ? to_bits(swiglu(gate[at], up[at])) : 0);
}

struct ExpertArgs {
  Routing routing;
  int64_t inner, hidden;
  int top_k;
};

// The range in Routing::order of the chosen expert of this block; false if there is none, or one of
// another packing. What is loaded first does not depend on each other.
__device__ bool find_entries(const ExpertArgs& args, Packing packing, Packing of_expert, int& first,
                             int& end) {
  const int slot = blockIdx.y;
  const int count = *args.routing.count;
  first = args.routing.slots[2 * slot + 1];
  end = args.routing.slots[2 * slot + 3];
  return slot < count && of_expert == packing;
}

template <Packing P>
__global__ void __launch_bounds__(kThreads)
    expert_gate_kernel(ExpertArgs args, const Bits16* x, Bits16* h) {
  __shared__ float gate_slices[kWarps * 8 * kTileRows];
  __shared__ float up_slices[kWarps * 8 * kTileRows];
  __shared__ int32_t ids[8];
  const MatrixView gate = args.routing.views[blockIdx.y].gate;
  const MatrixView up = args.routing.views[blockIdx.y].up;
  int first = 0, end = 0;
  if (!find_entries(args, P, gate.packing, first, end)) return;
  const Part part(gate.columns);
  const int64_t tile = blockIdx.x * int64_t{part.cut.tiles()} + part.in_block;
  for (int at = first; at < end; at += 8) {
    if (threadIdx.x < 8) {
      const int place = at + static_cast<int>(threadIdx.x);
      ids[threadIdx.x] = place < end ? args.routing.order[place] : -1;
    }
    __syncthreads();
    const int32_t entry = ids[part.lane / 4];
    const Bits16* own =
        entry < 0 ? nullptr : x + entry / args.top_k * padded(gate.columns) + part.lane % 4 * 16;
    gate_tile<P>(gate, up, tile, tile < tiles_of(gate.rows), part, own, gate_slices, up_slices, ids,
                 h);
  }
}

template <Packing P>
__global__ void __launch_bounds__(kThreads)
    expert_down_kernel(ExpertArgs args, const Bits16* h, float* y) {
  constexpr int kSums = 8 * kTileRows;
  __shared__ float slices[kWarps * kSums];
  const MatrixView down = args.routing.views[blockIdx.y].down;
  int first = 0, end = 0;
  if (!find_entries(args, P, down.packing, first, end)) return;
  const Part part(down.columns);
  const int64_t tile = blockIdx.x * int64_t{part.cut.tiles()} + part.in_block;
  const bool real = tile < tiles_of(down.rows);
  float* own = slices + part.in_block * part.cut.slices * kSums;
  for (int at = first; at < end; at += 8) {
    const int place = at + part.lane / 4;
    const int32_t entry = place < end ? args.routing.order[place] : -1;
    const Bits16* const x[1] = {entry < 0 ? nullptr
                                          : h + entry * padded(down.columns) + part.lane % 4 * 16};
    float sums[1][1][4] = {};
    const MatrixView matrices[1] = {down};
    if (real) {
      multiply_slice<P, 1, 1>(matrices, tile, part.units, part.first, part.end, x, part.lane, sums);
    }
    keep_sums<1>(sums[0], part.lane, own + part.slice * kSums);
    __syncthreads();
    for (int i = part.thread(); real && i < kSums; i += part.threads()) {
      const int row_place = at + i / kTileRows;
      const int64_t n = tile * kTileRows + i % kTileRows;
      if (row_place >= end || n >= down.rows) continue;
      y[args.routing.order[row_place] * args.hidden + n] =
          finish<P>(down, sum_slices<1>(own, part.cut.slices, i));
    }
    __syncthreads();
  }
}

unsigned blocks_of(int64_t rows, int64_t columns) {
  return static_cast<unsigned>(ceil_divide(tiles_of(rows), slices_of(columns).tiles()));
}

template <Packing P>
void multiply_packing(Stream stream, const ProductArgs& args) {
  const int tiles = row_tiles_of(args.rows);
  const dim3 grid(args.block_ends[args.count - 1],
                  static_cast<unsigned>(ceil_divide(args.rows, 8 * tiles)));
  if (tiles == 1) {
    multiply_kernel<P, 1><<<grid, kThreads, 0, stream>>>(args);
  } else if (tiles == 2) {
    multiply_kernel<P, 2><<<grid, kThreads, 0, stream>>>(args);
  } else if (tiles == 4) {
    multiply_kernel<P, 4><<<grid, kThreads, 0, stream>>>(args);
  } else {
    multiply_kernel<P, 8><<<grid, kThreads, 0, stream>>>(args);
  }
}

}  // namespace

void multiply(Stream stream, const Product* products, int count, const Bits16* x, int64_t rows) {
  // A launch for each packing that is there.
  for (const Packing packing : {Packing::kBFloat16, Packing::kFP8, Packing::kNVFP4}) {
    ProductArgs args = {};
    args.x = x;
    args.rows = rows;
    unsigned blocks = 0;
    for (int p = 0; p < count; ++p) {
      if (products[p].matrix.packing != packing) continue;
      blocks += blocks_of(products[p].matrix.rows, products[p].matrix.columns);
      args.products[args.count] = products[p];
      args.block_ends[args.count++] = static_cast<int>(blocks);
    }
    if (args.count == 0) continue;
    if (packing == Packing::kBFloat16) multiply_packing<Packing::kBFloat16>(stream, args);
    if (packing == Packing::kFP8) multiply_packing<Packing::kFP8>(stream, args);
    if (packing == Packing::kNVFP4) multiply_packing<Packing::kNVFP4>(stream, args);
  }
}

void gate_and_up(Stream stream, const MatrixView& gate, const MatrixView& up, const Bits16* x,
                 int64_t rows, Bits16* h) {
  const dim3 grid(blocks_of(gate.rows, gate.columns), static_cast<unsigned>(ceil_divide(rows, 8)));
  if (gate.packing == Packing::kBFloat16) {
    gate_kernel<Packing::kBFloat16><<<grid, kThreads, 0, stream>>>(gate, up, x, rows, h);
  } else if (gate.packing == Packing::kFP8) {
    gate_kernel<Packing::kFP8><<<grid, kThreads, 0, stream>>>(gate, up, x, rows, h);
  } else {
    gate_kernel<Packing::kNVFP4><<<grid, kThreads, 0, stream>>>(gate, up, x, rows, h);
  }
}

void swiglu_rows(Stream stream, const float* gate, const float* up, int64_t rows, int64_t inner,
                 Bits16* h) {
  constexpr int kSwigluThreads = 256;
  const dim3 grid(static_cast<unsigned>(ceil_divide(padded(inner), kSwigluThreads)),
                  static_cast<unsigned>(rows));
  swiglu_kernel<<<grid, kSwigluThreads, 0, stream>>>(gate, up, inner, h);
}

void expert_gate_and_up(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                        const Routing& routing, int top_k, int64_t most_slots, const Bits16* x,
                        Bits16* h) {
  const dim3 grid(blocks_of(inner, hidden), static_cast<unsigned>(most_slots));
  const ExpertArgs args = {routing, inner, hidden, top_k};
  if (packing == Packing::kBFloat16) {
    expert_gate_kernel<Packing::kBFloat16><<<grid, kThreads, 0, stream>>>(args, x, h);
  } else if (packing == Packing::kFP8) {
    expert_gate_kernel<Packing::kFP8><<<grid, kThreads, 0, stream>>>(args, x, h);
  } else {
    expert_gate_kernel<Packing::kNVFP4><<<grid, kThreads, 0, stream>>>(args, x, h);
  }
}

void expert_down(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                 const Routing& routing, int64_t most_slots, const Bits16* h, float* y) {
  const dim3 grid(blocks_of(hidden, inner), static_cast<unsigned>(most_slots));
  const ExpertArgs args = {routing, inner, hidden, 1};
  if (packing == Packing::kBFloat16) {
    expert_down_kernel<Packing::kBFloat16><<<grid, kThreads, 0, stream>>>(args, h, y);
  } else if (packing == Packing::kFP8) {
    expert_down_kernel<Packing::kFP8><<<grid, kThreads, 0, stream>>>(args, h, y);
  } else {
    expert_down_kernel<Packing::kNVFP4><<<grid, kThreads, 0, stream>>>(args, h, y);
  }
}

}  // namespace lagoon::kernels::cuda
