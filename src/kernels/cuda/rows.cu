// What is done to rows between products: norms, rotations, keys and values into the caches, the
// choice of experts and the sum over them. Sums go in an order that depends on sizes alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kNormThreads = 256;
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

__global__ void norm_kernel(Norm norm) {
  const int64_t row = blockIdx.x;
  const float* x = norm.x + (norm.ids == nullptr ? row : norm.ids[row]) * norm.x_stride;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < norm.n; i += kNormThreads) squares = fmaf(x[i], x[i], squares);
  const float mean = block_sum(squares) / static_cast<float>(norm.n);
  const float scale = 1.0f / sqrtf(mean + norm.epsilon);
  for (int64_t i = threadIdx.x; i < norm.n; i += kNormThreads) {
    const uint32_t bits = to_bits(x[i] * scale * norm.weight[i]);
    if (norm.out != nullptr) norm.out[row * norm.out_stride + i] = static_cast<Bits16>(bits);
    if (norm.out_float != nullptr) norm.out_float[row * norm.n + i] = from_bits(bits);
  }
  if (norm.out == nullptr) return;
  for (int64_t i = norm.n + threadIdx.x; i < norm.zero_to; i += kNormThreads) {
    norm.out[row * norm.out_stride + i] = 0;
  }
}

__global__ void rotations_kernel(const __grid_constant__ Frequencies frequencies,
                                 const int32_t* positions, float* out) {
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

// ---- Routing

// A block chooses the experts of a row, a thread for each expert: its place is the number of those
// that come before it. A NaN comes last.
__global__ void __launch_bounds__(kMostExperts)
    choose_kernel(const float* logits, const float* bias, int experts, int top_k, float softcap,
                  Routing routing) {
  __shared__ uint64_t ranks[kMostExperts];  // larger comes first: sigmoid + bias, then the index
  __shared__ float scores[kMostExperts];
  __shared__ float chosen[kMostExperts];
  const int expert = threadIdx.x;
  const int64_t row = blockIdx.x;
  uint64_t own = 0;
  if (expert < experts) {
    float logit = logits[row * experts + expert];
    if (softcap > 0) logit = softcap * tanhf(logit / softcap);
    scores[expert] = 1.0f / (1.0f + expf(-logit));
    own = rank_of(key_of(scores[expert] + bias[expert]), expert);
    ranks[expert] = own;
  }
  __syncthreads();
  int place = 0;
  if (expert < experts) {
#pragma unroll 8
    for (int e = 0; e < experts; ++e) place += ranks[e] > own ? 1 : 0;
    if (place < top_k) {
      routing.experts[row * top_k + place] = expert;
      chosen[place] = scores[expert];
    }
  }
  __syncthreads();
  float sum = 0;
  for (int j = 0; j < top_k; ++j) sum += chosen[j];
  for (int j = threadIdx.x; j < top_k; j += blockDim.x) {
    routing.weights[row * top_k + j] = chosen[j] / sum;
  }
}

// Sorts entries by expert: a thread counts and collects the entries of one expert. Counts of
// entries (lower half) and of experts that have any (upper half) are summed up together.
__global__ void __launch_bounds__(kMostExperts)
    sort_kernel(int entries, int experts, const ExpertView* table, Routing routing, int32_t* use) {
  __shared__ uint64_t warps[kMostExperts / kLanes];
  const int expert = threadIdx.x;
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  int count = 0;
  if (expert < experts) {
    for (int e = 0; e < entries; ++e) count += routing.experts[e] == expert ? 1 : 0;
  }
  uint64_t up_to = static_cast<uint64_t>(count) | static_cast<uint64_t>(count > 0 ? 1 : 0) << 32;
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint64_t more = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += more;
  }
  if (lane == kLanes - 1) warps[warp] = up_to;
  __syncthreads();
  for (int w = 0; w < warp; ++w) up_to += warps[w];
  const int chosen = static_cast<int>(up_to >> 32);
  if (count > 0) {
    int at = static_cast<int>(up_to & 0xffffffffu) - count;
    routing.slots[2 * (chosen - 1)] = expert;
    routing.slots[2 * (chosen - 1) + 1] = at;
    routing.views[chosen - 1] = table[expert];
    for (int e = 0; e < entries; ++e) {
      if (routing.experts[e] == expert) routing.order[at++] = e;
    }
  }
  if (expert == static_cast<int>(blockDim.x) - 1) {  // all are counted here
    routing.slots[2 * chosen] = -1;
    routing.slots[2 * chosen + 1] = entries;
    *routing.count = chosen;
    use[0] += 1;
    use[1] += chosen;
  }
}

__global__ void add_routed_kernel(const float* mlp, const float* y, Routing routing, int top_k,
                                  float scale, int64_t hidden, float* residual, float* tap) {
  const int64_t row = blockIdx.y;
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= hidden) return;
  float sum = 0;
  for (int j = 0; j < top_k; ++j) {
    const int64_t entry = row * top_k + j;
    sum = fmaf(routing.weights[entry], y[entry * hidden + i], sum);
  }
  const int64_t at = row * hidden + i;
  const float value = residual[at] + fmaf(scale, sum, mlp[at]);
  residual[at] = value;
  if (tap != nullptr) tap[at] = value;
}

}  // namespace

void norm_rows(Stream stream, const Norm& norm, int64_t rows) {
  norm_kernel<<<static_cast<unsigned>(rows), kNormThreads, 0, stream>>>(norm);
}

void rotations(Stream stream, const Frequencies& frequencies, const int32_t* positions,
               int64_t rows, float* out) {
  rotations_kernel<<<static_cast<unsigned>(rows), kMostPairs, 0, stream>>>(frequencies, positions,
                                                                           out);
}

void rotate_and_store(Stream stream, const Store& store) {
  const int heads = store.heads + 2 * store.cache.kv_heads;
  const dim3 grid(static_cast<unsigned>(store.rows.rows),
                  static_cast<unsigned>(ceil_divide(heads, kStoreWarps)));
  store_kernel<<<grid, kStoreWarps * kLanes, 0, stream>>>(store);
}

void route(Stream stream, const float* logits, const float* bias, const ExpertView* table,
           int64_t rows, int experts, int top_k, float softcap, const Routing& routing,
           int32_t* use) {
  const auto threads = static_cast<unsigned>(ceil_divide(experts, kLanes) * kLanes);
  choose_kernel<<<static_cast<unsigned>(rows), threads, 0, stream>>>(logits, bias, experts, top_k,
                                                                     softcap, routing);
  sort_kernel<<<1, threads, 0, stream>>>(static_cast<int>(rows * top_k), experts, table, routing,
                                         use);
}

void add_routed(Stream stream, const float* mlp, const float* y, const Routing& routing, int top_k,
                float scale, int64_t rows, int64_t hidden, float* residual, float* tap) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(hidden, 256)), static_cast<unsigned>(rows));
  add_routed_kernel<<<grid, 256, 0, stream>>>(mlp, y, routing, top_k, scale, hidden, residual, tap);
}

}  // namespace lagoon::kernels::cuda
