// Which pieces are small, and the stretches of file that hold them. For weight_reader.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/weight_reader.h"

namespace lagoon::checkpoint {

// Bytes up to which a piece counts as small.
uint64_t small_limit(std::span<const Piece> pieces);

// Page-aligned stretches that cover the pieces of at most `limit` bytes, sorted by file (its
// address) and offset; none touches another.
std::vector<Piece> small_stretches(std::span<const Piece> pieces, uint64_t limit);

}  // namespace lagoon::checkpoint
