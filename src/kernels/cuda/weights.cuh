// Packed weights on their way from memory, and what they are multiplied with. The layout is that of
// layout.h, the cut of the work that of plan.h: an output is the sum, in order, of at most eight
// slices of columns, each summed in order of columns by one warp. Columns of mma.m16n8k16 do not
// meet, so that the bits of a row do not depend on the others.
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
// Product j of a step; `scales` are its two bytes.
__device__ inline void nvfp4_fragment(const uint4& v, uint32_t scales, int j, Fragment& a) {
  const uint32_t g = j / 2 == 0 ? v.x : v.y;
  const uint32_t upper = j / 2 == 0 ? v.z : v.w;
  const uint32_t g_scale = scale_pair(scales & 0xff);
  const uint32_t upper_scale = scale_pair(scales >> 8 & 0xff);
  a[0] = multiply_pairs(code_pair(g, j % 2 * 2), g_scale);
  a[1] = multiply_pairs(code_pair(upper, j % 2 * 2), upper_scale);
  a[2] = multiply_pairs(code_pair(g, j % 2 * 2 + 1), g_scale);
  a[3] = multiply_pairs(code_pair(upper, j % 2 * 2 + 1), upper_scale);
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

// Nothing here may be merged into other operations: several kernels have to agree on the bits.
__device__ inline float swiglu(float gate, float up) {
  return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, expf(-gate))), up);
}

// Writes h of a tile for eight rows from the sums of its slices: row_of(r) is the row of h that row
// r is, -1: none. Columns of h are padded(gate.rows).
template <Packing P, typename RowOf>
__device__ void put_gated(const MatrixView& gate, const MatrixView& up, int64_t tile,
                          const Part& part, const float* gate_slices, const float* up_slices,
                          RowOf row_of, Bits16* h) {
  const int64_t stride = padded(gate.rows);
  for (int i = part.thread(); i < 8 * kTileRows; i += part.threads()) {
    const int64_t row = row_of(i / kTileRows);
    const int64_t n = tile * kTileRows + i % kTileRows;
    if (row < 0) continue;
    const float g = finish<P>(gate, sum_slices<1>(gate_slices, part.cut.slices, i));
    const float u = finish<P>(up, sum_slices<1>(up_slices, part.cut.slices, i));
    h[row * stride + n] = static_cast<Bits16>(n < gate.rows ? to_bits(swiglu(g, u)) : 0);
  }
  // The last tile writes what is behind the columns.
  if (tile == tiles_of(gate.rows) - 1) {
    const int64_t first = tiles_of(gate.rows) * kTileRows;
    for (int r = 0; r < 8; ++r) {
      const int64_t row = row_of(r);
      if (row < 0) continue;
      for (int64_t n = first + part.thread(); n < stride; n += part.threads()) {
        h[row * stride + n] = 0;
      }
    }
  }
}

// Products of the same rows in one launch: blocks of each in turn.
struct Products {
  Product products[kMostProducts];
  int block_ends[kMostProducts] = {};  // blocks of the products before and of this one
  int count = 0;
  const Bits16* x = nullptr;
  int64_t rows = 0;

  void add(const Product& product) {
    const MatrixView& m = product.matrix;
    products[count] = product;
    block_ends[count] = blocks() + static_cast<int>(blocks_of(m.rows, m.columns));
    ++count;
  }
  __host__ __device__ int blocks() const { return count == 0 ? 0 : block_ends[count - 1]; }
  __device__ int index_of(int block) const {
    int p = 0;
    while (block >= block_ends[p]) ++p;
    return p;
  }
  __device__ const Product& of(int block) const { return products[index_of(block)]; }
  // The first tile of a block, in its own product.
  __device__ int64_t tiles_before(int block, int tiles_of_block) const {
    const int p = index_of(block);
    return int64_t{block - (p == 0 ? 0 : block_ends[p - 1])} * tiles_of_block;
  }
};

__device__ inline void put_product(const Product& product, int64_t row, int64_t n, float y) {
  const int64_t at = row * product.y_stride + n;
  if (product.add) y = product.y[at] + y;
  product.y[at] = y;
  if (product.copy != nullptr) product.copy[at] = y;
}

// Up to kStreamedRows rows (stream.cu); all matrices of one packing.
void multiply_few(Stream stream, Packing packing, const Products& products);

// Weights of M matrices (or tiles) that a warp multiplies the same columns of x with, in a ring in
// shared memory that asynchronous copies fill ahead. A lane reads what it copied itself, so that no
// barrier is needed. A stage is 1,024 bytes of values of each matrix: a quarter of a unit of BF16,
// half a unit of FP8, a unit of NVFP4 with its scales.
template <Packing P, int M>
class WeightStream {
 public:
  static constexpr int kStages = 8 / M;
  static constexpr int kValueBytes = 1024;
  static constexpr int kScaleBytes = P == Packing::kNVFP4 ? 128 : 0;
  static constexpr int kStageBytes = M * (kValueBytes + kScaleBytes);
  static constexpr int kPerUnit = static_cast<int>(unit_bytes(P) / kValueBytes);
  static_assert(kStages * kStageBytes <= kRingBytes);

  // Where the lane's part of the stages of a slice lies: of its first unit.
  struct Source {
    const uint8_t* values[M];
    const uint8_t* scales[M];
    int stages = 0;  // left
    __device__ void set(int m, const MatrixView& matrix, int64_t tile, const Part& part) {
      set(m, matrix, tile, part, part.first);
    }
    __device__ void set(int m, const MatrixView& matrix, int64_t tile, const Part& part,
                        int first_unit) {
      const int64_t at = tile * part.units + first_unit;
      values[m] = matrix.values + at * unit_bytes(P) + part.lane * 16;
      if constexpr (P == Packing::kNVFP4) {
        scales[m] = matrix.scales + at * kUnitScaleBytes + part.lane * 4;
      }
    }
  };

  // `ring`: kRingBytes of this warp.
  __device__ WeightStream(uint8_t* ring, int lane)
      : ring_(static_cast<uint32_t>(__cvta_generic_to_shared(ring))), lane_(lane) {}

  // Starts the copy of the next stage: of the source in hand or, behind its end, of that which
  // next(source) opens. Where that leaves no stages, nothing is copied.
  template <typename Next>
  __device__ void feed(Next& next) {
    if (source_.stages == 0) next(source_);
    if (source_.stages > 0) {
      const uint32_t to = ring_ + fed_ % kStages * kStageBytes;
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          copy_async<16>(to + m * kValueBytes + i * 512 + lane_ * 16, source_.values[m] + i * 512,
                         policy_);
        }
        source_.values[m] += kValueBytes;
        if constexpr (P == Packing::kNVFP4) {
          copy_async<4>(to + M * kValueBytes + m * kScaleBytes + lane_ * 4, source_.scales[m],
                        policy_);
          source_.scales[m] += kScaleBytes;
        }
      }
      --source_.stages;
      ++fed_;
    }
    commit_copies();
  }
  template <typename Next>
  __device__ void fill(Next& next) {
    for (int i = 0; i < kStages - 1; ++i) feed(next);
  }

  // Stage `stage` of a slice that starts at unit `first` of the columns: sums += weights times x,
  // the lane's columns of its row, or null where there is no such row. Then feeds the ring. `own`
  // is the sum of a unit of FP8 before its scale; `scales8` the scales of FP8 matrices' tiles.
  template <typename Next>
  __device__ void multiply(int first, int stage, const Bits16* x, const float* const (&scales8)[M],
                           float (&own)[M][4], float (&sums)[M][4], Next& next) {
    wait_for_copies<kStages - 2>();
    const uint32_t from = ring_ + taken_++ % kStages * kStageBytes + lane_ * 16;
    const int unit = first + stage / kPerUnit;
    const int part = stage % kPerUnit;
    uint4 v[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
      v[m][0] = load_shared(from + m * kValueBytes);
      v[m][1] = load_shared(from + m * kValueBytes + 512);
    }
    if constexpr (P == Packing::kBFloat16) {
      const uint4 b = columns(x, unit, part / 2, part % 2);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Fragment a;
        bf16_fragment(v[m][0], a);
        mma(sums[m], a[0], a[1], a[2], a[3], b.x, b.y);
        bf16_fragment(v[m][1], a);
        mma(sums[m], a[0], a[1], a[2], a[3], b.z, b.w);
      }
    } else if constexpr (P == Packing::kFP8) {
      const uint4 b[2] = {columns(x, unit, part, 0), columns(x, unit, part, 1)};
#pragma unroll
      for (int m = 0; m < M; ++m) {
        if (part == 0) own[m][0] = own[m][1] = own[m][2] = own[m][3] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          Fragment a;
          fp8_fragment(v[m][j / 2], j % 2 == 1, a);
          mma(own[m], a[0], a[1], a[2], a[3], j % 2 == 0 ? b[j / 2].x : b[j / 2].z,
              j % 2 == 0 ? b[j / 2].y : b[j / 2].w);
        }
        if (part == 1) {
          const float scale = __ldg(scales8[m] + unit);
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[m][i] = fmaf(own[m][i], scale, sums[m][i]);
        }
      }
    } else {
      uint32_t scale[M];
#pragma unroll
      for (int m = 0; m < M; ++m) {
        scale[m] = load_shared_word(from + M * kValueBytes + m * kScaleBytes - lane_ * 12);
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 b[2] = {columns(x, unit, step, 0), columns(x, unit, step, 1)};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int m = 0; m < M; ++m) {
            Fragment a;
            nvfp4_fragment(v[m][step], scale[m] >> (step * 16), j, a);
            mma(sums[m], a[0], a[1], a[2], a[3], j % 2 == 0 ? b[j / 2].x : b[j / 2].z,
                j % 2 == 0 ? b[j / 2].y : b[j / 2].w);
          }
        }
      }
    }
    feed(next);
  }

 private:
  __device__ static uint4 columns(const Bits16* x, int unit, int step, int half) {
    if (x == nullptr) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(x + unit * kUnitColumns + step * kStepColumns +
                                           half * 8);
  }

  uint32_t ring_;
  int lane_;
  uint32_t fed_ = 0, taken_ = 0;
  Source source_;
  uint64_t policy_ = read_once_policy();
};

// The FP8 scales of a tile of a matrix, one for each unit.
__device__ inline const float* fp8_scales(const MatrixView& m, int64_t tile, int units) {
  return reinterpret_cast<const float*>(m.scales) + tile / 8 * units;
}

// What a block has in shared memory: rings, and the sums of M tiles a warp, twice, so that one
// barrier a tile is enough.
template <int M>
inline constexpr int kStreamBytes =
    kWarps * kRingBytes + 2 * M * kWarps * 8 * kTileRows * static_cast<int>(sizeof(float));

template <int M>
struct StreamMemory {
  uint8_t* ring;  // of this warp
  float* sums;    // [2][M][kWarps][8][kTileRows]
  __device__ explicit StreamMemory(uint8_t* memory)
      : ring(memory + threadIdx.x / kLanes * kRingBytes),
        sums(reinterpret_cast<float*>(memory + kWarps * kRingBytes)) {}
  __device__ float* of(int turn, int m, int warp) const {
    return sums + ((turn * M + m) * kWarps + warp) * (8 * kTileRows);
  }
};

}  // namespace lagoon::kernels::cuda
