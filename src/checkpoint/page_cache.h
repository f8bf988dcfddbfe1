// What the system keeps of a file in its page cache, so that reading some tens of gigabytes leaves
// the cache as it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lagoon::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;  // what direct I/O is aligned to as well

constexpr uint64_t page_floor(uint64_t offset) {
  return offset / kPageBytes * kPageBytes;
}
constexpr uint64_t page_ceil(uint64_t offset) {
  return page_floor(offset + kPageBytes - 1);
}

// Whether resident_pages() tells the truth of this file: Linux tells those who own it or may write
// it. (Others hear that everything is there.)
bool may_ask_for_pages(int descriptor);

// For each page of [offset, offset + bytes) whether it is in the page cache: 1 or 0. `mapping` is
// the whole file, mapped; offset is a page's. Where the system does not say, all 0.
std::vector<uint8_t> resident_pages(std::span<const std::byte> mapping, uint64_t offset,
                                    uint64_t bytes);

// Drops the pages from `offset` on whose entry in `keep` is 0. Those that are being written, or
// mapped and in use by someone, stay.
void drop_pages(int descriptor, uint64_t offset, std::span<const uint8_t> keep);

// Reads of a file between its beginning and its end leave no page behind that was not there before.
class PageCacheGuard {
 public:
  // Both outlive the guard.
  PageCacheGuard(int descriptor, std::span<const std::byte> mapping);
  ~PageCacheGuard();
  PageCacheGuard(const PageCacheGuard&) = delete;
  PageCacheGuard& operator=(const PageCacheGuard&) = delete;

  // Before [0, bytes) is read; of several calls each is longer than the last.
  void before_reading(uint64_t bytes);

 private:
  const int descriptor_;
  const std::span<const std::byte> mapping_;
  std::vector<uint8_t> were_there_;
};

}  // namespace lagoon::checkpoint
