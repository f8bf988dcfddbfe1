#include "kernels/cpu/rotations.h"

#include <algorithm>
#include <cmath>

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kKeptPositions = 1024;

// As ref::Rotation.
void compute(const Rope& rope, int32_t position, float* values) {
  const size_t pairs = rope.inverse_frequencies.size();
  for (size_t j = 0; j < pairs; ++j) {
    const float angle = static_cast<float>(position) * rope.inverse_frequencies[j];
    values[j] = std::cos(angle) * rope.attention_factor;
    values[pairs + j] = std::sin(angle) * rope.attention_factor;
  }
}

}  // namespace

void Rotations::begin(std::span<const int32_t> positions) {
  positions_.assign(positions.begin(), positions.end());
  for (auto& [rope, kept] : kept_) kept.current = false;
}

const Rotation& Rotations::get(const Rope& rope, ThreadPool& pool) {
  Kept& kept = kept_[&rope];
  if (kept.current) return kept.of_step;
  kept.current = true;
  const auto pairs = static_cast<int64_t>(rope.inverse_frequencies.size());
  const int64_t size = 2 * pairs;
  if (kept.positions.empty()) {
    kept.positions.assign(kKeptPositions, -1);
    kept.values.resize(static_cast<size_t>(kKeptPositions * size));
  }
  const auto rows = static_cast<int64_t>(positions_.size());
  kept.of_step.pairs = pairs;
  kept.of_step.values.resize(static_cast<size_t>(rows * size));
  std::vector<int64_t> missing;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t place = positions_[r] % kKeptPositions;
    if (kept.positions[place] != positions_[r]) {
      missing.push_back(r);
    } else {
      std::copy_n(kept.values.data() + place * size, size, kept.of_step.values.data() + r * size);
    }
  }
  pool.parallel_for(static_cast<int64_t>(missing.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      compute(rope, positions_[missing[i]], kept.of_step.values.data() + missing[i] * size);
    }
  });
  for (const int64_t r : missing) {
    const int64_t place = positions_[r] % kKeptPositions;
    kept.positions[place] = positions_[r];
    std::copy_n(kept.of_step.values.data() + r * size, size, kept.values.data() + place * size);
  }
  return kept.of_step;
}

}  // namespace lagoon::kernels::cpu
