// What is done to rows between products: norms, rotations, keys and values into the caches. Sums go
// in an order that depends on sizes alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kNormThreads = 512;
constexpr int kStoreWarps = 4;
constexpr int kMostDim = 256;  // of a head

// The sum over a block of kNormThreads, the same in all threads.
__device__ float block_sum(float x) {
  __shared__ float warps[kNormThreads / kLanes];
  x = warp_sum(x);
  if (threadIdx.x % kLanes == 0) warps[threadIdx.x / kLanes] = x;
  __syncthreads();
  float sum = 0;
  for (const float part : warps) sum += part;
  return sum;
}

// Values of a row that a thread keeps in registers, up to rows of 4,096. What a thread adds up, and
// in which order, is the same for longer ones.
constexpr int kKept = 8;

__global__ void norm_kernel(Norm norm) {
  const int64_t row = blockIdx.x;
  const int64_t n = norm.n;
  let_others_start();
  float weights[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kNormThreads;
    weights[k] = i < n ? norm.weight[i] : 0;
  }
  wait_for_others();
  const float* x = norm.x + (norm.ids == nullptr ? row : norm.ids[row]) * norm.x_stride;
  float values[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kNormThreads;
    values[k] = i < n ? x[i] : 0;
  }
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    if (threadIdx.x + k * kNormThreads < n) squares = fmaf(values[k], values[k], squares);
  }
  constexpr int64_t kFirstRest = int64_t{kKept} * kNormThreads;
  for (int64_t i = kFirstRest + threadIdx.x; i < n; i += kNormThreads) {
    squares = fmaf(x[i], x[i], squares);
  }
  const float mean = block_sum(squares) / static_cast<float>(n);
  const float scale = 1.0f / sqrtf(mean + norm.epsilon);
  const auto put = [&](int64_t i, float value, float weight) {
    const uint32_t bits = to_bits(value * scale * weight);
    if (norm.out != nullptr) norm.out[row * norm.out_stride + i] = static_cast<Bits16>(bits);
    if (norm.out_float != nullptr) norm.out_float[row * n + i] = from_bits(bits);
  };
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    const int64_t i = threadIdx.x + k * kNormThreads;
    if (i < n) put(i, values[k], weights[k]);
  }
  for (int64_t i = kFirstRest + threadIdx.x; i < n; i += kNormThreads) {
    put(i, x[i], norm.weight[i]);
  }
  if (norm.out == nullptr) return;
  for (int64_t i = n + threadIdx.x; i < norm.zero_to; i += kNormThreads) {
    norm.out[row * norm.out_stride + i] = 0;
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
  const int32_t position = rows.positions[row];
  const int32_t sequence = rows.sequences[row];
  const int64_t block =
      cache.window > 0 ? sequence
                       : rows.pages[rows.table_offsets[sequence] + position / cache.block_tokens];
  return ((block * cache.kv_heads + kv_head) * cache.block_tokens + position % cache.block_tokens) *
         cache.head_dim;
}

__device__ void put(uint8_t* cache, bool fp8, int64_t at, float x, float scale) {
  const uint32_t bits = to_bits(x);
  if (fp8) {
    cache[at] = static_cast<uint8_t>(to_e4m3(__fdiv_rn(from_bits(bits), scale)));
  } else {
    reinterpret_cast<Bits16*>(cache)[at] = static_cast<Bits16>(bits);
  }
}

// RMSNorm and rotation of a head by one warp; `head` is in shared memory.
__device__ void norm_and_rotate(const float* x, const float* weight, int dim, float epsilon,
                                const float* rotations, int pairs, float* head) {
  const int lane = threadIdx.x % kLanes;
  float squares = 0;
  for (int i = lane; i < dim; i += kLanes) squares = fmaf(x[i], x[i], squares);
  const float mean = warp_sum(squares) / static_cast<float>(dim);
  const float scale = 1.0f / sqrtf(mean + epsilon);
  for (int i = lane; i < dim; i += kLanes) head[i] = x[i] * scale * weight[i];
  __syncwarp();
  for (int i = lane; i < pairs; i += kLanes) {
    const float a = head[i];
    const float b = head[i + pairs];
    const float cosine = rotations[2 * i];
    const float sine = rotations[2 * i + 1];
    head[i] = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
    head[i + pairs] = __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
  }
  __syncwarp();
}

// A warp takes a head of q, k or v of a row.
__global__ void store_kernel(Store s) {
  __shared__ float heads[kStoreWarps][kMostDim];
  const int lane = threadIdx.x % kLanes;
  float* head = heads[threadIdx.x / kLanes];
  let_others_start();
  wait_for_others();
  const int index = blockIdx.y * kStoreWarps + static_cast<int>(threadIdx.x / kLanes);
  const int64_t row = blockIdx.x;
  const int dim = s.cache.head_dim;
  const int kv_heads = s.cache.kv_heads;
  if (index >= s.heads + 2 * kv_heads) return;
  const float* rotations = s.rotations + row * s.pairs * 2;
  if (index < s.heads) {
    const int64_t at = (row * s.heads + index) * dim;
    norm_and_rotate(s.q + at, s.q_norm, dim, s.epsilon, rotations, s.pairs, head);
    for (int i = lane; i < dim; i += kLanes)
      s.q_out[at + i] = static_cast<Bits16>(to_bits(head[i]));
    return;
  }
  const int kv_head = (index - s.heads) % kv_heads;
  const int64_t entry = entry_of(s.cache, s.rows, row, kv_head);
  const int64_t from = (row * kv_heads + kv_head) * dim;
  if (index < s.heads + kv_heads) {
    norm_and_rotate(s.k + from, s.k_norm, dim, s.epsilon, rotations, s.pairs, head);
    for (int i = lane; i < dim; i += kLanes) {
      put(s.cache.keys, s.cache.fp8, entry + i, head[i], s.cache.k_scale);
    }
  } else {
    for (int i = lane; i < dim; i += kLanes) {
      put(s.cache.values, s.cache.fp8, entry + i, s.v[from + i], s.cache.v_scale);
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
