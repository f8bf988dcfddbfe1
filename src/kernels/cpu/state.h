// The memory of one model: its caches, and the rows of the step in progress.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/pending_context.h"
#include "kernels/cpu/rotations.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace lagoon::kernels::cpu {

// Rows of a step and the tiles they see.
struct RowTiles {
  RowGroup rows;
  std::vector<TileRun> tiles;
};

class CpuState final : public State {
 public:
  // Errors: no memory.
  static Result<std::unique_ptr<CpuState>> allocate(const StateShape& shape,
                                                    Activations activations);

  const StateShape& shape() const { return step_.shape(); }
  const Step& step() const { return step_; }
  std::span<const Row> rows() const { return step_.rows(); }

  // See Backend::randomize_caches().
  void randomize_caches(uint64_t key);

  void begin(const Batch& batch);
  void keep_proposals(std::span<const SampleRow> asked, std::span<const int32_t> tokens) {
    step_.keep_proposals(asked, tokens);
  }
  // See Step::count_experts.
  void count_experts(int64_t distinct) { step_.count_experts(distinct); }
  ExpertUse expert_use() const { return step_.expert_use(); }

  // [hidden] each. Taps are those of the last step.
  float* residual(int64_t row) { return residual_.data() + row * shape().hidden; }
  float* tap(int tap, int64_t row);
  const float* tap(int tap, int64_t row) const;
  Taps taps() const;

  // Of a draft, from the first call of draft_context() on.
  std::optional<PendingContext>& pending() { return pending_; }

  // StateShape::full[index] if window == 0, else StateShape::sliding[index].
  Cache& cache(int index, int window);
  // The rows of the step, in groups that one pass over the keys serves.
  const std::vector<RowTiles>& row_tiles(int window);

  Rotations& rotations() { return rotations_; }

 private:
  explicit CpuState(const StateShape& shape) : step_(shape, kTilePositions) {}

  Step step_;
  std::vector<Cache> full_;
  std::vector<Cache> sliding_;
  std::vector<float> residual_;  // [max_rows, hidden]
  std::vector<float> taps_;      // [taps, max_rows, hidden]
  Rotations rotations_;
  std::optional<PendingContext> pending_;
  std::map<int, std::vector<RowTiles>> row_tiles_;  // by window, of this step
};

// `state` as this backend made it; another backend's is a bug.
CpuState& as_cpu(State& state);
const CpuState& as_cpu(const State& state);

}  // namespace lagoon::kernels::cpu
