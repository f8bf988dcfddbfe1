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

// Weights of M matrices (or tiles) that a warp multiplies the same columns of x with, in a ring in
// shared memory that asynchronous copies fill ahead. A lane reads what it copied itself, so that no
// barrier is needed. A stage is 1,024 bytes of values of each matrix: a quarter of a unit of BF16,
// half a unit of FP8, a unit of NVFP4 with its scales. The lane's columns of x are in registers,
// and each is replaced by that of the unit after as soon as it is done with: the second-level
// cache, or another warp that fills the first, has the time of a unit to bring it.
template <Packing P, int M>
class WeightStream {
 public:
  static constexpr int kValueBytes = 1024;
  // Of all matrices: 16 bytes a lane, so that one address does for values and scales.
  static constexpr int kScaleBytes = P == Packing::kNVFP4 ? 512 : 0;
  static constexpr int kStageBytes = M * kValueBytes + kScaleBytes;
  static constexpr int kStages = P == Packing::kNVFP4 && M == 1 ? 6 : 8 / M;
  static constexpr int kPerUnit = static_cast<int>(unit_bytes(P) / kValueBytes);
  static_assert(kStages * kStageBytes <= kRingBytes);

  // Where the lane's part of units that follow each other lies: of the first.
  struct Source {
    const uint8_t* values[M];
    const uint8_t* scales[M];
    int units = 0;  // left
    // `unit`: the first, among all of the matrix.
    template <typename Matrix>  // with `values` and `scales`
    __device__ void set(int m, const Matrix& matrix, int unit) {
      const int lane = static_cast<int>(threadIdx.x) % kLanes;
      values[m] = matrix.values + lane * 16 + static_cast<uint64_t>(unit) * unit_bytes(P);
      if constexpr (P == Packing::kNVFP4) {
        scales[m] = matrix.scales + lane * 4 + static_cast<uint64_t>(unit) * kUnitScaleBytes;
      }
    }
  };

  // `ring`: kRingBytes of this warp.
  __device__ explicit WeightStream(uint8_t* ring)
      : ring_(static_cast<uint32_t>(__cvta_generic_to_shared(ring)) + threadIdx.x % kLanes * 16),
        full_(ring_),
        free_(ring_ + (kStages - 1) * kStageBytes) {}

  // Starts the copies of all stages but one. next(source) opens the first units, and whenever those
  // in hand are all under way the next; where it leaves no units, nothing is copied.
  template <typename Next>
  __device__ __forceinline__ void fill(const Next& next) {
    if constexpr (kPerUnit == 1) {  // little code, which has to be fetched each time
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) feed(ring_ + i * kStageBytes, 0, next);
    } else {
#pragma unroll
      for (int i = 0; i < kStages - 1; ++i) feed(ring_ + i * kStageBytes, i, next);
    }
  }

  // x of the first of `units` units: the lane's columns of its row. With it some of the others are
  // brought to the first-level cache, or each would be waited for when it is met. What is loaded
  // for that has to be put somewhere: into `spare`, of the lane, where nobody writes before the
  // warps have met; and without a branch, or each load is waited for.
  __device__ __forceinline__ void bring(const Bits16* x, int units, float* spare) {
    constexpr int kNear = 4;
    uint32_t near = 0;
    const int last = max(2 * units, 1) - 1;  // of the steps
#pragma unroll
    for (int i = 0; i < 2 * kNear; ++i) {
      near += *reinterpret_cast<const uint32_t*>(x + min(i, last) * kStepColumns);
    }
    *spare = __uint_as_float(near);
#pragma unroll
    for (int i = 0; i < 4; ++i) x_[i] = columns(x, i);
  }

  // sums += a unit of weights times x, then x of the unit that comes after, at `ahead`. Feeds the
  // ring. `scales8` is the scale of FP8 matrices.
  template <typename Next>
  __device__ __forceinline__ void multiply(const float* const (&scales8)[M], const Bits16* ahead,
                                           float (&sums)[M][4], const Next& next) {
    float own[M][4] = {};  // FP8: before the scale
    float scale[M] = {};
    if constexpr (P == Packing::kFP8) {
#pragma unroll
      for (int m = 0; m < M; ++m) scale[m] = __ldg(scales8[m]);
    }
#pragma unroll
    for (int stage = 0; stage < kPerUnit; ++stage) {
      wait_for_copies<kStages - 2>();
      multiply_stage(stage, ahead, P == Packing::kFP8 ? own : sums, next);
    }
    if constexpr (P == Packing::kFP8) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][i] = fmaf(own[m][i], scale[m], sums[m][i]);
      }
    }
  }

  // The same for units [first, end) of the columns. x: of the first column; `scales8`: of the
  // first unit; `ahead`: what x follows the last one's.
  template <typename Next>
  __device__ __forceinline__ void multiply(int first, int end, const Bits16* x, const Bits16* ahead,
                                           const float* const (&scales8)[M], float (&sums)[M][4],
                                           const Next& next) {
#pragma unroll 1
    for (int unit = first; unit < end; ++unit) {
      const float* scales[M];
#pragma unroll
      for (int m = 0; m < M; ++m) scales[m] = scales8[m] + unit;
      multiply(scales, unit + 1 < end ? x + (unit + 1) * kUnitColumns : ahead, sums, next);
    }
  }

 private:
  // Fills the place `to`; stages are counted from the first.
  template <typename Next>
  __device__ __forceinline__ void feed(uint32_t to, int stage, const Next& next) {
    if (stage % kPerUnit == 0 && source_.units == 0) {
      next(source_);
      at_ = 0;
    }
    if (source_.units > 0) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const uint8_t* from = source_.values[m] + at_;
        copy_async<16>(to + m * kValueBytes, from, policy_);
        copy_async<16>(to + m * kValueBytes + 512, from + 512, policy_);
        if constexpr (P == Packing::kNVFP4) {
          copy_async<4>(to + M * kValueBytes + m * 4,
                        source_.scales[m] + at_ / (kValueBytes / kUnitScaleBytes), policy_);
        }
      }
      at_ += kValueBytes;
      if (stage % kPerUnit == kPerUnit - 1) --source_.units;
    }
    commit_copies();
  }

  template <typename Next>
  __device__ __forceinline__ void multiply_stage(int stage, const Bits16* ahead,
                                                 float (&sums)[M][4], const Next& next) {
    uint4 v[M][2];
    uint32_t scale[M] = {};
#pragma unroll
    for (int m = 0; m < M; ++m) {
      v[m][0] = load_shared(full_ + m * kValueBytes);
      v[m][1] = load_shared(full_ + m * kValueBytes + 512);
    }
    if constexpr (P == Packing::kNVFP4) load_shared_words(full_ + M * kValueBytes, scale);
    // What was read in the stage before is free.
    feed(free_, stage + kStages - 1, next);
    free_ = full_;
    full_ = full_ == ring_ + (kStages - 1) * kStageBytes ? ring_ : full_ + kStageBytes;
    // Products of a stage: two of BF16, a step's four of FP8, two steps' of NVFP4.
    constexpr int kProducts = 8 / kPerUnit;
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      const int product = stage * kProducts + i;  // of the unit
      const uint4& b = x_[product / 2];
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Fragment a;
        if constexpr (P == Packing::kBFloat16) {
          bf16_fragment(v[m][i], a);
        } else if constexpr (P == Packing::kFP8) {
          fp8_fragment(v[m][i / 2], i % 2 == 1, a);
        } else {
          nvfp4_fragment(v[m][i / 4], scale[m], i / 4, i % 4, a);
        }
        mma(sums[m], a[0], a[1], a[2], a[3], product % 2 == 0 ? b.x : b.z,
            product % 2 == 0 ? b.y : b.w);
      }
      if (i % 2 == 1) x_[product / 2] = columns(ahead, product / 2);
    }
  }

  __device__ static uint4 columns(const Bits16* x, int quarter) {
    return *reinterpret_cast<const uint4*>(x + quarter / 2 * kStepColumns + quarter % 2 * 8);
  }

  uint32_t ring_, full_, free_;  // of the lane
  uint32_t at_ = 0;              // in the values of the source
  Source source_;
  uint4 x_[4];
  uint64_t policy_ = read_once_policy();
};

// The FP8 scales of a tile of a matrix, one for each unit.
__device__ inline const float* fp8_scales(const MatrixView& m, int tile, int units) {
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
