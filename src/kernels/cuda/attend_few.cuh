// Attention for steps of few rows, FP8 and heads of 128. A chunk's keys meet a tile of queries as
// in attention.cu, with the same sums in the same order, but each instruction runs about once, so
// that what takes time is how many there are and what waits for what:
// - Keys and values of a chunk all come to shared memory at once, at most two blocks of 16 a warp.
// - A set of eight queries is the work of eight warps; both sets read the same keys.
// - The chunks of a tile and key head are a cluster of blocks. They give each other their results
//   through shared memory and meet once: then each block combines the chunks of up to four queries.
// - What rows and tables say is found before other kernels are waited for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/running.cuh"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {

inline constexpr int64_t kMostFewRows = 16;  // of a launch
inline constexpr int kFewDim = 128;
inline constexpr int kMostHeadsOfKey = 32;
// Blocks of a cluster. Four at least, so that none has more than four queries to combine.
inline constexpr int kLeastCluster = 4;
inline constexpr int kMostCluster = 16;
inline constexpr int kCombinedQueries = kQueryTile / kLeastCluster;

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
  bool rehearse;  // whether to go through all once for nothing, before other kernels are waited for
};

// What lies where in shared memory: of each warp AttendMemory, then queries, then results of the
// cluster's blocks: of a query that is combined here, chunk after chunk.
struct FewMemory {
  using Memory = AttendMemory<kFewDim, true>;
  static constexpr int kChunkBlocks = kAttendWarps * Memory::kStages;
  static constexpr int kResult = kFewDim * 4 + 16;  // dimensions; then base and sum
  static constexpr int kMostResults = 32;
  static constexpr int kResults = Memory::kBytes;
  static constexpr int kBytes = kResults + kMostResults * kResult;
  static_assert(kBytes + 1024 <= 99 * 1024);
  static_assert(chunk_begin(0, 1) == kChunkBlocks * kKeyBlock);
  // Of the blocks of a chunk; values behind keys.
  static __device__ int place(int block) {
    return block % kAttendWarps * Memory::kOfWarp + block / kAttendWarps * (2 * Memory::kBlock);
  }
};

// ---- Clusters of blocks: PTX ISA, "barrier.cluster", "mapa"

__device__ inline uint32_t map_shared(uint32_t address, int rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
  return address;
}
__device__ inline void store_mapped(uint32_t address, float2 pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(pair.x), "f"(pair.y)
               : "memory");
#endif
}
// Of all threads of a cluster's blocks, those of a warp together.
__device__ inline void arrive_in_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// ---- A tile and a chunk

struct FewTile {
  Group group;
  int first = 0;    // query of the group
  int queries = 0;  // 0: no such tile
  int lowest = 0, highest = 0;
  int chunk = 0;        // of this block
  int chunk_shift = 0;  // positions of a chunk

  // A lane for each group: there are no more than rows, and behind the last one they are empty.
  __device__ FewTile(const Attention& a, const FewFactors& factors) {
    constexpr unsigned kAll = 0xffffffffu;
    const auto lane = static_cast<int>(threadIdx.x % kLanes);
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
    chunk_shift = a.cache.window > 0 ? 7 : 8;  // plan.h
    chunk = (lowest >> chunk_shift) + static_cast<int>(blockIdx.z);
  }
  // Of the group.
  __device__ int row_of(const FewFactors& factors, int in_tile) const {
    return factors.per_key_head.quotient(first + in_tile);
  }
  __device__ int position_of(int row) const { return group.first_position + row; }
};

// A query of a tile.
struct FewQuery {
  int position;
  int64_t row;
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
    const auto block = static_cast<int>(threadIdx.x % FewMemory::kChunkBlocks);
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

  // Nothing is read, so that it may be written yet.
  __device__ void prefetch_all(const CacheView& cache) const {
    const auto lane = static_cast<int>(threadIdx.x % kLanes);
#pragma unroll 1
    for (int block = threadIdx.x / kLanes; block < FewMemory::kChunkBlocks;
         block += static_cast<int>(blockDim.x / kLanes)) {
      const int row = row_of(block);
      if (row == kNone) continue;
      prefetch((lane < kKeyBlock ? cache.keys : cache.values) +
               int64_t{row + lane % kKeyBlock} * kFewDim);
    }
  }

  // Where positions are not seen, zeros; everywhere, if not `real`. Warps take keys and values of a
  // block in turn: as copy_keys() and copy_values() in attend.cuh, pieces of 16 bytes.
  __device__ void copy_all(const CacheView& cache, const FewTile& tile, uint32_t memory,
                           bool real) const {
    const auto lane = static_cast<int>(threadIdx.x % kLanes);
#pragma unroll 1
    for (int item = threadIdx.x / kLanes; item < 2 * FewMemory::kChunkBlocks;
         item += static_cast<int>(blockDim.x / kLanes)) {
      const int row = row_of(item / 2);
      if (row == kNone) continue;
      const bool keys = item % 2 == 0;
      const int of_lane = keys ? lane / 4 : lane % 4 * 2;
      const int piece = keys ? lane % 4 : lane / 4;
      const uint8_t* from =
          (keys ? cache.keys : cache.values) + (int64_t{row + of_lane} * kFewDim + piece * 16);
      const uint32_t to =
          memory + FewMemory::place(item / 2) + (keys ? 0 : FewMemory::Memory::kBlock) + lane * 16;
      const int from_lowest = begin + item / 2 * kKeyBlock + of_lane - tile.lowest;
      const auto seen = static_cast<unsigned>(tile.highest - tile.lowest);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = keys ? i % 2 * 8 : i % 2 + i / 2 * 8;
        copy_piece<16>(to + i * kLanes * 16,
                       from + (keys ? key * kFewDim + i / 2 * 64 : key * kFewDim),
                       real && static_cast<unsigned>(from_lowest + key) <= seen);
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

struct FewShared {
  int positions[kQueryTile];  // -1: no such query, which sees nothing
  float scales[kQueryTile];
};

// ---- Sums

// The keys of a chunk by a warp, for one set of queries. What it leaves stands where keys were, so
// all warps have to be done with them first.
__device__ inline void attend_few_keys(const FewKeys& keys, uint8_t* memory, const uint2* queries,
                                       const FewShared& shared, int set, bool any, int window) {
  using Memory = FewMemory::Memory;
  const int warp = static_cast<int>(threadIdx.x / kLanes) % kAttendWarps;
  uint8_t* own = memory + warp * Memory::kOfWarp;
  Running<kFewDim, true, 1, true> run(queries + set * (kFewDim / 16) * kLanes,
                                      shared.scales + set * kSet);
  auto slot = static_cast<uint32_t>(__cvta_generic_to_shared(own));
#pragma unroll 1
  for (int block = warp; block < FewMemory::kChunkBlocks; block += kAttendWarps) {
    if (any && keys.row_of(block) != FewKeys::kNone) {
      run.multiply_keys(slot);
      run.weigh(keys.begin + block * kKeyBlock, false, shared.positions + set * kSet, window);
      run.multiply_values(slot + Memory::kBlock);
    }
    slot += 2 * Memory::kBlock;
  }
  __syncthreads();
  if (any) run.keep(own, set);
}

// Adds the warps' results of a query, and gives them to the block that combines its chunks.
// Sixteen threads have dimensions of a query.
__device__ inline void give_results(const uint8_t* memory, int queries, const FewFactors& factors,
                                    uint32_t results, int chunks) {
  using Memory = FewMemory::Memory;
  constexpr unsigned kAll = 0xffffffffu;
  const auto lane = static_cast<int>(threadIdx.x % 16);
  const int query = static_cast<int>(threadIdx.x) / 16 % kQueryTile;
  float2 stat = reinterpret_cast<const float2*>(
      memory + (lane % kAttendWarps + 1) * Memory::kOfWarp - kQueryTile * 8)[query];
  float top = stat.x;
#pragma unroll
  for (int distance = kAttendWarps / 2; distance > 0; distance /= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAll, top, distance));
  }
  stat.x = exp2f(stat.x - base_or_zero(top));
  const int in_rank = factors.cluster.quotient(query);
  const uint32_t to =
      map_shared(results + (in_rank * chunks + static_cast<int>(blockIdx.z)) * FewMemory::kResult,
                 query - in_rank * factors.cluster.divisor);
#pragma unroll 1
  for (int half = threadIdx.x / 256; half < 2; half += static_cast<int>(blockDim.x / 256)) {
    const int dim = half * (kFewDim / 2) + lane * 2;
    const auto* row = reinterpret_cast<const float*>(memory) + query * Memory::kOutRow;
    float sum = 0;
    float2 out[2] = {};
#pragma unroll 4
    for (int w = 0; w < kAttendWarps; ++w) {
      const float factor = __shfl_sync(kAll, stat.x, w, kAttendWarps);
      sum = fmaf(__shfl_sync(kAll, stat.y, w, kAttendWarps), factor, sum);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float2 value =
            *reinterpret_cast<const float2*>(row + Memory::place(dim) + Memory::place(32) * i);
        out[i].x = fmaf(value.x, factor, out[i].x);
        out[i].y = fmaf(value.y, factor, out[i].y);
      }
      row += Memory::kOfWarp / 4;
    }
    if (query >= queries) continue;
    store_mapped(to + dim * 4, out[0]);
    store_mapped(to + dim * 4 + 32 * 4, out[1]);
    if (dim == 0) store_mapped(to + kFewDim * 4, make_float2(top, sum));
  }
}

// What a thread combines: two dimensions of a query, if there is one for it.
struct Combined {
  static constexpr int kSharers = kFewDim / 2;
  int slot;
  int query;
  int dim;
  bool there;
  __device__ Combined(const FewTile& tile, const FewFactors& factors)
      : slot(static_cast<int>(threadIdx.x) / kSharers),
        query(static_cast<int>(blockIdx.z) + slot * factors.cluster.divisor),
        dim(static_cast<int>(threadIdx.x) % kSharers * 2),
        there(slot < kCombinedQueries && query < tile.queries) {}
};

// The chunks of a query in order; sums over keys, and the sum of probabilities.
__device__ inline float2 combine_results(const uint8_t* results, int seen, int dim, float& sum) {
  constexpr unsigned kAll = 0xffffffffu;
  const auto lane = static_cast<int>(threadIdx.x % kMostCluster);
  float2 stat = make_float2(-INFINITY, 0);
  if (lane < seen) {
    stat = *reinterpret_cast<const float2*>(results + lane * FewMemory::kResult + kFewDim * 4);
  }
  float top = stat.x;
#pragma unroll
  for (int distance = kMostCluster / 2; distance > 0; distance /= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAll, top, distance));
  }
  stat.x = exp2f(stat.x - base_or_zero(top));
  sum = 0;
  float2 out = {};
  float2 value;
#pragma unroll 2
  for (int c = 0; c < seen; ++c) {
    value = *reinterpret_cast<const float2*>(results + c * FewMemory::kResult + dim * 4);
    const float factor = __shfl_sync(kAll, stat.x, c);
    sum = fmaf(__shfl_sync(kAll, stat.y, c), factor, sum);
    out.x = fmaf(value.x, factor, out.x);
    out.y = fmaf(value.y, factor, out.y);
  }
  return seen == 1 ? value : out;  // a single result stays as it is, down to the sign of a zero
}

// ---- The kernel

__global__ void __launch_bounds__(2 * kAttendWarps * kLanes, 2)
    attend_few_kernel(const __grid_constant__ Attention a,
                      const __grid_constant__ FewFactors factors) {
  extern __shared__ uint4 memory_start[];
  __shared__ FewShared shared;
  let_others_start();
  const FewTile tile(a, factors);
  if (tile.queries == 0) return;  // and no block of the cluster has one
  arrive_in_cluster();
  auto* memory = reinterpret_cast<uint8_t*>(memory_start);
  const auto memory_at = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  auto* queries = reinterpret_cast<uint2*>(memory + FewMemory::Memory::kQueries);
  const FewKeys keys(a, tile);
  keys.prefetch_all(a.cache);

  const auto in_tile = static_cast<int>(threadIdx.x) / 16;
  const auto part = static_cast<int>(threadIdx.x) % 16;
  const FewQuery source(tile, factors, in_tile);
  const uint4* q_from =
      reinterpret_cast<const uint4*>(a.q + (source.row * a.heads + source.head) * kFewDim) + part;
  const int set = static_cast<int>(threadIdx.x) / (kAttendWarps * kLanes);
  const bool any = set * kSet < tile.queries;

  const Combined combined(tile, factors);
  const FewQuery target(tile, factors, combined.there ? combined.query : 0);
  const int window = a.cache.window;
  const auto chunk_at = [&](int position) { return position >> tile.chunk_shift; };
  const int first_chunk = chunk_at(lowest_position(window, target.position));
  const int seen = chunk_at(target.position) - first_chunk + 1;
  const int chunks = (tile.highest >> tile.chunk_shift) - (tile.lowest >> tile.chunk_shift) + 1;
  const uint8_t* results =
      memory + FewMemory::kResults +
      (combined.slot * chunks + first_chunk - (tile.lowest >> tile.chunk_shift)) *
          FewMemory::kResult;
  const int64_t size = int64_t{a.heads} * kFewDim;
  const float* gate_from =
      a.gate + (a.gate_per_head ? target.row * a.heads + target.head
                                : target.row * size + target.head * kFewDim + combined.dim);
  Bits16* out = a.out + target.row * padded(size) + target.head * kFewDim + combined.dim;
  wait_for_cluster();  // all blocks are there, and what is theirs can be written

#pragma unroll 1
  for (int turn = factors.rehearse ? 0 : 1; turn < 2; ++turn) {
    const bool real = turn == 1;
    if (real) wait_for_others();
    uint4 numbers = {};
    if (real && in_tile < tile.queries) numbers = *q_from;
    float gates[2] = {};
    if (real && combined.there) {
      gates[0] = *gate_from;
      if (!a.gate_per_head) gates[1] = gate_from[1];
    }
    keys.copy_all(a.cache, tile, memory_at, real);
    if (in_tile < kQueryTile) {
      const float inverse = store_few_query(queries, in_tile, part, numbers);
      if (part == 0) {
        shared.positions[in_tile] = in_tile < tile.queries ? source.position : -1;
        shared.scales[in_tile] = factors.score * inverse;
      }
    }
    wait_for_copies<0>();
    __syncthreads();
    if (static_cast<int>(blockIdx.z) < chunks) {
      attend_few_keys(keys, memory, queries, shared, set, any, window);
      __syncthreads();
      give_results(memory, tile.queries, factors, memory_at + FewMemory::kResults, chunks);
    }
    arrive_in_cluster();
    gates[0] = softplus(gates[0]);
    gates[1] = a.gate_per_head ? gates[0] : softplus(gates[1]);
    wait_for_cluster();
    if (!combined.there) continue;
    float sum;
    const float2 of_query = combine_results(results, seen, combined.dim, sum);
    const uint32_t low = to_bits(of_query.x / sum * factors.value * gates[0]);
    const uint32_t high = to_bits(of_query.y / sum * factors.value * gates[1]);
    if (!real) continue;
    *reinterpret_cast<uint32_t*>(out) = low | high << 16;
    if (target.head != a.heads - 1) continue;
#pragma unroll 1
    for (int64_t i = size + combined.dim; i < padded(size); i += kFewDim) {
      *reinterpret_cast<uint32_t*>(out + i - target.head * kFewDim - combined.dim) = 0;
    }
  }
}

// ---- Launching

// The most blocks of a cluster that the device holds.
inline int most_cluster() {
  static const int most = [] {
    if (!starts_early()) return 0;
    static_cast<void>(one_block_each<attend_few_kernel>(FewMemory::kBytes));
    static_cast<void>(
        cudaFuncSetAttribute(attend_few_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, 1, kMostCluster);
    config.blockDim = dim3(2 * kAttendWarps * kLanes);
    config.dynamicSmemBytes = FewMemory::kBytes;
    int blocks = 0;
    if (cudaOccupancyMaxPotentialClusterSize(&blocks, attend_few_kernel, &config) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    return std::min(blocks, kMostCluster);
  }();
  return most;
}

// Whether it was started; else it is not for this kernel.
inline bool attend_few(Stream stream, const Attention& a, float score, bool rehearse) {
  const int per_key_head = a.heads / a.cache.kv_heads;
  const int chunks = a.most_tile_chunks;
  const int cluster = std::max(chunks, kLeastCluster);
  if (!a.cache.fp8 || a.cache.head_dim != kFewDim || a.row_count > kMostFewRows ||
      a.row_count != a.rows.rows || per_key_head > kMostHeadsOfKey || cluster > most_cluster() ||
      ceil_divide(kQueryTile, cluster) * chunks > FewMemory::kMostResults) {
    return false;
  }
  const FewFactors factors = {.score = score,
                              .value = a.cache.v_scale,
                              .per_key_head = SmallDivider(per_key_head),
                              .cluster = SmallDivider(cluster),
                              .rehearse = rehearse};
  // A set of queries, or two.
  const unsigned threads = (a.row_count * per_key_head <= kSet ? 1 : 2) * kAttendWarps * kLanes;
  const dim3 grid(static_cast<unsigned>(a.query_tiles), static_cast<unsigned>(a.cache.kv_heads),
                  static_cast<unsigned>(cluster));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {.x = 1, .y = 1, .z = grid.z};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = FewMemory::kBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  // The runtime keeps an error for Device::check().
  static_cast<void>(cudaLaunchKernelEx(&config, attend_few_kernel, a, factors));
  return true;
}

}  // namespace lagoon::kernels::cuda
