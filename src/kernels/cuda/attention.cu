// Attention over cached keys and values. A tile of 16 queries (rows of a sequence and the heads
// that share a key head) meets the keys of a chunk (plan.h; "Flash-Decoding") in a block of eight
// warps: warp w takes the blocks of 16 keys w, w + 8 ... (attend.cuh, running.cuh). The results of
// warps, then those of chunks, are combined in order (combine.cuh). Keys that a query does not see
// count as exact zeros, so its bits depend on its own position alone.
#include <algorithm>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/combine.cuh"
#include "kernels/cuda/running.cuh"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kAttendThreads = kAttendWarps * kLanes;

// Which queries a tile has, and what they see.
struct Tile {
  Group group;
  int first = 0;    // query of the group: row * heads of a key head + head
  int queries = 0;  // of the tile; 0: no such tile
  int lowest = 0;   // position that any of them sees
  int nearest = 0;  // position of the first of them
  int highest = 0;  // of the last
};

// Rows and page tables of a step are there before its first kernel, and need not be waited for;
// what is read so goes past the first-level cache.
__device__ Group group_of(const Attention& a, int g) {
  const Group* from = a.groups + g;
  return {.first_row = __ldcg(&from->first_row),
          .rows = __ldcg(&from->rows),
          .sequence = __ldcg(&from->sequence),
          .first_position = __ldcg(&from->first_position)};
}

// Where there may be fewer tiles than blocks, an empty group follows the last one.
__device__ Tile find_tile(const Attention& a, int at, int per_key_head) {
  Tile tile;
  for (int g = 0;; ++g) {
    tile.group = group_of(a, g);
    const int tiles = (tile.group.rows * per_key_head + kQueryTile - 1) / kQueryTile;
    if (at < tiles) break;
    if (tiles == 0) return {};
    at -= tiles;
  }
  tile.first = at * kQueryTile;
  tile.queries = min(kQueryTile, tile.group.rows * per_key_head - tile.first);
  tile.nearest = tile.group.first_position + tile.first / per_key_head;
  tile.lowest = lowest_position(a.cache.window, tile.nearest);
  tile.highest = tile.group.first_position + (tile.first + tile.queries - 1) / per_key_head;
  return tile;
}

// A query of a tile.
struct Query {
  int position;
  int64_t row;
  int head;
  __device__ Query(const Tile& tile, int in_tile, int kv_head, int per_key_head) {
    const int row_of_group = (tile.first + in_tile) / per_key_head;
    position = tile.group.first_position + row_of_group;
    row = tile.group.first_row + row_of_group;
    head = kv_head * per_key_head + (tile.first + in_tile) - row_of_group * per_key_head;
  }
};

// Adds the warps' results in order: gives the dimensions of a query to `put`, two at a time, and
// its base and sum. Threads share a query.
template <int D, bool kFP8, int kSets, typename Put>
__device__ void combine_warps(const uint8_t* memory, int queries, const Put& put) {
  using Memory = AttendMemory<D, kFP8>;
  constexpr int kSharers = kAttendThreads / (kSets * kSet);
  const int query = static_cast<int>(threadIdx.x) / kSharers;
  if (query >= queries) return;
  float2 stats[kAttendWarps];
  float top = -INFINITY;
#pragma unroll
  for (int w = 0; w < kAttendWarps; ++w) {
    stats[w] =
        reinterpret_cast<const float2*>(memory + (w + 1) * Memory::kOfWarp - kQueryTile * 8)[query];
    top = fmaxf(top, stats[w].x);
  }
  float sum = 0;
#pragma unroll
  for (float2& stat : stats) {
    stat.x = exp2f(stat.x - base_or_zero(top));
    sum = fmaf(stat.y, stat.x, sum);
  }
  for (int dim = threadIdx.x % kSharers * 2; dim < D; dim += kSharers * 2) {
    float2 out = {};
#pragma unroll
    for (int w = 0; w < kAttendWarps; ++w) {
      const auto* row =
          reinterpret_cast<const float*>(memory + w * Memory::kOfWarp) + query * Memory::kOutRow;
      const float2 value = *reinterpret_cast<const float2*>(row + Memory::place(dim));
      out.x = fmaf(value.x, stats[w].x, out.x);
      out.y = fmaf(value.y, stats[w].x, out.y);
    }
    put(query, dim, out, top, sum);
  }
}

// What a block has in shared memory beside the rings.
struct TileMemory {
  int positions[kQueryTile];  // -1: no such query, which sees nothing
  float scales[kQueryTile];
};

// Where a thread finds what it brings of the queries of a tile: sixteen threads share one.
template <int D>
struct QuerySource {
  int in_tile;
  int position;
  const Bits16* from;
  __device__ QuerySource(const Attention& a, const Tile& tile, int kv_head, int per_key_head)
      : in_tile(static_cast<int>(threadIdx.x) / 16) {
    const bool there = in_tile < tile.queries;
    const Query query(tile, in_tile, kv_head, per_key_head);
    position = there ? query.position : -1;
    from = there ? a.q + (query.row * a.heads + query.head) * D : nullptr;
  }
  template <bool kFP8>
  __device__ void store(const QueryPart<D>& part, float scale, uint32_t* queries,
                        TileMemory& shared) const {
    const float inverse = store_query<D, kFP8>(queries, in_tile, part);
    if (threadIdx.x % 16 != 0) return;
    shared.positions[in_tile] = position;
    shared.scales[in_tile] = scale * inverse;
  }
};

// The keys of a chunk by a warp, from `key` on, what it needs on its way.
template <int D, bool kFP8, int kSets>
__device__ void attend_keys(KeySource<D, kFP8>& source, uint8_t* ring, const uint32_t* queries,
                            const TileMemory& shared, const Tile& tile, int window, int key,
                            int end) {
  using Memory = AttendMemory<D, kFP8>;
  Running<D, kFP8, kSets> run(reinterpret_cast<const uint2*>(queries), shared.scales);
  const auto start = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  uint32_t slot = start;
  for (; key < end; key += kKeyStep) {
    const bool whole =
        key + kKeyBlock - 1 <= tile.nearest && (window == 0 || key > tile.highest - window);
    wait_for_copies<Memory::kGroups - 1>();
    run.multiply_keys(slot);
    source.copy_keys(slot);
    run.weigh(key, whole, shared.positions, window);
    wait_for_copies<Memory::kGroups - 1>();
    run.multiply_values(slot + Memory::kBlock);
    source.copy_values(slot + Memory::kBlock);
    slot += 2 * Memory::kBlock;
    if (slot == start + Memory::kRing) slot = start;
  }
  __syncwarp();  // all lanes have read what lies there
  run.keep(ring);
}

// What all blocks of a launch need to know beside its rows.
struct Factors {
  float score;  // to powers of two
  float value;
  bool combine;  // whether the last block of a tile does
};

// Leaves the partial results of a tile and chunk, or the output of rows that see no other chunk.
template <int D, bool kFP8, int kSets>
__device__ void put_tile(const Attention& a, const Tile& tile, int chunk, int kv_head,
                         int per_key_head, float value_scale, const uint8_t* memory) {
  const int window = a.cache.window;
  const auto put = [&](int in_tile, int dim, float2 out, float top, float sum) {
    const Query query(tile, in_tile, kv_head, per_key_head);
    const int own_chunk = chunk - chunk_of(window, lowest_position(window, query.position));
    if (own_chunk < 0 || chunk > chunk_of(window, query.position)) return;
    if (chunks_seen(window, query.position) == 1) {
      Finish(a, value_scale, query.row, query.head).put(dim, out, sum);
      return;
    }
    const Partial partial(a, query.row, query.head);
    *reinterpret_cast<float2*>(partial.outs + int64_t{own_chunk} * D + dim) = out;
    if (dim == 0) partial.stats[own_chunk] = make_float2(top, sum);
  };
  combine_warps<D, kFP8, kSets>(memory, tile.queries, put);
}

// kFew: of few chunks, which the last block may combine.
template <int D, bool kFP8, bool kFew>
__device__ void attend_tile(const Attention& a, const Factors& factors, const Tile& tile,
                            int tile_index, int per_key_head, uint8_t* memory, TileMemory& shared) {
  using Memory = AttendMemory<D, kFP8>;
  const int kv_head = blockIdx.y;
  const int window = a.cache.window;
  // The longest chunks, which are the last, first.
  const int first_chunk = chunk_of(window, tile.lowest);
  const int chunks = chunk_of(window, tile.highest) - first_chunk + 1;
  const int chunk = first_chunk + static_cast<int>(gridDim.z - 1 - blockIdx.z);
  if (chunk >= first_chunk + chunks) return;

  const int warp = threadIdx.x / kLanes;
  const int end = min(chunk_begin(window, chunk + 1), tile.highest + 1);
  int key = chunk_begin(window, chunk) + warp * kKeyBlock;
  if (key + kKeyBlock <= tile.lowest) key += (tile.lowest - key) / kKeyStep * kKeyStep;
  if (key + kKeyBlock <= tile.lowest) key += kKeyStep;
  KeySource<D, kFP8> source(
      a.cache,
      window > 0 ? nullptr : a.rows.pages + __ldcg(a.rows.table_offsets + tile.group.sequence),
      tile.group.sequence, kv_head, key, end, tile.lowest, tile.highest);
  source.prefetch_first();
  const QuerySource<D> query_source(a, tile, kv_head, per_key_head);
  wait_for_others();

  QueryPart<D> query_part;
  query_part.load(query_source.from);
  uint8_t* ring = memory + warp * Memory::kOfWarp;
  const auto slot = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
#pragma unroll
  for (int stage = 0; stage < Memory::kStages; ++stage) {
    source.copy_keys(slot + stage * 2 * Memory::kBlock);
    source.copy_values(slot + (stage * 2 + 1) * Memory::kBlock);
  }
  auto* queries = reinterpret_cast<uint32_t*>(memory + Memory::kQueries);
  query_source.template store<kFP8>(query_part, factors.score, queries, shared);
  __syncthreads();
  const bool few = tile.queries <= kSet;
  if (few) {
    attend_keys<D, kFP8, 1>(source, ring, queries, shared, tile, window, key, end);
  } else {
    attend_keys<D, kFP8, 2>(source, ring, queries, shared, tile, window, key, end);
  }
  __syncthreads();
  if (few) {
    put_tile<D, kFP8, 1>(a, tile, chunk, kv_head, per_key_head, factors.value, memory);
  } else {
    put_tile<D, kFP8, 2>(a, tile, chunk, kv_head, per_key_head, factors.value, memory);
  }
  if (!kFew || chunks == 1 || !factors.combine) return;
  if (!last_to_come(a.arrived + tile_index * gridDim.y + kv_head, chunks)) return;
  const int in_tile = static_cast<int>(threadIdx.x) / kCombineLanes;
  static_assert(kAttendThreads / kCombineLanes >= kQueryTile);
  if (in_tile >= tile.queries) return;
  const Query query(tile, in_tile, kv_head, per_key_head);
  const int seen = chunks_seen(window, query.position);
  if (seen > 1) combine_few<D>(a, query.row, query.head, seen, factors.value);
}

// A block takes every gridDim.x-th tile.
template <int D, bool kFP8, bool kFew>
__global__ void __launch_bounds__(kAttendThreads, 2)
    attend_kernel(const __grid_constant__ Attention a, const Factors factors) {
  extern __shared__ uint4 memory_start[];
  __shared__ TileMemory shared;
  let_others_start();
  // Which rows there are came before the step's first kernel: it need not be waited for.
  const int per_key_head = a.heads / a.cache.kv_heads;
  for (int at = blockIdx.x; at < a.query_tiles; at += gridDim.x) {
    const Tile tile = find_tile(a, at, per_key_head);
    if (tile.queries == 0) return;
    if (at != static_cast<int>(blockIdx.x)) __syncthreads();
    attend_tile<D, kFP8, kFew>(a, factors, tile, at, per_key_head,
                               reinterpret_cast<uint8_t*>(memory_start), shared);
  }
}

// A block for a head of a row that sees several chunks.
template <int D>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ Attention a, float value_scale) {
  let_others_start();
  const int64_t row = a.first_row + blockIdx.y;
  const int chunks = chunks_seen(a.cache.window, __ldcg(a.rows.positions + row));
  wait_for_others();
  if (chunks > 1) combine_by_block<D>(a, row, blockIdx.x, chunks, value_scale);
}

// A power of two is one instruction.
float score_factor(const Attention& a) {
  return kLog2E / sqrtf(static_cast<float>(a.cache.head_dim)) * (a.cache.fp8 ? a.cache.k_scale : 1);
}

template <int D, bool kFP8, bool kFew>
void attend_chunks(Stream stream, const Attention& a) {
  constexpr int kBytes = AttendMemory<D, kFP8>::kBytes;
  constexpr auto kKernel = attend_kernel<D, kFP8, kFew>;
  one_block_each<kKernel>(kBytes);
  const Factors factors = {.score = score_factor(a),
                           .value = kFP8 ? a.cache.v_scale : 1,
                           .combine = kFew && a.arrived != nullptr &&
                                      int64_t{a.query_tiles} * a.cache.kv_heads <= kMostArrivals};
  // Where chunks are blocks enough, those for tiles that are not there would take longer than they
  // are worth: then there are as many as for rows of one sequence.
  const int64_t queries = a.row_count * (a.heads / a.cache.kv_heads);
  const int64_t tiles =
      kFew ? a.query_tiles : std::min<int64_t>(a.query_tiles, ceil_divide(queries, kQueryTile));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(a.cache.kv_heads),
                  static_cast<unsigned>(a.most_tile_chunks));
  start(stream, kKernel, grid, kAttendThreads, kBytes, a, factors);
  if (factors.combine) return;
  const dim3 heads(static_cast<unsigned>(a.heads), static_cast<unsigned>(a.row_count));
  start(stream, combine_kernel<D>, heads, kCombineThreads, 0, a, factors.value);
}

template <int D, bool kFP8>
void attend_cache(Stream stream, const Attention& a) {
  if (a.most_tile_chunks <= kFewChunks) {
    attend_chunks<D, kFP8, true>(stream, a);
  } else {
    attend_chunks<D, kFP8, false>(stream, a);
  }
}

template <int D>
void attend_dim(Stream stream, const Attention& a) {
  if (a.cache.fp8) attend_cache<D, true>(stream, a);
  if (!a.cache.fp8) attend_cache<D, false>(stream, a);
}

}  // namespace

void attend(Stream stream, const Attention& a) {
  if (attend_few(stream, a, score_factor(a))) return;
  if (a.cache.head_dim == 16) attend_dim<16>(stream, a);
  if (a.cache.head_dim == 64) attend_dim<64>(stream, a);
  if (a.cache.head_dim == 128) attend_dim<128>(stream, a);
}

}  // namespace lagoon::kernels::cuda
