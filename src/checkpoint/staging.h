// Memory that reads go into. For weight_reader.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace lagoon::checkpoint {

// Anonymous memory, aligned to pages, given back when destroyed.
class Pages {
 public:
  Pages() = default;
  static Result<Pages> make(uint64_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A ring: spans are given back in the order in which they were taken.
class Ring {
 public:
  explicit Ring(Pages memory) : memory_(static_cast<Pages&&>(memory)) {}

  uint64_t size() const { return memory_.size(); }
  // `bytes` in one piece, at most size(); null where there is no room now.
  std::byte* take(uint64_t bytes);
  // Up to the end of the span of `bytes` at `span`, which is the oldest.
  void give_back(const std::byte* span, uint64_t bytes);

 private:
  Pages memory_;
  uint64_t begin_ = 0;  // of the oldest span
  uint64_t end_ = 0;    // of the youngest; begin_ == end_ and nothing taken: empty
  uint64_t taken_ = 0;  // spans
};

}  // namespace lagoon::checkpoint
