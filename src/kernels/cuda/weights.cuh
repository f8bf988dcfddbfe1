// Packed weights on their way from memory (layout.h) for products of up to eight rows, and what
// they are multiplied with.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/tiles.cuh"

namespace lagoon::kernels::cuda {

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
  // One is being read; the others are whole units.
  static constexpr int kStages = P != Packing::kNVFP4 ? 8 / M + 1 : M == 1 ? 6 : 4;
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
    static_assert((kStages - 1) % kPerUnit == 0);
#pragma unroll 1  // little code, which has to be fetched each time
    for (int stage = 0; stage < kStages - 1; stage += kPerUnit) {
#pragma unroll
      for (int i = 0; i < kPerUnit; ++i) feed(ring_ + (stage + i) * kStageBytes, i, next);
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

// With 1 KiB for what kernels have beside it, on GPUs with 99 KiB for a block.
static_assert(kStreamBytes<2> + 1024 <= 99 * 1024);

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
