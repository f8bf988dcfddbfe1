#include "checkpoint/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/check.h"

namespace lagoon::checkpoint {

bool may_ask_for_pages(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return false;
  const uid_t user = ::geteuid();
  if (user == 0 || user == status.st_uid) return true;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

std::vector<uint8_t> resident_pages(std::span<const std::byte> mapping, uint64_t offset,
                                    uint64_t bytes) {
  CHECK(offset % kPageBytes == 0);
  std::vector<uint8_t> pages(page_ceil(bytes) / kPageBytes, 0);
  // A system whose pages are larger than ours tells of larger ones: not worth the arithmetic.
  if (pages.empty() || static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) != kPageBytes) return pages;
  const uint64_t there = std::min(bytes, mapping.size() - std::min(offset, mapping.size()));
  if (there == 0) return pages;
  auto* const begin = const_cast<std::byte*>(mapping.data()) + offset;
  if (::mincore(begin, there, pages.data()) != 0) std::fill(pages.begin(), pages.end(), 0);
  for (uint8_t& page : pages) page &= 1u;
  return pages;
}

void drop_pages(int descriptor, uint64_t offset, std::span<const uint8_t> keep) {
  for (size_t first = 0; first < keep.size();) {
    if (keep[first] != 0) {
      ++first;
      continue;
    }
    size_t end = first;
    while (end < keep.size() && keep[end] == 0) ++end;
    // Advice: where it is not taken, there is nothing to be done.
    (void)::posix_fadvise(descriptor, static_cast<off_t>(offset + first * kPageBytes),
                          static_cast<off_t>((end - first) * kPageBytes), POSIX_FADV_DONTNEED);
    first = end;
  }
}

PageCacheGuard::PageCacheGuard(int descriptor, std::span<const std::byte> mapping)
    : descriptor_(descriptor), mapping_(mapping) {
  // What is read ahead would be left behind.
  (void)::posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
}

void PageCacheGuard::before_reading(uint64_t bytes) {
  const uint64_t known = were_there_.size() * kPageBytes;
  const uint64_t end = page_ceil(bytes);
  if (end <= known) return;
  const std::vector<uint8_t> more = resident_pages(mapping_, known, end - known);
  were_there_.insert(were_there_.end(), more.begin(), more.end());
}

PageCacheGuard::~PageCacheGuard() {
  if (may_ask_for_pages(descriptor_)) drop_pages(descriptor_, 0, were_there_);
}

}  // namespace lagoon::checkpoint
