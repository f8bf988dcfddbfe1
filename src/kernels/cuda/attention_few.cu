// Attention for steps of few rows, FP8 and heads of 128. A chunk's keys meet a tile of queries as
// in attention.cu, with the same sums in the same order, but each instruction runs about once, so
// that what takes time is how many there are and what waits for what:
// - Keys and values of a chunk all come to shared memory at once, at most two blocks of 16 a warp.
// - A set of eight queries is the work of eight warps; both sets read the same keys.
// - The chunks of a tile and key head are a cluster of blocks. They give each other their results
//   through shared memory and meet once: then each block combines the chunks of up to four queries.
// - What rows and tables say is found before other kernels are waited for.
#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/few_tile.cuh"
#include "kernels/cuda/running.cuh"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

using FewRunning = Running<kFewDim, true, 1, true>;

// What 64 threads combine together: a query, two dimensions each.
struct FewTarget {
  int seen = 0;  // chunks; 0: no query
  int query = 0;
  int results = 0;  // where in shared memory
  int out = 0;      // place of the first two dimensions
  int gates = 0;    // the same of gates, if each has its own
};

// What is found before other kernels are waited for, and what little is needed of each query.
struct FewShared {
  int positions[kQueryTile];  // -1: no such query, which sees nothing
  float scales[kQueryTile];
  float gates[kQueryTile];
  FewTarget targets[kQueryTile / kLeastCluster];
  alignas(8) uint64_t results;  // a barrier
};

// ---- Sums

// The keys of a chunk by a warp, for one set of queries: `blocks` of them, which may be none, or
// less if there is no such set. What it leaves stands where keys were, so all warps have to be done
// with them first.
__device__ void attend_few_keys(const FewKeys& keys, uint8_t* memory, const uint2* queries,
                                const FewShared& shared, int set, int blocks, int window) {
  using Memory = FewMemory;
  const int warp = threadIdx.x / kLanes % kAttendWarps;
  uint8_t* own = memory + warp * Memory::kOfWarp;
  FewRunning run(queries + set * (kFewDim / 16) * kLanes, shared.scales + set * kSet);
  const auto start = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  const uint32_t parts = start + Memory::kParts +
                         set * (Memory::kBlocksOfWarp * Memory::kPartsOfBlock) +
                         threadIdx.x % kLanes * 16;
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    run.multiply_keys(start + block * 2 * Memory::kBlock);
    run.weigh(keys.begin + (warp + block * kAttendWarps) * kKeyBlock, false,
              shared.positions + set * kSet, window);
    run.keep_parts(parts + block * Memory::kPartsOfBlock);
  }
  if (blocks >= 0) run.keep_stats(start + Memory::kStats + set * kSet * 8);
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    if (block > 0) run.move_values();
    run.load_parts(parts + block * Memory::kPartsOfBlock);
    run.multiply_values(start + (block * 2 + 1) * Memory::kBlock);
  }
  __syncthreads();
  if (blocks >= 0) run.keep_quads(start + set * Memory::kQuads);
}

// Adds the warps' results in order, and gives them to the blocks that combine the chunks of their
// queries: a thread has a quad, those of a warp have the same two queries.
__device__ void give_results(const uint8_t* memory, int queries, const FewFactors& factors,
                             uint32_t results, uint32_t barrier, int chunks) {
  using Memory = FewMemory;
  constexpr unsigned kAll = 0xffffffffu;
  const unsigned thread = threadIdx.x;
  const int first = thread / 64 * 2;  // query
  const int pair = thread % 64;       // of dimensions
  if (first >= queries) return;
  // Lane w has what warp w left of the first query, lane w + 8 of the second.
  float2 stat = reinterpret_cast<const float2*>(memory + thread % kAttendWarps * Memory::kOfWarp +
                                                Memory::kStats)[first + thread / 8 % 2];
  float top = stat.x;
#pragma unroll
  for (int distance = kAttendWarps / 2; distance > 0; distance /= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAll, top, distance));
  }
  stat.x = exp2f(stat.x - base_or_zero(top));
  const auto* quads = reinterpret_cast<const float4*>(memory) +
                      Memory::kQuads / 16 * (first / kSet) +
                      FewRunning::quad_of(first / 2 % 4, pair / 8, pair % 8);
  float sums[2] = {};
  float4 out = {};
#pragma unroll 2
  for (int w = 0; w < kAttendWarps; ++w) {
    const float4 values = quads[w * (Memory::kOfWarp / 16)];
    const float factors_of[2] = {__shfl_sync(kAll, stat.x, w), __shfl_sync(kAll, stat.x, w + 8)};
    sums[0] = fmaf(__shfl_sync(kAll, stat.y, w), factors_of[0], sums[0]);
    sums[1] = fmaf(__shfl_sync(kAll, stat.y, w + 8), factors_of[1], sums[1]);
    out.x = fmaf(values.x, factors_of[0], out.x);
    out.y = fmaf(values.y, factors_of[1], out.y);
    out.z = fmaf(values.z, factors_of[0], out.z);
    out.w = fmaf(values.w, factors_of[1], out.w);
  }
  const float tops[2] = {__shfl_sync(kAll, top, 0), __shfl_sync(kAll, top, 8)};
#pragma unroll 1
  for (int q = 0; q < 2 && first + q < queries; ++q) {
    const int slot = factors.cluster.quotient(first + q);
    const int rank = first + q - slot * factors.cluster.divisor;
    const uint32_t to = map_shared(
        results + (slot * chunks + static_cast<int>(blockIdx.z)) * FewMemory::kResult, rank);
    const uint32_t counts = map_shared(barrier, rank);
    give(to + pair * 8, counts, q == 0 ? out.x : out.y, q == 0 ? out.z : out.w);
    if (pair == 0)
      give(to + kFewDim * 4, counts, q == 0 ? tops[0] : tops[1], q == 0 ? sums[0] : sums[1]);
  }
}

// The chunks of a query in order; sums over keys, and the sum of probabilities.
__device__ float2 combine_results(const uint8_t* results, int seen, int pair, float& sum) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = threadIdx.x % kMostCluster;
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
  float2 value = {};
#pragma unroll 1
  for (int c = 0; c < seen; ++c) {
    value = *reinterpret_cast<const float2*>(results + c * FewMemory::kResult + pair * 8);
    const float factor = __shfl_sync(kAll, stat.x, c);
    sum = fmaf(__shfl_sync(kAll, stat.y, c), factor, sum);
    out.x = fmaf(value.x, factor, out.x);
    out.y = fmaf(value.y, factor, out.y);
  }
  return seen == 1 ? value : out;  // a single result stays as it is, down to the sign of a zero
}

__device__ FewTarget find_target(const Attention& a, const FewTile& tile, const FewFactors& factors,
                                 int slot) {
  const int query = static_cast<int>(blockIdx.z) + slot * factors.cluster.divisor;
  if (query >= tile.queries) return {};
  const FewQuery target(tile, factors, query);
  const int lowest = lowest_position(a.cache.window, target.position);
  const int chunk = lowest >> tile.chunk_shift;
  const int width = static_cast<int>(padded(int64_t{a.heads} * kFewDim));
  return {.seen = (target.position >> tile.chunk_shift) - chunk + 1,
          .query = query,
          .results = FewMemory::kResults +
                     (slot * tile.chunks() + chunk - (tile.lowest >> tile.chunk_shift)) *
                         FewMemory::kResult,
          .out = (target.row * width + target.head * kFewDim) / 2,
          .gates = (target.row * a.heads + target.head) * (kFewDim / 2)};
}

// Bytes of results that come for a block.
__device__ int result_bytes(const FewTile& tile, const FewFactors& factors) {
  const int behind = tile.queries + factors.cluster.divisor - 1 - static_cast<int>(blockIdx.z);
  return factors.cluster.quotient(behind) * tile.chunks() * (kFewDim * 4 + 8);
}

// The output of a query by the threads that have it.
__device__ void finish_query(const Attention& a, const FewFactors& factors, const FewShared& shared,
                             const uint8_t* memory, uint32_t barrier, const FewTarget& target) {
  if (target.seen == 0) return;
  const int pair = threadIdx.x % (kFewDim / 2);
  float2 gates = make_float2(shared.gates[target.query], 0);
  if (!a.gate_per_head) {
    gates = reinterpret_cast<const float2*>(a.gate)[target.gates + pair];
  }
  gates.x = softplus(gates.x);
  gates.y = a.gate_per_head ? gates.x : softplus(gates.y);
  wait_for_bytes(barrier);
  float sum;
  const float2 out = combine_results(memory + target.results, target.seen, pair, sum);
  const uint32_t low = to_bits(out.x / sum * factors.value * gates.x);
  const uint32_t high = to_bits(out.y / sum * factors.value * gates.y);
  reinterpret_cast<uint32_t*>(a.out)[target.out + pair] = low | high << 16;
}

// ---- The kernel

// Zeros behind the last head, where rows are wider.
__device__ void zero_behind_heads(const Attention& a, const FewTile& tile,
                                  const FewFactors& factors) {
  const auto size = static_cast<int>(a.heads) * kFewDim;
  const auto width = static_cast<int>(padded(size));
  if (width == size || blockIdx.y != gridDim.y - 1 || blockIdx.z != 0) return;
  for (int query = 0; query < tile.queries; ++query) {
    const FewQuery target(tile, factors, query);
    if (target.head != a.heads - 1) continue;
    for (int i = size + static_cast<int>(threadIdx.x); i < width; i += kFewThreads) {
      a.out[target.row * width + i] = 0;
    }
  }
}

__global__ void __launch_bounds__(kFewThreads, 2)
    attend_few_kernel(const __grid_constant__ Attention a,
                      const __grid_constant__ FewFactors factors) {
  extern __shared__ __align__(FewMemory::kAlignment) uint4 few_memory[];
  __shared__ FewShared shared;
  let_others_start();
  const FewTile tile(a, factors);
  if (tile.queries == 0) return;  // and no block of the cluster has one
  auto* memory = reinterpret_cast<uint8_t*>(few_memory);
  const auto memory_at = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  auto* queries = reinterpret_cast<uint2*>(memory + FewMemory::kQueries);
  const FewKeys keys(a, tile);
  keys.prefetch_all(a.cache);

  const int in_tile = threadIdx.x / 16;
  const int part = threadIdx.x % 16;
  const FewQuery source(tile, factors, in_tile);
  const int source_head = in_tile < tile.queries ? source.row * a.heads + source.head : -1;
  if (part == 0 && in_tile < kQueryTile) {
    shared.positions[in_tile] = source_head < 0 ? -1 : source.position;
  }
  const int set = threadIdx.x / (kAttendWarps * kLanes);
  const int blocks = set * kSet < tile.queries ? keys.blocks_of(threadIdx.x / kLanes) : -1;
  const int slot = threadIdx.x / (kFewDim / 2);
  if (slot < kQueryTile / kLeastCluster && threadIdx.x % (kFewDim / 2) == 0) {
    shared.targets[slot] = find_target(a, tile, factors, slot);
  }
  const auto barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&shared.results));
  if (threadIdx.x == 0) {
    open_barrier(barrier);
    expect_bytes(barrier, result_bytes(tile, factors));
  }
  meet_cluster();  // what is theirs can be written
  wait_for_others();

  uint4 numbers = {};
  float gate = 0;
  if (source_head >= 0) {
    numbers = reinterpret_cast<const uint4*>(a.q)[source_head * (kFewDim / 8) + part];
    if (a.gate_per_head) gate = a.gate[source_head];
  }
  keys.copy_all(a.cache, tile, memory_at);
  if (in_tile < kQueryTile) {
    const float inverse = store_few_query(queries, in_tile, part, numbers);
    if (part == 0) {
      shared.scales[in_tile] = factors.score * inverse;
      shared.gates[in_tile] = gate;
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  if (static_cast<int>(blockIdx.z) < tile.chunks()) {
    attend_few_keys(keys, memory, queries, shared, set, blocks, a.cache.window);
    __syncthreads();
    give_results(memory, tile.queries, factors, memory_at + FewMemory::kResults, barrier,
                 tile.chunks());
  }
  if (slot < kQueryTile / kLeastCluster) {
    finish_query(a, factors, shared, memory, barrier, shared.targets[slot]);
  }
  zero_behind_heads(a, tile, factors);
}

// ---- Launching

cudaLaunchAttribute cluster_attribute(int blocks) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {.x = 1, .y = 1, .z = static_cast<unsigned>(blocks)};
  return attribute;
}

// Whether the device runs clusters of so many blocks. More than eight are not promised, nor is each
// number.
bool runs_clusters_of(int blocks) {
  static const std::array<bool, kMostCluster + 1> runs = [] {
    std::array<bool, kMostCluster + 1> out = {};
    if (!starts_early()) return out;
    // Where either is refused there is no such kernel; no error is left behind for Device::check().
    if (cudaFuncSetAttribute(attend_few_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             FewMemory::kBytes) != cudaSuccess ||
        cudaFuncSetAttribute(attend_few_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed,
                             1) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return out;
    }
    for (int size = kLeastCluster; size <= kMostCluster; ++size) {
      cudaLaunchAttribute attribute = cluster_attribute(size);
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(1, 1, static_cast<unsigned>(size));
      config.blockDim = dim3(kFewThreads);
      config.dynamicSmemBytes = FewMemory::kBytes;
      config.attrs = &attribute;
      config.numAttrs = 1;
      int clusters = 0;
      if (cudaOccupancyMaxActiveClusters(&clusters, attend_few_kernel, &config) == cudaSuccess) {
        out[static_cast<size_t>(size)] = clusters > 0;
      } else {
        static_cast<void>(cudaGetLastError());
      }
    }
    return out;
  }();
  return runs[static_cast<size_t>(blocks)];
}

}  // namespace

bool attend_few(Stream stream, const Attention& a, float score) {
  const int per_key_head = a.heads / a.cache.kv_heads;
  const int chunks = a.most_tile_chunks;
  // Results of 13 to 15 chunks would be too many for two queries a block.
  const int cluster = chunks > 12 ? kMostCluster : std::max(chunks, kLeastCluster);
  if (!a.cache.fp8 || a.cache.head_dim != kFewDim || a.row_count > kMostFewRows ||
      a.row_count != a.rows.rows || per_key_head > kMostHeadsOfKey || chunks > cluster ||
      !runs_clusters_of(cluster)) {
    return false;
  }
  const FewFactors factors = {.score = score,
                              .value = a.cache.v_scale,
                              .per_key_head = SmallDivider(per_key_head),
                              .cluster = SmallDivider(cluster)};
  cudaLaunchAttribute attributes[2] = {cluster_attribute(cluster), {}};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(a.query_tiles),
                        static_cast<unsigned>(a.cache.kv_heads), static_cast<unsigned>(cluster));
  config.blockDim = dim3(kFewThreads);
  config.dynamicSmemBytes = FewMemory::kBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  // The runtime keeps an error for Device::check().
  static_cast<void>(cudaLaunchKernelEx(&config, attend_few_kernel, a, factors));
  return true;
}

}  // namespace lagoon::kernels::cuda
