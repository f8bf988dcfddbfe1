// The weights of a Laguna target and of a DFlash draft, in a backend's layout, grouped as
// kernels/ops.h wants them. Tensor names are those of the published checkpoints, with the few
// variants that are about.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/weight_reader.h"
#include "kernels/ops.h"
#include "model/tensor_source.h"

namespace lagoon::model {

struct TargetWeights {
  std::unique_ptr<kernels::Rope> full_rope;  // null where no layer needs it
  std::unique_ptr<kernels::Rope> sliding_rope;
  kernels::Weight embedding;                       // [vocab, hidden]
  std::vector<kernels::AttentionLayer> attention;  // one per layer
  std::vector<kernels::FfnLayer> ffn;              // one per layer
  kernels::Weight lm_head;                         // [vocab, hidden]
  kernels::Head head;                              // of lm_head
};

struct DraftWeights {
  std::unique_ptr<kernels::Rope> rope;
  kernels::DraftContext context;
  std::vector<kernels::AttentionLayer> attention;
  std::vector<kernels::FfnLayer> ffn;
  kernels::Head head;  // the draft's norm, the target's lm_head
};

// The walk: asks the source for every tensor that a model of this config has, and puts what it
// gives in place. No layer has a tap, and the draft's head has no lm_head.
Result<TargetWeights> read_target(TensorSource& source, const checkpoint::TargetConfig& config);
Result<DraftWeights> read_draft(TensorSource& source, const checkpoint::DraftConfig& config);

// Compares the checkpoint with what the config needs; reads headers only. Errors name file and
// tensor: one is missing, has another dtype or shape, or is not part of such a model.
Result<void> check_target_tensors(const checkpoint::ModelDir& dir,
                                  const checkpoint::TargetConfig& config);
Result<void> check_draft_tensors(const checkpoint::ModelDir& dir,
                                 const checkpoint::DraftConfig& config);

// A checkpoint that fits its config and whose scales are good, about to be read by a TensorLoader
// that walks once.
struct OpenWeights {
  std::unique_ptr<checkpoint::WeightReader> reader;
  uint64_t bytes = 0;  // that will be read
};
// Errors: those of check_target_tensors(), scales that make no sense, a file that cannot be read.
Result<OpenWeights> open_target_weights(const checkpoint::ModelDir& dir,
                                        const checkpoint::TargetConfig& config,
                                        const checkpoint::ReadOptions& options);
Result<OpenWeights> open_draft_weights(const checkpoint::ModelDir& dir,
                                       const checkpoint::DraftConfig& config,
                                       const checkpoint::ReadOptions& options);

// Layers named in `tap_layers` keep their output as the tap of that index.
void set_taps(TargetWeights& weights, const std::vector<int>& tap_layers);

}  // namespace lagoon::model
