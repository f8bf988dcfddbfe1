// RMSNorm of a row by a block, for kernels that have the row in registers. The order of the sum
// depends on the row's size alone.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace lagoon::kernels::cuda {

inline constexpr int kNormThreads = 512;

// What a thread keeps in registers, up to rows of 4,096: elements thread + k * kNormThreads. What
// it adds up, and in which order, is the same for longer ones.
struct NormRow {
  static constexpr int kKept = 8;
  static constexpr int64_t kFirstRest = int64_t{kKept} * kNormThreads;
  float values[kKept];  // 0 behind the row
};
// Of the same elements. May be read before other kernels are waited for.
struct NormWeights {
  float values[NormRow::kKept];
  __device__ explicit NormWeights(const Norm& norm) {
#pragma unroll
    for (int k = 0; k < NormRow::kKept; ++k) {
      const int64_t i = threadIdx.x + k * kNormThreads;
      values[k] = i < norm.n && norm.weight != nullptr ? norm.weight[i] : 0;
    }
  }
};

// The sum over a block of kNormThreads, the same in all threads.
__device__ inline float block_sum(float x) {
  constexpr int kSums = kNormThreads / kLanes;
  __shared__ alignas(16) float warps[kSums];
  x = warp_sum(x);
  if (threadIdx.x % kLanes == 0) warps[threadIdx.x / kLanes] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kSums; w += 4) {
    const float4 four = *reinterpret_cast<const float4*>(&warps[w]);
    sum = (((sum + four.x) + four.y) + four.z) + four.w;
  }
  return sum;
}

// Row `row` of what norm.out and norm.out_float get; x: the row, for what is not kept. Writes if
// `real`.
__device__ inline void norm_row(const Norm& norm, const float* x, int64_t row, const NormRow& kept,
                                const NormWeights& weights, bool real) {
  const auto n = static_cast<int>(norm.n);
  float squares = 0;
#pragma unroll
  for (int k = 0; k < NormRow::kKept; ++k) {
    squares = fmaf(kept.values[k], kept.values[k], squares);  // zeros change nothing
  }
  constexpr auto kFirstRest = static_cast<int>(NormRow::kFirstRest);
  const auto thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = kFirstRest + thread; i < n; i += kNormThreads) {
    const float value = __ldcg(&x[i]);
    squares = fmaf(value, value, squares);
  }
  const float mean = block_sum(squares) / static_cast<float>(n);
  const float scale = 1.0f / sqrtf(mean + norm.epsilon);
  const auto put = [&](int i, float value, float weight) {
    const uint32_t bits = to_bits(value * scale * weight);
    if (!real) return;
    if (norm.out != nullptr) norm.out[row * norm.out_stride + i] = static_cast<Bits16>(bits);
    if (norm.out_float != nullptr) norm.out_float[row * n + i] = from_bits(bits);
  };
#pragma unroll
  for (int k = 0; k < NormRow::kKept; ++k) {
    const int i = thread + k * kNormThreads;
    if (i < n) put(i, kept.values[k], weights.values[k]);
  }
#pragma unroll 1
  for (int i = kFirstRest + thread; i < n; i += kNormThreads) put(i, __ldcg(&x[i]), norm.weight[i]);
  if (!real) {
    __syncthreads();  // before block_sum() comes again
    return;
  }
  if (norm.out == nullptr) return;
#pragma unroll 1
  for (int i = n + thread; i < static_cast<int>(norm.zero_to); i += kNormThreads) {
    norm.out[row * norm.out_stride + i] = 0;
  }
}

}  // namespace lagoon::kernels::cuda
