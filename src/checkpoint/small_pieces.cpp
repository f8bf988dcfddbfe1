#include "checkpoint/small_pieces.h"

#include <algorithm>
#include <functional>

#include "checkpoint/page_cache.h"

namespace lagoon::checkpoint {
namespace {

constexpr uint64_t kMostSmall = 64 << 10;     // bytes of one piece
constexpr uint64_t kMostTogether = 64 << 20;  // bytes of all
constexpr uint64_t kGap = 16 << 10;           // read over rather than around

uint64_t total_up_to(std::span<const Piece> pieces, uint64_t limit) {
  uint64_t total = 0;
  for (const Piece& piece : pieces)
    if (piece.bytes <= limit) total += piece.bytes;
  return total;
}

}  // namespace

uint64_t small_limit(std::span<const Piece> pieces) {
  uint64_t limit = kMostSmall;
  while (limit > kPageBytes && total_up_to(pieces, limit) > kMostTogether) limit /= 2;
  return limit;
}

std::vector<Piece> small_stretches(std::span<const Piece> pieces, uint64_t limit) {
  std::vector<Piece> small;
  for (const Piece& piece : pieces)
    if (piece.bytes > 0 && piece.bytes <= limit) small.push_back(piece);
  std::sort(small.begin(), small.end(), [](const Piece& a, const Piece& b) {
    return a.file != b.file ? std::less<>()(a.file, b.file) : a.offset < b.offset;
  });
  std::vector<Piece> stretches;
  for (const Piece& piece : small) {
    const uint64_t begin = page_floor(piece.offset);
    const uint64_t end = page_ceil(piece.offset + piece.bytes);
    Piece* const last = stretches.empty() ? nullptr : &stretches.back();
    if (last == nullptr || last->file != piece.file || begin > last->offset + last->bytes + kGap) {
      stretches.push_back({piece.file, begin, end - begin});
    } else if (end > last->offset + last->bytes) {
      last->bytes = end - last->offset;
    }
  }
  return stretches;
}

}  // namespace lagoon::checkpoint
