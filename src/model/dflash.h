// A DFlash draft: proposes up to block_size - 1 tokens in one forward pass. Its keys and values for
// committed positions come from the target's taps, not from its own residual stream
// (docs/design.md, "The model").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/weights.h"

namespace lagoon::model {

class DFlash {
 public:
  // `embedding` is that of the target, whose state `target` is; both and the backend must outlive
  // the draft. `slots` sequences of at most `max_length` positions at a time.
  static Result<std::unique_ptr<DFlash>> create(const checkpoint::DraftConfig& config,
                                                DraftWeights weights,
                                                const kernels::PackedWeight& embedding,
                                                const kernels::State& target, int slots,
                                                int64_t max_length, kernels::Backend& backend);

  int max_proposals() const { return block_size_ - 1; }
  const kernels::State& state() const { return *state_; }
  kernels::State& state() { return *state_; }

  // Makes k proposals for each anchor, which stay in state(): nobody waits for them. The context of
  // every anchor's sequence must reach up to its position.
  void propose(std::span<const Anchor> anchors, int k);

  // Of positions [begin, end) of a sequence, the first that a row at `end` or later can see.
  int32_t first_useful(int32_t begin, int32_t end) const;
  // Writes the context of committed positions from the taps of the target's last step.
  void extend_context(const kernels::State& target, std::span<const kernels::ContextRow> rows);

 private:
  DFlash(const checkpoint::DraftConfig& config, DraftWeights weights,
         const kernels::PackedWeight& embedding, kernels::Backend& backend);

  int block_size_;
  int window_;
  int32_t mask_token_;
  DraftWeights weights_;
  const kernels::PackedWeight& embedding_;
  kernels::Backend& backend_;
  std::unique_ptr<kernels::State> state_;
  std::vector<kernels::Row> rows_;
  std::vector<kernels::SampleRow> asked_;
  std::vector<std::span<const int32_t>> no_pages_;  // a table per slot: no layer needs one
};

}  // namespace lagoon::model
