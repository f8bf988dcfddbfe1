#include "kernels/ref/state.h"

#include <exception>

#include "base/check.h"

namespace lagoon::kernels::ref {
namespace {

int64_t element_bytes(const StateShape& shape, Activations activations) {
  if (shape.cache_type == CacheType::kFP8) return 1;
  return activations == Activations::kFloat32 ? 4 : 2;
}

}  // namespace

Result<std::unique_ptr<RefState>> RefState::allocate(const StateShape& shape,
                                                     Activations activations) {
  try {
    std::unique_ptr<RefState> state(new RefState(shape));
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
    return out_of_cache_memory(RefState(shape).step_, element_bytes(shape, activations));
  }
}

void RefState::begin(const Batch& batch) {
  step_.begin(batch, batch.proposals == nullptr ? nullptr : &as_ref(*batch.proposals).step_);
}

float* RefState::residual(int64_t row) {
  return residual_.data() + row * shape().hidden;
}

float* RefState::tap(int tap, int64_t row) {
  CHECK(tap >= 0 && tap < shape().taps && row >= 0 && row < static_cast<int64_t>(rows().size()));
  return taps_.data() + (int64_t{tap} * shape().max_rows + row) * shape().hidden;
}

const float* RefState::tap(int tap, int64_t row) const {
  return const_cast<RefState*>(this)->tap(tap, row);
}

Cache& RefState::cache(int index, int window) {
  std::vector<Cache>& caches = window == 0 ? full_ : sliding_;
  CHECK(index >= 0 && index < static_cast<int>(caches.size()));
  CHECK(caches[index].window() == window);
  return caches[index];
}

int64_t RefState::entry(const Cache& cache, int32_t sequence, int32_t position) const {
  return step_.entry(cache.window(), sequence, position);
}

void RefState::keep_proposals(std::span<const SampleRow> asked, std::span<const int32_t> tokens) {
  step_.keep_proposals(asked, tokens);
}

RefState& as_ref(State& state) {
  auto* ref = dynamic_cast<RefState*>(&state);
  CHECK(ref != nullptr);
  return *ref;
}

const RefState& as_ref(const State& state) {
  const auto* ref = dynamic_cast<const RefState*>(&state);
  CHECK(ref != nullptr);
  return *ref;
}

}  // namespace lagoon::kernels::ref
