#include "kernels/cpu/state.h"

#include <exception>

#include "base/check.h"
#include "numeric/random_numbers.h"

namespace lagoon::kernels::cpu {
namespace {

// Rows of a sequence that one pass over their keys and values serves. A row's result does not
// depend on it.
constexpr int64_t kGroupRows = 16;

}  // namespace

Result<std::unique_ptr<CpuState>> CpuState::allocate(const StateShape& shape,
                                                     Activations activations) {
  CHECK(shape.full.empty() || shape.page_tokens % kTilePositions == 0);
  try {
    std::unique_ptr<CpuState> state(new CpuState(shape));
    for (const auto* caches : {&shape.full, &shape.sliding}) {
      for (const CacheShape& cache : *caches) {
        (cache.window == 0 ? state->full_ : state->sliding_)
            .emplace_back(cache, state->step_.entries(cache.window), activations, shape.cache_type);
      }
    }
    const int64_t step_values = int64_t{shape.max_rows} * shape.hidden;
    state->residual_.resize(step_values);
    state->taps_.resize(shape.taps * step_values);
    return state;
  } catch (const std::exception&) {  // bad_alloc or length_error
    return out_of_cache_memory(CpuState(shape).step_,
                               bytes_of(element_of(activations, shape.cache_type)));
  }
}

void CpuState::randomize_caches(uint64_t key) {
  const bool fp8 = shape().cache_type == CacheType::kFP8;
  for (std::vector<Cache>* caches : {&full_, &sliding_}) {
    for (Cache& cache : *caches) {
      const numeric::RandomNumbers numbers{numeric::mix_bits(++key)};
      std::vector<float> vectors(2 * static_cast<size_t>(cache.head_dim()));
      uint64_t next = 0;
      for (int64_t entry = 0; entry < step_.entries(cache.window()); ++entry) {
        for (int head = 0; head < cache.kv_heads(); ++head) {
          for (float& x : vectors) x = (fp8 ? 64.0F : 1.0F) * numbers.normal(next++);
          cache.put(entry, head, vectors.data(), vectors.data() + cache.head_dim(), 1, 1);
        }
      }
    }
  }
}

void CpuState::begin(const Batch& batch) {
  step_.begin(batch, batch.proposals == nullptr ? nullptr : &as_cpu(*batch.proposals).step_);
  std::vector<int32_t> positions;
  positions.reserve(rows().size());
  for (const Row& row : rows()) positions.push_back(row.position);
  rotations_.begin(positions);
  row_tiles_.clear();
}

float* CpuState::tap(int tap, int64_t row) {
  CHECK(tap >= 0 && tap < shape().taps && row >= 0 && row < static_cast<int64_t>(rows().size()));
  return taps_.data() + (int64_t{tap} * shape().max_rows + row) * shape().hidden;
}

const float* CpuState::tap(int tap, int64_t row) const {
  return const_cast<CpuState*>(this)->tap(tap, row);
}

Taps CpuState::taps() const {
  return {.first = taps_.data(),
          .tap_stride = int64_t{shape().max_rows} * shape().hidden,
          .hidden = shape().hidden,
          .count = shape().taps};
}

Cache& CpuState::cache(int index, int window) {
  std::vector<Cache>& caches = window == 0 ? full_ : sliding_;
  CHECK(index >= 0 && index < static_cast<int>(caches.size()));
  CHECK(caches[index].window() == window);
  return caches[index];
}

const std::vector<RowTiles>& CpuState::row_tiles(int window) {
  std::vector<RowTiles>& found = row_tiles_[window];
  if (!found.empty()) return found;
  for (const RowGroup& group : group_rows(rows(), kGroupRows)) {
    found.push_back(
        {group, find_tiles(step_, window, group.sequence, lowest_seen(window, group.first_position),
                           group.first_position + group.rows)});
  }
  return found;
}

CpuState& as_cpu(State& state) {
  auto* cpu = dynamic_cast<CpuState*>(&state);
  CHECK(cpu != nullptr);
  return *cpu;
}

const CpuState& as_cpu(const State& state) {
  const auto* cpu = dynamic_cast<const CpuState*>(&state);
  CHECK(cpu != nullptr);
  return *cpu;
}

}  // namespace lagoon::kernels::cpu
