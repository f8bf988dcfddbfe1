// The device memory of one model: its caches, and the rows of the step in progress.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/transfer.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace lagoon::kernels::cuda {

class CudaState final : public State {
 public:
  // Errors: no memory; a head_dim or a page size that the kernels do not take.
  static Result<std::unique_ptr<CudaState>> allocate(Device& device, const StateShape& shape);
  ~CudaState() override;

  const StateShape& shape() const { return step_.shape(); }
  Step& step() { return step_; }
  const Step& step() const { return step_; }
  int64_t rows() const { return static_cast<int64_t>(step_.rows().size()); }

  // Room for steps of these layers and any shape, of sequences of at most so many positions. Error:
  // no memory.
  Result<void> reserve(int64_t positions, std::span<const AttentionLayer> layers);

  // See Backend::randomize_caches().
  void randomize_caches(uint64_t key);

  // Takes over the rows and page tables of a step and sends them to the device, where proposals
  // become tokens.
  void begin(const Batch& batch);

  Graphs& graphs() { return graphs_; }
  // Operations of the step that were asked for and are not on the stream yet: what they are is part
  // of the key of their graph. One of the three is set. What they point to stays until the step is
  // over.
  struct Operation {
    const MatrixView* table = nullptr;  // embed
    const AttentionLayer* attention = nullptr;
    const FfnLayer* ffn = nullptr;
  };
  std::vector<Operation>& operations() { return operations_; }
  // Everything that launches of the step depend on beside its operations; 0: it shall not become a
  // graph.
  uint64_t key() const;
  // Positions that launches of the step provide for: it has none at or beyond. Rounded up, so that
  // steps at nearby positions are alike, unless the step has many rows.
  int positions() const { return positions_; }

  // Of the step, on the device.
  const RowsView& rows_view() const { return view_; }
  const int32_t* tokens() const { return use_ + 2; }
  // Of a step that may become a graph as many as it has rows, the last ones empty.
  const Group* groups() const { return device_groups_; }
  std::span<const RowGroup> host_groups() const { return groups_; }
  // Counts as ExpertUse does, on the device: {layers, distinct}, followed by tokens(); null before
  // the first step.
  int32_t* expert_use() const { return use_; }
  // What head_sample() brings to the host along with the tokens it drew: both of these, {layers,
  // distinct, tokens of rows ...}. Empty before it.
  std::span<const int32_t> counts_and_tokens() const { return counts_and_tokens_; }
  void keep_counts_and_tokens(std::span<const int32_t> values) {
    counts_and_tokens_.assign(values.begin(), values.end());
  }

  // Of a draft, on the device: tokens by place (Step::keep_places).
  int32_t* proposals() const { return proposals_; }
  // Rows asked for and how they are drawn; what was drawn; rows of draft_context(). Each state has
  // its own, or a target would wait for its draft.
  Upload& draws() { return draws_; }
  Download& drawn() { return drawn_; }
  Upload& context() { return context_; }

  // [kMostArrivals] zeros between kernels, where the blocks of one after the other count themselves
  // and, of the shared expert, leave logits.
  int32_t* arrived() const { return arrived_; }
  // Where the choice of a layer is announced (Routing::made); `ordinal`: of its table.
  int32_t* made(int ordinal) const { return arrived_ + kMostArrivals + ordinal % kMostChoices; }

  // [max_rows, hidden], and [taps, max_rows, hidden].
  float* residual() const { return residual_; }
  float* tap(int tap) const;

  // StateShape::full[index] if window == 0, else StateShape::sliding[index].
  CacheView cache(const AttentionLayer& layer) const;

  // The rotations of the step's rows: computed once a step for each of a few ropes.
  const float* rotations(const Rope& rope);

 private:
  CudaState(Device& device, const StateShape& shape);
  Result<void> take_memory();

  Device& device_;
  Step step_;
  std::vector<RowGroup> groups_;
  std::vector<uint8_t*> owned_;
  std::vector<CacheView> full_, sliding_;
  float* residual_ = nullptr;
  float* taps_ = nullptr;
  float* rotations_ = nullptr;      // [kRopes, max_rows, kMostPairs, 2]
  std::vector<const Rope*> ropes_;  // whose rotations are there
  size_t next_rope_ = 0;
  int32_t* proposals_ = nullptr;  // [sequences * max_rows]
  int32_t* arrived_ = nullptr;    // [kMostArrivals + kMostChoices]
  Upload upload_, draws_, context_;
  Download drawn_;
  RowsView view_;
  const Group* device_groups_ = nullptr;
  int32_t* use_ = nullptr;
  std::vector<int32_t> counts_and_tokens_;
  int positions_ = 0;
  int most_positions_ = 0;             // as reserved; 0: not known
  std::map<int, int64_t> row_floats_;  // likewise, of partial results a row and chunk, by window
  Graphs graphs_;
  std::vector<Operation> operations_;
};

// `state` as this backend made it; another backend's is a bug.
CudaState& as_cuda(State& state);
const CudaState& as_cuda(const State& state);

// The frequencies of a rope as a kernel takes them.
Frequencies frequencies_of(const Rope& rope);

}  // namespace lagoon::kernels::cuda
