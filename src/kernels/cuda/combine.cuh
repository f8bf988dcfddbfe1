// How the partial results of chunks become the gated output of a query: largest base, then sums
// and dimensions, each in the order of chunks. The same bits whoever does it.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {

// The partial results of a query, a chunk after the other. They were written by other blocks, so
// they are read past the first-level cache.
struct Partial {
  float* outs;    // [chunks, head_dim]
  float2* stats;  // [chunks]: base, sum

  __device__ Partial(const Attention& a, int64_t row, int head) {
    const int64_t queries = a.row_count * a.heads;
    const int64_t first = ((row - a.first_row) * a.heads + head) * a.most_chunks;
    outs = a.partial + first * a.cache.head_dim;
    stats =
        reinterpret_cast<float2*>(a.partial + queries * a.most_chunks * a.cache.head_dim) + first;
  }
};

__device__ inline float base_or_zero(float top) {
  return top == -INFINITY ? 0 : top;
}

__device__ inline float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// The gated output of a head of a row, two neighbouring dimensions at a time.
class Finish {
 public:
  __device__ Finish(const Attention& a, float value_scale, int64_t row, int head)
      : a_(a),
        value_scale_(value_scale),
        row_(row),
        head_(head),
        gate_(a.gate_per_head ? a.gate[row * a.heads + head] : 0) {}

  __device__ void put(int dim, float2 out, float sum) const {
    const int dims = a_.cache.head_dim;
    const int64_t size = int64_t{a_.heads} * dims;
    Bits16* to = a_.out + row_ * padded(size);
    *reinterpret_cast<uint32_t*>(to + int64_t{head_} * dims + dim) =
        gated(out.x, sum, dim) | gated(out.y, sum, dim + 1) << 16;
    if (head_ != a_.heads - 1) return;
    for (int64_t i = size + dim; i < padded(size); i += dims) to[i] = to[i + 1] = 0;
  }

 private:
  __device__ uint32_t gated(float out, float sum, int dim) const {
    const float gate =
        a_.gate_per_head ? gate_ : a_.gate[(row_ * a_.heads + head_) * a_.cache.head_dim + dim];
    return to_bits(out / sum * value_scale_ * softplus(gate));
  }

  const Attention& a_;
  float value_scale_;
  int64_t row_;
  int head_;
  float gate_;
};

// A query's chunks, up to kFewChunks, by sixteen lanes, so that a block has sixteen queries at a
// time; a lane has eight dimensions.
inline constexpr int kFewChunks = 32;
inline constexpr int kCombineLanes = 16;
template <int D>
__device__ void combine_few(const Attention& a, int64_t row, int head, int chunks,
                            float value_scale) {
  constexpr int kBatch = 8;
  const auto lane = static_cast<int>(threadIdx.x % kCombineLanes);
  const unsigned group = 0xffffu << (threadIdx.x & 16);
  const bool has_dims = lane < D / 8;
  const Finish finish(a, value_scale, row, head);
  const Partial partial(a, row, head);
  const auto stat_of = [&](int chunk) {
    return chunk < chunks ? __ldcg(partial.stats + chunk) : make_float2(-INFINITY, 0);
  };
  float2 stats[2] = {stat_of(lane), stat_of(lane + kCombineLanes)};
  const auto* outs = reinterpret_cast<const float4*>(partial.outs) + lane * 2;
  float4 values[kBatch][2];
  const auto load = [&](int first) {
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[c][i] = has_dims && first + c < chunks ? __ldcg(outs + (first + c) * (D / 4) + i)
                                                      : make_float4(0, 0, 0, 0);
      }
    }
  };
  load(0);
  float top = fmaxf(stats[0].x, stats[1].x);
#pragma unroll
  for (int distance = kCombineLanes / 2; distance > 0; distance /= 2) {
    top = fmaxf(top, __shfl_xor_sync(group, top, distance));
  }
#pragma unroll
  for (float2& stat : stats) stat.x = exp2f(stat.x - base_or_zero(top));
  float sum = 0;
  float4 out[2] = {};
#pragma unroll 1
  for (int first = 0; first < chunks; first += kBatch) {
    if (first > 0) load(first);
    const float2 own = first < kCombineLanes ? stats[0] : stats[1];
#pragma unroll
    for (int c = 0; c < kBatch; ++c) {
      const int from = first % kCombineLanes + c;
      const float factor = __shfl_sync(group, own.x, from, kCombineLanes);
      const float chunk_sum = __shfl_sync(group, own.y, from, kCombineLanes);
      if (first + c >= chunks) continue;
      sum = fmaf(chunk_sum, factor, sum);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out[i].x = fmaf(values[c][i].x, factor, out[i].x);
        out[i].y = fmaf(values[c][i].y, factor, out[i].y);
        out[i].z = fmaf(values[c][i].z, factor, out[i].z);
        out[i].w = fmaf(values[c][i].w, factor, out[i].w);
      }
    }
  }
  if (!has_dims) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    finish.put(lane * 8 + i * 4, make_float2(out[i].x, out[i].y), sum);
    finish.put(lane * 8 + i * 4 + 2, make_float2(out[i].z, out[i].w), sum);
  }
}

inline constexpr int kCombineThreads = 256;

// A query's chunks by a block, where there are many: they come to shared memory in batches, the
// next one on its way meanwhile.
template <int D>
__device__ void combine_by_block(const Attention& a, int64_t row, int head, int chunks,
                                 float value_scale) {
  constexpr int kBatch = 64;
  constexpr int kLoads = kBatch * D / 4 / kCombineThreads;  // of a thread and batch
  __shared__ float4 outs[kBatch * D / 4];
  __shared__ float2 factors[kBatch];  // with sums
  __shared__ float tops[kCombineThreads / kLanes];
  const int thread = threadIdx.x;
  const Finish finish(a, value_scale, row, head);
  const Partial partial(a, row, head);
  float4 values[kLoads];
  float2 stat;
  const auto load = [&](int first) {
    const auto* from = reinterpret_cast<const float4*>(partial.outs + int64_t{first} * D);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = i * kCombineThreads + thread;
      if (first + at / (D / 4) < chunks) values[i] = __ldcg(from + at);
    }
    if (thread < kBatch && first + thread < chunks) stat = __ldcg(partial.stats + first + thread);
  };
  load(0);
  float top = -INFINITY;
  for (int c = thread; c < chunks; c += kCombineThreads) {
    top = fmaxf(top, __ldcg(partial.stats + c).x);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
  }
  if (thread % kLanes == 0) tops[thread / kLanes] = top;
  __syncthreads();
  for (const float other : tops) top = fmaxf(top, other);
  float sum = 0;
  float2 out = {};
  for (int first = 0; first < chunks; first += kBatch) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) outs[i * kCombineThreads + thread] = values[i];
    if (thread < kBatch) factors[thread] = make_float2(exp2f(stat.x - base_or_zero(top)), stat.y);
    __syncthreads();
    if (first + kBatch < chunks) load(first + kBatch);
    if (thread < D / 2) {
      const int count = min(kBatch, chunks - first);
#pragma unroll 8
      for (int c = 0; c < count; ++c) {
        const float2 value = reinterpret_cast<const float2*>(outs)[c * (D / 2) + thread];
        sum = fmaf(factors[c].y, factors[c].x, sum);
        out.x = fmaf(value.x, factors[c].x, out.x);
        out.y = fmaf(value.y, factors[c].x, out.y);
      }
    }
    __syncthreads();
  }
  if (thread < D / 2) finish.put(2 * thread, out, sum);
}

}  // namespace lagoon::kernels::cuda
