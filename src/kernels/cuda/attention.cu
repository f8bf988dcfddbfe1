// Attention over cached keys and values. A tile of 16 queries (rows of a sequence and the heads
// that share a key head) stands on the 16-row side of mma.m16n8k16, keys on the other; then
// probabilities, each the sum of three BF16 numbers (all 24 bits of it), meet the values. Online
// softmax in FP32 (Dao, "FlashAttention-2", 2023; split over keys as in "Flash-Decoding").
//
// A block of eight warps takes one chunk of keys (plan.h): warp w the blocks of 16 keys w, w + 8
// ... of it; their results, then those of the chunks, are combined in order. Keys that a query does
// not see count as exact zeros, so its bits depend on its own position alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kAttendWarps = 8;
constexpr float kLog2E = 1.4426950408889634f;

// Which queries a tile has.
struct Tile {
  Group group;
  int first = 0;    // query of the group: row * heads of a key head + head
  int queries = 0;  // of the group; 0: no such tile
};

// Where there may be fewer tiles than blocks, an empty group follows the last one.
__device__ Tile find_tile(const Attention& a, int per_key_head) {
  int tile = blockIdx.z;
  int g = 0;
  for (;; ++g) {
    const int tiles = (a.groups[g].rows * per_key_head + kQueryTile - 1) / kQueryTile;
    if (tile < tiles) break;
    if (tiles == 0) return {};
    tile -= tiles;
  }
  return {a.groups[g], tile * kQueryTile, a.groups[g].rows * per_key_head};
}

// kCount dimensions of a query, key or value that a lane needs, as they lie in memory.
template <int kCount, bool kFP8>
struct Piece {
  static constexpr int kBytes = kFP8 ? kCount : kCount * 2;
  uint32_t words[kBytes < 4 ? 1 : kBytes / 4];

  // `valid` false: zeros. `from` is aligned to the piece.
  __device__ void load(const uint8_t* from, bool valid) {
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        const uint4 v =
            valid ? *reinterpret_cast<const uint4*>(from + i * 16) : make_uint4(0, 0, 0, 0);
        words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
      }
    } else if constexpr (kBytes >= 4) {
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) {
        words[i] = valid ? *reinterpret_cast<const uint32_t*>(from + i * 4) : 0;
      }
    } else {  // two codes
      words[0] = valid ? *reinterpret_cast<const uint16_t*>(from) : 0;
    }
  }

  // Dimensions 2 i and 2 i + 1 in BF16.
  __device__ uint32_t pair(int i) const {
    if constexpr (!kFP8) return words[i];
    // The codes in the upper bytes of the halves.
    const uint32_t codes = __byte_perm(words[i / 2], 0, i % 2 == 0 ? 0x1404 : 0x3424);
    return multiply_pairs((codes & 0x80008000u) | (codes >> 4 & 0x07F007F0u), kFP8Factor);
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

// A block of 16 keys and values as a lane needs them.
template <int D, bool kFP8>
struct KeyBlock {
  Piece<D / 4, kFP8> k[2];
  Piece<D / 8, kFP8> v[4];  // of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9

  // Keys beyond [lowest, highest] are zeros.
  __device__ void load(const CacheView& cache, int64_t entry, int first_key, int lowest,
                       int highest) {
    constexpr int kElement = kFP8 ? 1 : 2;
    const uint8_t* keys = cache.keys + entry * D * kElement;
    const uint8_t* values = cache.values + entry * D * kElement;
    const int lane = threadIdx.x % kLanes;
    const int g = lane / 4;
    const int t = lane % 4;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const int key = tile * 8 + g;
      const bool valid = first_key + key >= lowest && first_key + key <= highest;
      k[tile].load(keys + (key * D + t * (D / 4)) * kElement, valid);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * t + i % 2 + i / 2 * 8;
      const bool valid = first_key + key >= lowest && first_key + key <= highest;
      v[i].load(values + (key * D + g * (D / 8)) * kElement, valid);
    }
  }
};

// One block of 16 keys.
template <int D, bool kFP8>
__device__ void attend_block(const KeyBlock<D, kFP8>& block, int first_key,
                             const int (&positions)[2], int window, float scale,
                             const Piece<D / 4, false> (&q)[2], Running<D>& run) {
  const int t = threadIdx.x % 4;
  float scores[2][4] = {};
  // Products that do not wait for each other in turn.
#pragma unroll
  for (int j = 0; j < D / 16; ++j) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      mma(scores[tile], q[0].pair(2 * j), q[1].pair(2 * j), q[0].pair(2 * j + 1),
          q[1].pair(2 * j + 1), block.k[tile].pair(2 * j), block.k[tile].pair(2 * j + 1));
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
  for (int i = 0; i < D / 16; ++i) {
    const uint32_t v[4] = {block.v[0].pair(i), block.v[1].pair(i), block.v[2].pair(i),
                           block.v[3].pair(i)};
    const uint32_t b[2][2] = {{__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410)},
                              {__byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632)}};
#pragma unroll
    for (int part = 0; part < 3; ++part) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        mma(run.out[2 * i + odd], parts[part][0][0], parts[part][0][1], parts[part][1][0],
            parts[part][1][1], b[odd][0], b[odd][1]);
      }
    }
  }
}

// Where a dimension lies in a partial result.
__device__ int place_of_dim(int dim, int dims) {
  return dim % (dims / 8) * 8 + dim / (dims / 8);
}

// Adds the warps' results in order and writes the partial result of each query.
template <int D>
__device__ void combine_warps(const Attention& a, const Tile& tile, int per_key_head, int kv_head,
                              int chunk, const Running<D>& run) {
  // The dimensions that a lane has are written in an order that spreads over the banks; half of
  // them at a time, which is 34 KiB.
  constexpr int kHalf = D / 2;
  __shared__ float outs[kAttendWarps][kQueryTile][kHalf + 4];
  __shared__ float largest[kAttendWarps][kQueryTile];
  __shared__ float sums[kAttendWarps][kQueryTile];
  __shared__ float factors[kAttendWarps][kQueryTile];
  __shared__ float tops[kQueryTile];
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = run.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (t == 0) {
      largest[warp][lane / 4 + half * 8] = run.largest[half];
      sums[warp][lane / 4 + half * 8] = sum;
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
  // Column c of product n is dimension c * D / 8 + n, and lies at place_of_dim() of it.
  for (int part = 0; part < 2; ++part) {
    __syncthreads();
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      if (n / (D / 16) != part) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = &outs[warp][lane / 4 + half * 8][n % (D / 16) * 8 + 2 * t];
        *reinterpret_cast<float2*>(to) =
            make_float2(run.out[n][half * 2], run.out[n][half * 2 + 1]);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kQueryTile * kHalf; i += kAttendWarps * kLanes) {
      const int in_tile = i / kHalf;
      const int column = i % kHalf;
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
        out = fmaf(outs[w][in_tile][column], factors[w][in_tile], out);
      }
      const int64_t row = tile.group.first_row + row_of_group;
      const int64_t head = kv_head * per_key_head + query % per_key_head;
      float* to = a.partial +
                  (((row - a.first_row) * a.heads + head) * a.most_chunks + own_chunk) * (D + 2);
      to[part * kHalf + column] = out;
      if (column == 0 && part == 0) {
        to[D] = tops[in_tile];
        to[D + 1] = sum;
      }
    }
  }
}

template <int D, bool kFP8>
__global__ void __launch_bounds__(kAttendWarps* kLanes) attend_kernel(Attention a, float scale) {
  const int per_key_head = a.heads / a.cache.kv_heads;
  const int kv_head = blockIdx.y;
  let_others_start();
  wait_for_others();
  const Tile tile = find_tile(a, per_key_head);
  if (tile.queries == 0) return;
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
  const int end = min(chunk_begin(cache.window, chunk + 1), highest + 1);
  int key = chunk_begin(cache.window, chunk) + warp * kKeyBlock;
  if (key + kKeyBlock <= lowest) key += (lowest - key) / kStep * kStep;
  if (key + kKeyBlock <= lowest) key += kStep;
  const auto page_of = [&](int at) {
    if (pages == nullptr) return tile.group.sequence;
    return at < end ? pages[at / cache.block_tokens] : 0;
  };
  const auto load = [&](int at, int64_t page, KeyBlock<D, kFP8>& block) {
    block.load(cache,
               (page * cache.kv_heads + kv_head) * cache.block_tokens + at % cache.block_tokens, at,
               lowest, highest);
  };
  // The next block is on its way while one is worked on, and the page of the one behind it is
  // known.
  KeyBlock<D, kFP8> block;
  if (key < end) load(key, page_of(key), block);
  int32_t page = page_of(key + kStep);
  for (; key < end; key += kStep) {
    KeyBlock<D, kFP8> following;
    if (key + kStep < end) load(key + kStep, page, following);
    page = page_of(key + 2 * kStep);
    attend_block<D, kFP8>(block, key, positions, cache.window, scale, q, run);
    block = following;
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
  let_others_start();
  wait_for_others();
  const int64_t row = a.first_row + blockIdx.y;
  const int chunks = chunks_seen(a.cache.window, a.rows.positions[row]);
  const float* from =
      a.partial + ((row - a.first_row) * a.heads + head) * a.most_chunks * (dims + 2);
  const int place = place_of_dim(dim, dims);
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
    out = fmaf(chunk[place], factor, out);
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
