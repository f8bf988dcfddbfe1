// What is done to rows between products: norms, rotations, keys and values into the caches. Sums go
// in an order that depends on sizes alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kStoreWarps = 4;
constexpr int kMostDim = 256;  // of a head

__global__ void __launch_bounds__(kNormThreads) norm_kernel(Norm norm) {
  const int64_t row = blockIdx.x;
  let_others_start();
  const NormWeights weights(norm);
  // Once for nothing, before the others are done: what is cold is code. Nothing is read then that
  // they write.
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool real = turn == 1;
    if (real) wait_for_others();
    const float* x =
        real ? norm.x + (norm.ids == nullptr ? row : norm.ids[row]) * norm.x_stride : norm.weight;
    NormRow kept;
#pragma unroll
    for (int k = 0; k < NormRow::kKept; ++k) {
      const int64_t i = threadIdx.x + k * kNormThreads;
      kept.values[k] = i < norm.n ? x[i] : 0;
    }
    norm_row(norm, x, row, kept, weights, real);
  }
}

__global__ void rotations_kernel(const __grid_constant__ Frequencies frequencies,
                                 const int32_t* positions, float* out) {
  let_others_start();
  wait_for_others();
  const int pair = threadIdx.x;
  if (pair >= frequencies.pairs) return;
  const float angle = static_cast<float>(positions[blockIdx.x]) * frequencies.values[pair];
  float* at = out + (int64_t{blockIdx.x} * frequencies.pairs + pair) * 2;
  at[0] = cosf(angle) * frequencies.factor;
  at[1] = sinf(angle) * frequencies.factor;
}

// The place of the key or value of a row's position in a cache, in elements.
__device__ int64_t entry_of(const CacheView& cache, const RowsView& rows, int64_t row,
                            int kv_head) {
  // Before wait_for_others(), as in attention.cu.
  const int32_t position = __ldcg(rows.positions + row);
  const int32_t sequence = __ldcg(rows.sequences + row);
  const int64_t block = cache.window > 0
                            ? sequence
                            : __ldcg(rows.pages + __ldcg(rows.table_offsets + sequence) +
                                     position / cache.block_tokens);
  return ((block * cache.kv_heads + kv_head) * cache.block_tokens + position % cache.block_tokens) *
         cache.head_dim;
}

// As it stands in a cache.
__device__ uint32_t encode(bool fp8, uint32_t bits, float scale) {
  return fp8 ? to_e4m3(__fdiv_rn(from_bits(bits), scale)) : bits;
}
__device__ void put(uint8_t* cache, bool fp8, int64_t at, uint32_t code) {
  if (fp8) {
    cache[at] = static_cast<uint8_t>(code);
  } else {
    reinterpret_cast<Bits16*>(cache)[at] = static_cast<Bits16>(code);
  }
}

// What a lane has of a head: elements lane + i * kLanes, all on their way together.
struct HeadPart {
  static constexpr int kMost = kMostDim / kLanes;
  float values[kMost];
  __device__ HeadPart(const float* x, int dim) {
    const auto lane = static_cast<int>(threadIdx.x % kLanes);
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      values[i] = lane + i * kLanes < dim ? x[lane + i * kLanes] : 0;
    }
  }
};

// RMSNorm and rotation of a head by one warp; `head` is in shared memory.
__device__ void norm_and_rotate(const HeadPart& x, const HeadPart& weight, int dim, float epsilon,
                                const float2* rotations, int pairs, float* head) {
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  constexpr int kMostPairsOfLane = HeadPart::kMost / 2;
  float2 turns[kMostPairsOfLane];
#pragma unroll
  for (int i = 0; i < kMostPairsOfLane; ++i) {
    turns[i] = lane + i * kLanes < pairs ? rotations[lane + i * kLanes] : float2();
  }
  float squares = 0;
#pragma unroll
  for (const float value : x.values) squares = fmaf(value, value, squares);
  const float mean = warp_sum(squares) / static_cast<float>(dim);
  const float scale = 1.0f / sqrtf(mean + epsilon);
#pragma unroll
  for (int i = 0; i < HeadPart::kMost; ++i) {
    if (lane + i * kLanes < dim) head[lane + i * kLanes] = x.values[i] * scale * weight.values[i];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kMostPairsOfLane; ++i) {
    const int pair = lane + i * kLanes;
    if (pair >= pairs) continue;
    const float a = head[pair];
    const float b = head[pair + pairs];
    head[pair] = __fsub_rn(__fmul_rn(a, turns[i].x), __fmul_rn(b, turns[i].y));
    head[pair + pairs] = __fadd_rn(__fmul_rn(b, turns[i].x), __fmul_rn(a, turns[i].y));
  }
  __syncwarp();
}

// A warp takes a head of q, k or v of a row.
__global__ void __launch_bounds__(kStoreWarps* kLanes) store_kernel(Store s) {
  __shared__ float heads[kStoreWarps][kMostDim];
  const int lane = threadIdx.x % kLanes;
  float* head = heads[threadIdx.x / kLanes];
  const int index = blockIdx.y * kStoreWarps + static_cast<int>(threadIdx.x / kLanes);
  const int64_t row = blockIdx.x;
  const int dim = s.cache.head_dim;
  const int kv_heads = s.cache.kv_heads;
  const bool is_q = index < s.heads;
  const bool is_k = !is_q && index < s.heads + kv_heads;
  let_others_start();
  if (index >= s.heads + 2 * kv_heads) return;
  const HeadPart weight(is_q ? s.q_norm : s.k_norm, is_q || is_k ? dim : 0);
  const int kv_head = is_q ? 0 : (index - s.heads) % kv_heads;
  const int64_t key_or_value = (row * kv_heads + kv_head) * dim;
  const float* from = is_q   ? s.q + (row * s.heads + index) * dim
                      : is_k ? s.k + key_or_value
                             : s.v + key_or_value;
  const int64_t entry = is_q ? 0 : entry_of(s.cache, s.rows, row, kv_head);
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool real = turn == 1;  // else once for nothing, so that the code is near
    if (real) wait_for_others();
    const HeadPart x(real ? from : s.k_norm, dim);
    if (is_q || is_k) {
      const float* turns = real ? s.rotations + row * s.pairs * 2 : s.k_norm;
      const auto* rotations = reinterpret_cast<const float2*>(turns);
      norm_and_rotate(x, weight, dim, s.epsilon, rotations, s.pairs, head);
    } else {
#pragma unroll
      for (int i = 0; i < HeadPart::kMost; ++i) {
        if (lane + i * kLanes < dim) head[lane + i * kLanes] = x.values[i];
      }
    }
#pragma unroll 2
    for (int i = lane; i < dim; i += kLanes) {
      const uint32_t bits = to_bits(head[i]);
      if (is_q) {
        if (real) s.q_out[(row * s.heads + index) * dim + i] = static_cast<Bits16>(bits);
        continue;
      }
      const uint32_t code = encode(s.cache.fp8, bits, is_k ? s.cache.k_scale : s.cache.v_scale);
      if (real) put(is_k ? s.cache.keys : s.cache.values, s.cache.fp8, entry + i, code);
    }
  }
}

}  // namespace

void norm_rows(Stream stream, const Norm& norm, int64_t rows) {
  start(stream, norm_kernel, dim3(static_cast<unsigned>(rows)), kNormThreads, 0, norm);
}

void rotations(Stream stream, const Frequencies& frequencies, const int32_t* positions,
               int64_t rows, float* out) {
  start(stream, rotations_kernel, dim3(static_cast<unsigned>(rows)), kMostPairs, 0, frequencies,
        positions, out);
}

void rotate_and_store(Stream stream, const Store& store) {
  const int heads = store.heads + 2 * store.cache.kv_heads;
  const dim3 grid(static_cast<unsigned>(store.rows.rows),
                  static_cast<unsigned>(ceil_divide(heads, kStoreWarps)));
  start(stream, store_kernel, grid, kStoreWarps * kLanes, 0, store);
}

}  // namespace lagoon::kernels::cuda
