// What a block of attention_few.cu has to do: a tile of queries and a chunk of keys. All that rows
// and tables say about it is found before other kernels are waited for.
#pragma once

#include <cstdint>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {

// Of a launch. With four rows and more attention.cu was faster; three were not measured.
inline constexpr int64_t kMostFewRows = 2;
static_assert(kMostFewRows <= kLanes);  // a lane for each group
inline constexpr int kFewDim = 128;
inline constexpr int kMostHeadsOfKey = 32;
// Eight warps for each of two sets of queries; where there is one, the others copy.
inline constexpr int kFewThreads = 2 * kAttendWarps * kLanes;
// Blocks of a cluster. Four at least, so that none has more than four queries to combine.
inline constexpr int kLeastCluster = 4;
inline constexpr int kMostCluster = 16;

// The quotient of i < 1,024 by up to 32.
struct SmallDivider {
  int divisor;
  int reciprocal;  // of 2^16, rounded up
  explicit SmallDivider(int by) : divisor(by), reciprocal((65536 + by - 1) / by) {}
  __device__ int quotient(int i) const { return i * reciprocal >> 16; }
};

// What all blocks of a launch need to know beside its rows.
struct FewFactors {
  float score;  // to powers of two
  float value;
  SmallDivider per_key_head;
  SmallDivider cluster;
};

// What lies where in shared memory. Of each warp (of a set): keys and values of two blocks, in the
// same place afterwards quads of sums, set by set; probabilities of each set and block; base and
// sum of each query. Then queries, as products take them. Then results of the cluster's blocks: of
// a query that is combined here, chunk after chunk.
struct FewMemory {
  static constexpr int kBlock = AttendMemory<kFewDim, true>::kBlock;
  static constexpr int kBlocksOfWarp = 2;
  static constexpr int kChunkBlocks = kAttendWarps * kBlocksOfWarp;
  static constexpr int kQuads = kBlock * 2;                  // bytes of a set's
  static constexpr int kParts = kBlocksOfWarp * 2 * kBlock;  // where they begin
  static constexpr int kPartsOfBlock = kLanes * 16;
  static constexpr int kStats = kParts + 2 * kBlocksOfWarp * kPartsOfBlock;
  static constexpr int kOfWarp = kStats + kQueryTile * 8;
  static constexpr int kQueries = kAttendWarps * kOfWarp;
  static constexpr int kResults = kQueries + kQueryTile * kFewDim * 2;
  static constexpr int kResult = kFewDim * 4 + 16;  // dimensions; then base and sum
  static constexpr int kMostResults = 24;
  static constexpr int kBytes = kResults + kMostResults * kResult;
  static constexpr int kAlignment = 128;  // of what a warp has: addresses of quads differ by bits
  static_assert(kOfWarp % kAlignment == 0 && kQuads % kAlignment == 0);
  static_assert(kBytes + 1536 <= 99 * 1024);  // of a block on GPUs of 12.x
  static_assert(kChunkBlocks * kKeyBlock == chunk_begin(0, 1));
  static __device__ int place(int block) {
    return block % kAttendWarps * kOfWarp + block / kAttendWarps * (2 * kBlock);
  }
};

// ---- A tile and a chunk

struct FewTile {
  Group group;
  int first = 0;    // query of the group
  int queries = 0;  // 0: no such tile
  int lowest = 0, highest = 0;
  int chunk = 0;        // of this block
  int chunk_shift = 0;  // positions of a chunk

  // A lane for each group: there are no more than rows, and behind the last one they are empty.
  // Lanes behind those of rows may have a part of the sum, which is no larger than the whole.
  __device__ FewTile(const Attention& a, const FewFactors& factors) {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = threadIdx.x % kLanes;
    const int per_key_head = factors.per_key_head.divisor;
    if (lane < static_cast<int>(a.row_count)) {
      const Group* from = a.groups + lane;
      group = {__ldcg(&from->first_row), __ldcg(&from->rows), __ldcg(&from->sequence),
               __ldcg(&from->first_position)};
    }
    const int tiles = (group.rows * per_key_head + kQueryTile - 1) / kQueryTile;
    int end = tiles;
#pragma unroll 1
    for (int distance = 1; distance < kMostFewRows; distance *= 2) {
      const int before = __shfl_up_sync(kAll, end, distance);
      if (lane >= distance) end += before;
    }
    const auto at = static_cast<int>(blockIdx.x);
    const int owner = __ffs(static_cast<int>(__ballot_sync(kAll, end > at))) - 1;
    if (owner < 0) return;
    first = (at - __shfl_sync(kAll, end - tiles, owner)) * kQueryTile;
    group.first_row = __shfl_sync(kAll, group.first_row, owner);
    group.rows = __shfl_sync(kAll, group.rows, owner);
    group.sequence = __shfl_sync(kAll, group.sequence, owner);
    group.first_position = __shfl_sync(kAll, group.first_position, owner);
    queries = min(kQueryTile, group.rows * per_key_head - first);
    lowest = lowest_position(a.cache.window, position_of(row_of(factors, 0)));
    highest = position_of(row_of(factors, queries - 1));
    // plan.h: full layers stay below the longer chunks, since a cluster has no more blocks.
    static_assert(chunk_begin(1, 1) == 1 << 7 && chunk_begin(0, kMostCluster) == kMostCluster << 8);
    chunk_shift = a.cache.window > 0 ? 7 : 8;
    chunk = (lowest >> chunk_shift) + static_cast<int>(blockIdx.z);
  }
  __device__ int chunks() const { return (highest >> chunk_shift) - (lowest >> chunk_shift) + 1; }
  // Of the group.
  __device__ int row_of(const FewFactors& factors, int in_tile) const {
    return factors.per_key_head.quotient(first + in_tile);
  }
  __device__ int position_of(int row) const { return group.first_position + row; }
};

// A query of a tile.
struct FewQuery {
  int position;
  int row;
  int head;
  __device__ FewQuery(const FewTile& tile, const FewFactors& factors, int in_tile) {
    const int row_of_group = tile.row_of(factors, in_tile);
    position = tile.position_of(row_of_group);
    row = tile.group.first_row + row_of_group;
    head = (static_cast<int>(blockIdx.y) - row_of_group) * factors.per_key_head.divisor +
           tile.first + in_tile;
  }
};

// The blocks of 16 keys of a chunk: lane l, and l + 16, knows where block l is.
struct FewKeys {
  static constexpr int kNone = -1;
  int first_row = kNone;  // of the cache, as if it were [rows, head_dim]
  int begin;              // position

  __device__ FewKeys(const Attention& a, const FewTile& tile)
      : begin(tile.chunk << tile.chunk_shift) {
    const CacheView& cache = a.cache;
    const int block = threadIdx.x % FewMemory::kChunkBlocks;
    const int key = begin + block * kKeyBlock;
    if (block >> (tile.chunk_shift - 4) != 0 || key > tile.highest ||
        key + kKeyBlock <= tile.lowest) {
      return;
    }
    const unsigned page = static_cast<unsigned>(key) / static_cast<unsigned>(cache.block_tokens);
    int at = tile.group.sequence;
    if (cache.window == 0) {
      at = __ldcg(a.rows.pages + __ldcg(a.rows.table_offsets + at) + page);
    }
    first_row = (at * cache.kv_heads + static_cast<int>(blockIdx.y)) * cache.block_tokens + key -
                static_cast<int>(page) * cache.block_tokens;
  }
  __device__ int row_of(int block) const { return __shfl_sync(0xffffffffu, first_row, block); }

  // How many a warp has. One that has no first block has no second.
  __device__ int blocks_of(int warp) const {
    const bool one = row_of(warp % kAttendWarps) != kNone;
    const bool two = row_of(warp % kAttendWarps + kAttendWarps) != kNone;
    return one ? two ? 2 : 1 : 0;
  }

  // Nothing is read, so that it may be written yet.
  __device__ void prefetch_all(const CacheView& cache) const {
    static_assert(kFewThreads / kLanes == FewMemory::kChunkBlocks);
    const int lane = threadIdx.x % kLanes;
    const int row = row_of(threadIdx.x / kLanes);
    if (row == kNone) return;
    prefetch((lane < kKeyBlock ? cache.keys : cache.values) +
             int64_t{row + lane % kKeyBlock} * kFewDim);
  }

  // Every second warp takes keys, and as copy_keys() in attend.cuh, the others values, as
  // copy_values(). Values that are not seen are zeros.
  __device__ void copy_all(const CacheView& cache, const FewTile& tile, uint32_t memory) const {
    const unsigned lane = threadIdx.x % kLanes;
    const unsigned warp = threadIdx.x / kLanes;
#pragma unroll 1
    for (unsigned block = warp / 2; block < FewMemory::kChunkBlocks; block += kAttendWarps) {
      const int row = row_of(block);
      if (row == kNone) break;
      const int64_t at = int64_t{row} * kFewDim;
      const uint32_t to = memory + FewMemory::place(block) + lane * 16;
      if (warp % 2 == 0) {
        const uint8_t* from = cache.keys + at + (lane / 4 * kFewDim + lane % 4 * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          copy_piece<16>(to + i * kLanes * 16, from + i % 2 * 8 * kFewDim + i / 2 * 64, true);
        }
      } else {
        const uint8_t* from = cache.values + at + (lane % 4 * 2 * kFewDim + lane / 4 * 16);
        const int first = begin + block * kKeyBlock + lane % 4 * 2 - tile.lowest;
        const auto seen = static_cast<unsigned>(tile.highest - tile.lowest);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = i % 2 + i / 2 * 8;
          copy_piece<16>(to + FewMemory::kBlock + i * kLanes * 16, from + key * kFewDim,
                         static_cast<unsigned>(first + key) <= seen);
        }
      }
    }
    commit_copies();
  }
};

// ---- Queries

// As store_query(), by sixteen threads with eight dimensions each.
__device__ inline float store_few_query(uint2* queries, int query, int part, uint4 numbers) {
  uint32_t pairs[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
  uint32_t largest = 0;
#pragma unroll
  for (const uint32_t pair : pairs) {
    largest = max(largest, max(pair & 0x7fff, pair >> 16 & 0x7fff));
  }
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const uint32_t exponent = 268 - max(largest >> 7, 15u);
  const float factor = __uint_as_float(exponent << 23);
#pragma unroll
  for (uint32_t& pair : pairs) {
    pair = pair_of<true>(from_bits(pair & 0xffff) * factor, from_bits(pair >> 16) * factor);
  }
  uint2* to = queries + query_word<kFewDim, true>(query, part * 8) / 2;
  to[0] = make_uint2(pairs[0], pairs[1]);
  to[kLanes] = make_uint2(pairs[2], pairs[3]);
  return __uint_as_float((254 - exponent) << 23);
}

}  // namespace lagoon::kernels::cuda
