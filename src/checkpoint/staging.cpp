#include "checkpoint/staging.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <utility>

#include "base/check.h"

namespace lagoon::checkpoint {

Result<Pages> Pages::make(uint64_t bytes) {
  Pages pages;
  if (bytes == 0) return pages;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("no memory is left to read weights into: {:.1f} MB were asked for",
                             static_cast<double>(bytes) / 1e6)};
  // Large pages save the kernel most of its page faults; where there are none, it does without.
  (void)::madvise(at, bytes, MADV_HUGEPAGE);
  pages.data_ = static_cast<std::byte*>(at);
  pages.bytes_ = bytes;
  return pages;
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::byte* Ring::take(uint64_t bytes) {
  CHECK(bytes > 0 && bytes <= size());
  if (taken_ == 0) begin_ = end_ = 0;
  const bool wrapped = taken_ > 0 && end_ <= begin_;
  if (wrapped) {
    if (begin_ - end_ < bytes) return nullptr;
  } else if (size() - end_ < bytes) {
    // Not at the end: at the beginning, if that much of it is free.
    if (begin_ < bytes) return nullptr;
    end_ = 0;
  }
  std::byte* const span = memory_.data() + end_;
  end_ += bytes;
  ++taken_;
  return span;
}

void Ring::give_back(const std::byte* span, uint64_t bytes) {
  CHECK(taken_ > 0);
  begin_ = static_cast<uint64_t>(span - memory_.data()) + bytes;
  --taken_;
}

}  // namespace lagoon::checkpoint
