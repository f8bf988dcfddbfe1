// Cosines and sines of rotary embeddings. Those of a position are the same in every layer that has
// the embedding, and a rejected position comes again: they are kept.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// Of the rows of a step: row r's cosines at r * 2 * pairs, its sines behind them; the
// attention_factor is included.
struct Rotation {
  int64_t pairs = 0;
  std::vector<float> values;

  const float* cosines(int64_t row) const { return values.data() + row * 2 * pairs; }
  const float* sines(int64_t row) const { return cosines(row) + pairs; }
};

class Rotations {
 public:
  // `positions`: of the rows of the step. What get() returned before is void.
  void begin(std::span<const int32_t> positions);
  // For all rows of the step. `rope` must outlive this, and not change.
  const Rotation& get(const Rope& rope, ThreadPool& pool);

 private:
  // Positions that were computed lately, each in the place of its remainder.
  struct Kept {
    std::vector<int32_t> positions;
    std::vector<float> values;
    Rotation of_step;
    bool current = false;  // of_step is of this step
  };

  std::vector<int32_t> positions_;
  std::unordered_map<const Rope*, Kept> kept_;
};

}  // namespace lagoon::kernels::cpu
