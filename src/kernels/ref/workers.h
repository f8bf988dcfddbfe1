// The threads of the reference backend, each with a buffer of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"

namespace lagoon::kernels::ref {

// Memory that grows to the largest size asked for and keeps nothing between uses.
class Buffer {
 public:
  // `count` floats of unspecified value, valid until the next call.
  float* floats(int64_t count) {
    if (static_cast<int64_t>(values_.size()) < count) values_.resize(count);
    return values_.data();
  }

 private:
  std::vector<float> values_;
};

// One loop at a time, from one thread.
class Workers {
 public:
  explicit Workers(int threads) : pool_(threads), scratch_(threads) {}

  // body(item, scratch) for each item in [0, count). Items are dealt to the threads in turn, so
  // that work which grows along the loop is shared evenly. Two bodies that run at the same time
  // have different scratch.
  void for_each(int64_t count, const std::function<void(int64_t, Buffer&)>& body);

 private:
  ThreadPool pool_;
  std::vector<Buffer> scratch_;
};

}  // namespace lagoon::kernels::ref
