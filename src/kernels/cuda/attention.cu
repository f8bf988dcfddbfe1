// Attention over cached keys and values. A tile of 16 queries (rows of a sequence and the heads
// that share a key head) stands on the 16-row side of mma.m16n8k16, keys on the other; then
// probabilities, each the sum of three BF16 numbers (all 24 bits of it), meet the values. Online
// softmax in FP32 (Dao, "FlashAttention-2", 2023; split over keys as in "Flash-Decoding").
//
// A block of four warps takes one chunk of keys (plan.h): warp w the blocks of 16 keys w, w + 4 ...
// of it; their results, then those of the chunks, are combined in order. Keys that a query does not
// see count as exact zeros, so its bits depend on its own position alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kAttendWarps = 4;
constexpr float kLog2E = 1.4426950408889634f;

// Which queries a tile has.
struct Tile {
  Group group;
  int first;    // query of the group: row * heads of a key head + head
  int queries;  // of the group
};

__device__ Tile find_tile(const Attention& a, int per_key_head) {
  int tile = blockIdx.z;
  int g = 0;
  for (;; ++g) {
    const int tiles = (a.groups[g].rows * per_key_head + kQueryTile - 1) / kQueryTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  return {a.groups[g], tile * kQueryTile, a.groups[g].rows * per_key_head};
}

// Dimensions of a key or value that a lane needs: kCount of them as BF16 pairs.
template <int kCount, bool kFP8>
struct Piece {
  uint32_t pairs[kCount / 2];

  // `valid` false: zeros. `from` is aligned to the piece.
  __device__ void load(const uint8_t* from, bool valid) {
    constexpr int kBytes = kFP8 ? kCount : kCount * 2;
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        const uint4 v =
            valid ? *reinterpret_cast<const uint4*>(from + i * 16) : make_uint4(0, 0, 0, 0);
        take(i * 4, v.x), take(i * 4 + 1, v.y), take(i * 4 + 2, v.z), take(i * 4 + 3, v.w);
      }
    } else if constexpr (kBytes >= 4) {
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        take(i, valid ? *reinterpret_cast<const uint32_t*>(from + i * 4) : 0);
      }
    } else {  // two codes
      const uint32_t v = valid ? *reinterpret_cast<const uint16_t*>(from) : 0;
      pairs[0] = decode(v & 0xff, v >> 8);
    }
  }

 private:
  __device__ static uint32_t decode(uint32_t low, uint32_t high) {
    const uint32_t spread = low << 8 | high << 24;
    return multiply_pairs((spread & 0x80008000u) | (spread >> 4 & 0x07F007F0u), kFP8Factor);
  }
  __device__ void take(int word, uint32_t v) {
    if constexpr (kFP8) {
      const uint32_t first = __byte_perm(v, 0, 0x1404);   // codes 0, 1 in the upper bytes
      const uint32_t second = __byte_perm(v, 0, 0x3424);  // codes 2, 3
      pairs[2 * word] =
          multiply_pairs((first & 0x80008000u) | (first >> 4 & 0x07F007F0u), kFP8Factor);
      pairs[2 * word + 1] =
          multiply_pairs((second & 0x80008000u) | (second >> 4 & 0x07F007F0u), kFP8Factor);
    } else {
      pairs[word] = v;
    }
  }
};

// The running softmax of a warp: queries g and g + 8 of the tile.
template <int D>
struct Running {
  float largest[2] = {-INFINITY, -INFINITY};  // of the scores, in powers of two
  float sum[2] = {0, 0};                      // the lane's part
  float out[D / 8][4] = {};
};

template <int D, bool kFP8>
__device__ void load_queries(const Attention& a, const Tile& tile, int per_key_head, int kv_head,
                             Piece<D / 4, false> (&q)[2]) {
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first + lane / 4 + half * 8;
    const bool valid = query < tile.queries;
    const int64_t row = tile.group.first_row + query / per_key_head;
    const int64_t head = kv_head * per_key_head + query % per_key_head;
    const Bits16* from = a.q + (row * a.heads + head) * D + lane % 4 * (D / 4);
    q[half].load(reinterpret_cast<const uint8_t*>(from), valid);
  }
}

// One block of 16 keys.
template <int D, bool kFP8>
__device__ void attend_block(const uint8_t* keys, const uint8_t* values, int first_key, int lowest,
                             int highest, const int (&positions)[2], int window, float scale,
                             const Piece<D / 4, false> (&q)[2], Running<D>& run) {
  constexpr int kElement = kFP8 ? 1 : 2;
  const int lane = threadIdx.x % kLanes;
  const int g = lane / 4;
  const int t = lane % 4;
  // All loads before anything waits for one.
  Piece<D / 4, kFP8> k[2];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const int key = tile * 8 + g;
    const bool valid = first_key + key >= lowest && first_key + key <= highest;
    k[tile].load(keys + (key * D + t * (D / 4)) * kElement, valid);
  }
  // Values of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
  Piece<D / 8, kFP8> v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = 2 * t + i % 2 + i / 2 * 8;
    const bool valid = first_key + key >= lowest && first_key + key <= highest;
    v[i].load(values + (key * D + g * (D / 8)) * kElement, valid);
  }
  float scores[2][4] = {};
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      mma(scores[tile], q[0].pairs[2 * j], q[1].pairs[2 * j], q[0].pairs[2 * j + 1],
          q[1].pairs[2 * j + 1], k[tile].pairs[2 * j], k[tile].pairs[2 * j + 1]);
    }
  }
  uint32_t parts[3][2][2];  // of the probabilities: [largest first][tile][half]
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = run.largest[half];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& score = scores[i / 2][half * 2 + i % 2];
      const int key = first_key + i / 2 * 8 + 2 * t + i % 2;
      const bool seen = key <= positions[half] && (window == 0 || key > positions[half] - window);
      score = seen ? score * scale : -INFINITY;
      largest = fmaxf(largest, score);
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float base = largest == -INFINITY ? 0 : largest;
    const float shrink = exp2f(run.largest[half] - base);
    float weights[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = exp2f(scores[i / 2][half * 2 + i % 2] - base);
    run.largest[half] = largest;
    run.sum[half] =
        fmaf(run.sum[half], shrink, (weights[0] + weights[1]) + (weights[2] + weights[3]));
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      run.out[n][half * 2] *= shrink;
      run.out[n][half * 2 + 1] *= shrink;
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      float low = weights[tile * 2];
      float high = weights[tile * 2 + 1];
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        const uint32_t pair = to_pair(low, high);
        parts[part][tile][half] = pair;
        low -= from_bits(pair & 0xffff);
        high -= from_bits(pair >> 16);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    const uint32_t which = n % 2 == 0 ? 0x5410 : 0x7632;
    const uint32_t b0 = __byte_perm(v[0].pairs[n / 2], v[1].pairs[n / 2], which);
    const uint32_t b1 = __byte_perm(v[2].pairs[n / 2], v[3].pairs[n / 2], which);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      mma(run.out[n], parts[part][0][0], parts[part][0][1], parts[part][1][0], parts[part][1][1],
          b0, b1);
    }
  }
}

// Adds the warps' results in order and writes the partial result of each query.
template <int D>
__device__ void combine_warps(const Attention& a, const Tile& tile, int per_key_head, int kv_head,
                              int chunk, const Running<D>& run) {
  __shared__ float outs[kAttendWarps][kQueryTile][D];
  __shared__ float largest[kAttendWarps][kQueryTile];
  __shared__ float sums[kAttendWarps][kQueryTile];
  __shared__ float factors[kAttendWarps][kQueryTile];
  __shared__ float tops[kQueryTile];
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = lane / 4 + half * 8;
    float sum = run.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (t == 0) {
      largest[warp][query] = run.largest[half];
      sums[warp][query] = sum;
    }
    // Column c of product n is dimension c * D / 8 + n.
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      outs[warp][query][2 * t * (D / 8) + n] = run.out[n][half * 2];
      outs[warp][query][(2 * t + 1) * (D / 8) + n] = run.out[n][half * 2 + 1];
    }
  }
  __syncthreads();
  if (threadIdx.x < kAttendWarps * kQueryTile) {
    const int w = threadIdx.x / kQueryTile;
    const int query = threadIdx.x % kQueryTile;
    float top = -INFINITY;
    for (int other = 0; other < kAttendWarps; ++other) top = fmaxf(top, largest[other][query]);
    factors[w][query] = exp2f(largest[w][query] - (top == -INFINITY ? 0 : top));
    if (w == 0) tops[query] = top;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kQueryTile * D; i += kAttendWarps * kLanes) {
    const int in_tile = i / D;
    const int dim = i % D;
    const int query = tile.first + in_tile;
    if (query >= tile.queries) break;
    const int row_of_group = query / per_key_head;
    const int position = tile.group.first_position + row_of_group;
    const int own_chunk =
        chunk - chunk_of(a.cache.window, lowest_position(a.cache.window, position));
    if (own_chunk < 0 || chunk > chunk_of(a.cache.window, position)) continue;
    float sum = 0, out = 0;
    for (int w = 0; w < kAttendWarps; ++w) {
      sum = fmaf(sums[w][in_tile], factors[w][in_tile], sum);
      out = fmaf(outs[w][in_tile][dim], factors[w][in_tile], out);
    }
    const int64_t row = tile.group.first_row + row_of_group;
    const int64_t head = kv_head * per_key_head + query % per_key_head;
    float* to =
        a.partial + (((row - a.first_row) * a.heads + head) * a.most_chunks + own_chunk) * (D + 2);
    to[dim] = out;
    if (dim == 0) {
      to[D] = tops[in_tile];
      to[D + 1] = sum;
    }
  }
}

template <int D, bool kFP8>
__global__ void __launch_bounds__(kAttendWarps* kLanes) attend_kernel(Attention a, float scale) {
  constexpr int kElement = kFP8 ? 1 : 2;
  const int per_key_head = a.heads / a.cache.kv_heads;
  const int kv_head = blockIdx.y;
  wait_for_others();
  let_others_start();
  const Tile tile = find_tile(a, per_key_head);
  const int last_query = min(tile.first + kQueryTile, tile.queries) - 1;
  const int highest = tile.group.first_position + last_query / per_key_head;
  const int lowest =
      lowest_position(a.cache.window, tile.group.first_position + tile.first / per_key_head);
  const int chunk = chunk_of(a.cache.window, lowest) + static_cast<int>(blockIdx.x);
  if (chunk > chunk_of(a.cache.window, highest)) return;
  const int warp = threadIdx.x / kLanes;
  int positions[2];
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first + threadIdx.x % kLanes / 4 + half * 8;
    // A query that is not there sees nothing.
    positions[half] = query < tile.queries ? tile.group.first_position + query / per_key_head : -1;
  }
  Piece<D / 4, false> q[2];
  load_queries<D, kFP8>(a, tile, per_key_head, kv_head, q);
  Running<D> run;
  const CacheView& cache = a.cache;
  const int32_t* pages =
      cache.window > 0 ? nullptr : a.rows.pages + a.rows.table_offsets[tile.group.sequence];
  constexpr int kStep = kAttendWarps * kKeyBlock;
  const int begin = chunk_begin(cache.window, chunk) + warp * kKeyBlock;
  const int end = min(chunk_begin(cache.window, chunk + 1), highest + 1);
  const auto block_of = [&](int key) {
    if (pages == nullptr) return tile.group.sequence;
    return key < end ? pages[key / cache.block_tokens] : 0;
  };
  int32_t next = block_of(begin);
  for (int key = begin; key < end; key += kStep) {
    const int64_t block = next;
    next = block_of(key + kStep);
    if (key + kKeyBlock <= lowest) continue;
    const int64_t entry =
        (block * cache.kv_heads + kv_head) * cache.block_tokens + key % cache.block_tokens;
    attend_block<D, kFP8>(cache.keys + entry * D * kElement, cache.values + entry * D * kElement,
                          key, lowest, highest, positions, cache.window, scale, q, run);
  }
  combine_warps<D>(a, tile, per_key_head, kv_head, chunk, run);
}

__device__ float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// Combines the chunks of a head of a row and gates it: a block, a thread for each dimension.
__global__ void combine_kernel(Attention a, float value_scale) {
  const int dims = a.cache.head_dim;
  const int dim = threadIdx.x;
  const int head = blockIdx.x;
  wait_for_others();
  let_others_start();
  const int64_t row = a.first_row + blockIdx.y;
  const int chunks = chunks_seen(a.cache.window, a.rows.positions[row]);
  const float* from =
      a.partial + ((row - a.first_row) * a.heads + head) * a.most_chunks * (dims + 2);
  float top = -INFINITY;
#pragma unroll 8
  for (int c = 0; c < chunks; ++c) top = fmaxf(top, from[int64_t{c} * (dims + 2) + dims]);
  const float base = top == -INFINITY ? 0 : top;
  float sum = 0, out = 0;
#pragma unroll 4
  for (int c = 0; c < chunks; ++c) {
    const float* chunk = from + int64_t{c} * (dims + 2);
    const float factor = exp2f(chunk[dims] - base);
    sum = fmaf(chunk[dims + 1], factor, sum);
    out = fmaf(chunk[dim], factor, out);
  }
  const int64_t size = int64_t{a.heads} * dims;
  const int64_t in_row = int64_t{head} * dims + dim;
  const float gate = a.gate_per_head ? a.gate[row * a.heads + head] : a.gate[row * size + in_row];
  const float value = out / sum * value_scale * softplus(gate);
  a.out[row * padded(size) + in_row] = static_cast<Bits16>(to_bits(value));
  if (head == a.heads - 1) {
    for (int64_t i = size + dim; i < padded(size); i += dims) a.out[row * padded(size) + i] = 0;
  }
}

template <int D>
void attend_dim(Stream stream, const Attention& a) {
  const dim3 grid(static_cast<unsigned>(a.most_tile_chunks),
                  static_cast<unsigned>(a.cache.kv_heads), static_cast<unsigned>(a.query_tiles));
  // Scores in powers of two: exp2 is one instruction.
  const float scale = kLog2E / sqrtf(static_cast<float>(D)) * (a.cache.fp8 ? a.cache.k_scale : 1);
  const auto kernel = a.cache.fp8 ? attend_kernel<D, true> : attend_kernel<D, false>;
  start(stream, kernel, grid, kAttendWarps * kLanes, 0, a, scale);
}

}  // namespace

void attend(Stream stream, const Attention& a) {
  if (a.cache.head_dim == 16) attend_dim<16>(stream, a);
  if (a.cache.head_dim == 64) attend_dim<64>(stream, a);
  if (a.cache.head_dim == 128) attend_dim<128>(stream, a);
  const dim3 grid(static_cast<unsigned>(a.heads), static_cast<unsigned>(a.row_count));
  start(stream, combine_kernel, grid, static_cast<unsigned>(a.cache.head_dim), 0, a,
        a.cache.fp8 ? a.cache.v_scale : 1.0f);
}

}  // namespace lagoon::kernels::cuda
