// The memory of one model: its caches, and the rows of the step in progress.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "kernels/ref/cache.h"
#include "kernels/step.h"

namespace lagoon::kernels::ref {

class RefState final : public State {
 public:
  // Errors: no memory.
  static Result<std::unique_ptr<RefState>> allocate(const StateShape& shape,
                                                    Activations activations);

  const StateShape& shape() const { return step_.shape(); }
  const Step& step() const { return step_; }

  // Takes over the rows and page tables of a step. What does not keep to ops.h is a bug (CHECK).
  void begin(const Batch& batch);
  // The rows of the step, proposals resolved.
  std::span<const Row> rows() const { return step_.rows(); }

  // [hidden] each. Taps are those of the last step.
  float* residual(int64_t row);
  float* tap(int tap, int64_t row);
  const float* tap(int tap, int64_t row) const;

  // See Step::count_experts.
  void count_experts(int64_t distinct) { step_.count_experts(distinct); }
  ExpertUse expert_use() const { return step_.expert_use(); }

  // StateShape::full[index] if window == 0, else StateShape::sliding[index].
  Cache& cache(int index, int window);
  // Where a position lies in a cache of this state (Step::entry).
  int64_t entry(const Cache& cache, int32_t sequence, int32_t position) const;

  // See Step::keep_proposals.
  void keep_proposals(std::span<const SampleRow> asked, std::span<const int32_t> tokens);

 private:
  explicit RefState(const StateShape& shape) : step_(shape) {}

  Step step_;
  std::vector<Cache> full_;
  std::vector<Cache> sliding_;
  std::vector<float> residual_;  // [max_rows, hidden]
  std::vector<float> taps_;      // [taps, max_rows, hidden]
};

// `state` as this backend made it; another backend's is a bug.
RefState& as_ref(State& state);
const RefState& as_ref(const State& state);

}  // namespace lagoon::kernels::ref
