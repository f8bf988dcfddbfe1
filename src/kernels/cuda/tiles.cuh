// A product cut into tiles: an output is the sum, in order, of at most eight slices of columns,
// each summed in order of columns by one warp (plan.h). Columns of mma.m16n8k16 do not meet, so
// that the bits of a row do not depend on the others.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {

// The weights of one product, in the order of the instruction: rows g, g + 8 and columns 4 j, 4 j +
// 1, then 4 j + 2, 4 j + 3 of a step.
using Fragment = uint32_t[4];

__device__ inline void bf16_fragment(const uint4& v, Fragment& a) {
  a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
}
// Of two products, `second` or not.
__device__ inline void fp8_fragment(const uint4& v, bool second, Fragment& a) {
  const uint32_t g = second ? v.z : v.x;
  const uint32_t upper = second ? v.w : v.y;
  a[0] = multiply_pairs(fp8_pair(g, 0), kFP8Factor);
  a[1] = multiply_pairs(fp8_pair(upper, 0), kFP8Factor);
  a[2] = multiply_pairs(fp8_pair(g, 1), kFP8Factor);
  a[3] = multiply_pairs(fp8_pair(upper, 1), kFP8Factor);
}
// Product j of a step; `scales` are the four bytes of the unit.
__device__ inline void nvfp4_fragment(const uint4& v, uint32_t scales, int step, int j,
                                      Fragment& a) {
  const uint32_t g = j / 2 == 0 ? v.x : v.y;
  const uint32_t upper = j / 2 == 0 ? v.z : v.w;
  const uint32_t g_scales = unit_scales(scales, 0);
  const uint32_t upper_scales = unit_scales(scales, 1);
  a[0] = multiply_by_one(code_pair(g, j % 2 * 2), g_scales, step == 1);
  a[1] = multiply_by_one(code_pair(upper, j % 2 * 2), upper_scales, step == 1);
  a[2] = multiply_by_one(code_pair(g, j % 2 * 2 + 1), g_scales, step == 1);
  a[3] = multiply_by_one(code_pair(upper, j % 2 * 2 + 1), upper_scales, step == 1);
}

// Which part of which tile a warp of a block has. The warps that share a tile are a team.
struct Part {
  Slices cut;
  int units, lane, slice, in_block, first, end;
  __device__ explicit Part(int columns) : cut(slices_of(columns)) {
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    units = static_cast<int>(units_of(columns));
    lane = static_cast<int>(threadIdx.x) % kLanes;
    slice = warp & (cut.slices - 1);
    in_block = warp >> cut.log_slices;
    const int begin = slice * cut.units;
    first = begin < units ? begin : 0;  // none: of no column, so that x may be read there
    end = begin < units ? min(begin + cut.units, units) : 0;
  }
  // Threads of a team, and which of them this is.
  __device__ int threads() const { return cut.slices * kLanes; }
  __device__ int thread() const { return slice * kLanes + lane; }
  // The same in another order every time, so that it is not always the same warps that have the
  // few outputs of one row.
  __device__ int thread(int turn) const { return (thread() + turn * kLanes) & (threads() - 1); }
  // Where the team's warps wait for each other. Barriers by number: a block whose code does not say
  // which it uses is given all sixteen.
  __device__ void meet() const {
    static_assert(kWarps == 8);
    if (cut.slices == 1) {
      __syncwarp();
    } else if (in_block == 0) {
      asm volatile("bar.sync 1, %0;" ::"r"(threads()) : "memory");
    } else if (in_block == 1) {
      asm volatile("bar.sync 2, %0;" ::"r"(threads()) : "memory");
    } else if (in_block == 2) {
      asm volatile("bar.sync 3, %0;" ::"r"(threads()) : "memory");
    } else {
      asm volatile("bar.sync 4, %0;" ::"r"(threads()) : "memory");
    }
  }
};

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

// The sum over slices of output `i` of a tile, in order. All are loaded before the first is added,
// behind the last one the last again.
template <int N>
__device__ float sum_slices(const float* slices, int count, int i) {
  float parts[kWarps];
#pragma unroll
  for (int s = 0; s < kWarps; ++s) parts[s] = slices[min(s, count - 1) * (8 * N * kTileRows) + i];
  float sum = parts[0];
#pragma unroll
  for (int s = 1; s < kWarps; ++s) sum = s < count ? sum + parts[s] : sum;
  return sum;
}

template <Packing P>
__device__ float finish(const MatrixView& m, float sum) {
  return P == Packing::kNVFP4 ? __fdiv_rn(sum * kCodeFactor, m.divisor) : sum;
}

// Nothing here may be merged into other operations: several kernels have to agree on the bits.
__device__ inline float swiglu(float gate, float up) {
  return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, expf(-gate))), up);
}

// The last tile writes what is behind the columns of h.
template <typename RowOf>
__device__ void zero_behind(int columns, int tile, int rows, int thread, int threads, RowOf row_of,
                            Bits16* h) {
  if (tile != static_cast<int>(tiles_of(columns)) - 1) return;
  const int64_t stride = padded(columns);
  for (int r = 0; r < rows; ++r) {
    const int64_t row = row_of(r);
    for (int64_t n = (int64_t{tile} + 1) * kTileRows + thread; n < stride; n += threads) {
      h[row * stride + n] = 0;
    }
  }
}

// Writes h of a tile for up to eight rows from the sums of its slices: row_of(r) is the row of h
// that row r is. Columns of h are padded(gate.rows). `turn`: Part::thread().
template <Packing P, typename RowOf>
__device__ void put_gated(const MatrixView& gate, const MatrixView& up, int tile, const Part& part,
                          int turn, const float* gate_slices, const float* up_slices, int rows,
                          RowOf row_of, Bits16* h) {
  const int64_t stride = padded(gate.rows);
  for (int i = part.thread(turn); i < rows * kTileRows; i += part.threads()) {
    const int64_t row = row_of(i / kTileRows);
    const int n = tile * kTileRows + i % kTileRows;
    const float g = finish<P>(gate, sum_slices<1>(gate_slices, part.cut.slices, i));
    const float u = finish<P>(up, sum_slices<1>(up_slices, part.cut.slices, i));
    h[row * stride + n] = static_cast<Bits16>(n < gate.rows ? to_bits(swiglu(g, u)) : 0);
  }
  zero_behind(gate.rows, tile, rows, part.thread(), part.threads(), row_of, h);
}

// Products of the same rows in one launch: blocks of each in turn.
struct Products {
  Product products[kMostProducts];
  int block_ends[kMostProducts] = {};  // blocks of the products before and of this one
  int count = 0;
  const Bits16* x = nullptr;
  int64_t rows = 0;
  bool settles = false;  // launch.h, multiply()

  void add(const Product& product) {
    const MatrixView& m = product.matrix;
    products[count] = product;
    block_ends[count] = blocks() + static_cast<int>(blocks_of(m.rows, m.columns));
    ++count;
  }
  __host__ __device__ int blocks() const { return count == 0 ? 0 : block_ends[count - 1]; }
  __device__ int index_of(int block) const {
    int p = 0;
#pragma unroll
    for (int i = 0; i + 1 < kMostProducts; ++i)
      p += i + 1 < count && block >= block_ends[i] ? 1 : 0;
    return p;
  }
  __device__ const Product& of(int block) const { return products[index_of(block)]; }
  // The first tile of a block, in its own product.
  __device__ int tiles_before(int block, int tiles_of_block) const {
    int first = 0;
#pragma unroll
    for (int i = 0; i + 1 < kMostProducts; ++i) {
      if (i + 1 < count && block >= block_ends[i]) first = block_ends[i];
    }
    return (block - first) * tiles_of_block;
  }
};

// What a product is added to.
__device__ inline float before_product(const Product& product, int64_t row, int64_t n) {
  return product.add ? product.y[row * product.y_stride + n] : 0;
}
__device__ inline void put_product(const Product& product, int64_t row, int64_t n, float before,
                                   float y) {
  const int64_t at = row * product.y_stride + n;
  if (product.add) y = before + y;
  product.y[at] = y;
  if (product.copy != nullptr) product.copy[at] = y;
}

// Up to kStreamedRows rows (stream.cu); all matrices of one packing.
void multiply_few(Stream stream, Packing packing, const Products& products);

}  // namespace lagoon::kernels::cuda
