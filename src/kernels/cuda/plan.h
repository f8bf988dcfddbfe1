// How work is cut for the device: by sizes of the model and by positions, never by the number of
// rows of a step, so that a row's bits do not depend on its company.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/layout.h"

namespace lagoon::kernels::cuda {

// The warps of a block of a product. Each takes a slice of the columns of a tile; the sums of the
// slices are added in order.
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kLanes;

// Shared memory of a warp for weights that are on their way. On a GPU with 99 KiB for a block, one
// block fits; that is four times what its memory needs to be busy.
inline constexpr int kRingBytes = 10240;

struct Slices {
  int slices = 1;  // of a tile: a power of two up to kWarps
  int units = 1;   // of a slice; the last may have fewer, or none
  int log_slices = 0;
  LAGOON_DEVICE constexpr int tiles() const { return kWarps >> log_slices; }  // of a block
};
// At least three units each where there are that many: their loads are on the way together. Every
// warp asks this before all else, so there is no division in it.
LAGOON_DEVICE constexpr Slices slices_of(int64_t columns) {
  const int units = static_cast<int>(units_of(columns));
  const int log_slices = units >= 24 ? 3 : units >= 12 ? 2 : units >= 6 ? 1 : 0;
  const int slices = 1 << log_slices;
  return {slices, (units + slices - 1) >> log_slices, log_slices};
}

// Blocks of kWarps warps for all tiles of a matrix.
LAGOON_DEVICE constexpr int64_t blocks_of(int64_t rows, int64_t columns) {
  return ceil_divide(tiles_of(rows), slices_of(columns).tiles());
}

// Rows up to which weights are streamed through shared memory, by blocks that stay for all tiles.
inline constexpr int64_t kStreamedRows = 8;

// Row tiles of eight that a block of a product serves with one reading of its weights.
inline int row_tiles_of(int64_t rows) {
  return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
}

// Keys are cut into chunks at fixed positions: in layers with a window every 128, in others every
// 256 below 8,192, every 1,024 below 65,536, every 2,048 above. A chunk's sums are one partial
// result; those of a row are combined in order.
inline constexpr int kKeyBlock = 16;  // positions that a warp attends to at a time
LAGOON_DEVICE constexpr int chunk_of(int window, int position) {
  return window > 0         ? position / 128
         : position < 8192  ? position / 256
         : position < 65536 ? 32 + (position - 8192) / 1024
                            : 88 + (position - 65536) / 2048;
}
LAGOON_DEVICE constexpr int chunk_begin(int window, int chunk) {
  return window > 0   ? chunk * 128
         : chunk < 32 ? chunk * 256
         : chunk < 88 ? 8192 + (chunk - 32) * 1024
                      : 65536 + (chunk - 88) * 2048;
}
LAGOON_DEVICE constexpr int lowest_position(int window, int position) {
  return window == 0 || position < window ? 0 : position - window + 1;
}
// The chunks that a row at `position` sees.
LAGOON_DEVICE constexpr int chunks_seen(int window, int position) {
  return chunk_of(window, position) - chunk_of(window, lowest_position(window, position)) + 1;
}
// The most chunks that a row below `positions` sees. A window of any place may begin at the end of
// a chunk.
LAGOON_DEVICE constexpr int most_chunks_seen(int window, int positions) {
  return window == 0 ? chunks_seen(0, positions - 1)
                     : static_cast<int>(ceil_divide(window - 1, chunk_begin(window, 1))) + 1;
}

// As above, of rows of one tile of queries, which are neighbours.
LAGOON_DEVICE constexpr int most_tile_chunks_seen(int window, int positions) {
  return window == 0 ? chunks_seen(0, positions - 1)
                     : static_cast<int>(ceil_divide(window + 14, chunk_begin(window, 1))) + 1;
}

// Floats of partial results of a launch; longer steps take several.
inline constexpr int64_t kMostPartial = int64_t{32} << 20;

// Queries are taken in tiles of 16: the heads that share a key head, row after row of a sequence.
inline constexpr int kQueryTile = 16;
// The most tiles that so many rows take, of up to `sequences` sequences: the launches of a graph do
// not depend on whose rows they are, and blocks for tiles that are not there end at once.
// `queries`: heads that share a key head.
inline int64_t most_query_tiles(int64_t rows, int64_t queries, int64_t sequences) {
  const int64_t alone = rows * ceil_divide(queries, kQueryTile);
  const int64_t groups = sequences + rows / kQueryTile;
  return std::min(alone, rows * queries / kQueryTile + groups);
}

}  // namespace lagoon::kernels::cuda
