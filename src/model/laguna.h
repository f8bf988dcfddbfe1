// Loads a Laguna target, and the DFlash draft that belongs to it, onto a backend.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "checkpoint/load_progress.h"
#include "checkpoint/model_dir.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/random_weights.h"

namespace lagoon::model {

struct LoadOptions {
  int slots = 1;           // sequences at a time
  int max_rows = 512;      // rows of a step
  int64_t max_length = 0;  // positions of a sequence; 0: the checkpoint's max_position_embeddings
  int64_t pool_tokens =
      0;  // positions that all sequences' pages hold together; 0: slots * max_length
  // Of the target. The draft's keys and values are few, and proposals are worth the exact ones.
  kernels::CacheType cache_type = kernels::CacheType::kActivations;
  // Told of phases and bytes as they are read; null: nobody wants to know. Outlives load().
  checkpoint::LoadProgress* progress = nullptr;
  // Weights are made for the configs, and no tensor of either directory is looked at.
  std::optional<RandomOptions> random = {};
  // Caches begin as random numbers in place of nothing, for Model::take_as_computed().
  bool random_caches = false;
  // Proposals that a step may verify though there is no draft (they come from elsewhere); beside a
  // draft, its own number counts.
  int foreign_proposals = 0;
};

// The memory of keys, values and rows that load() takes, for whoever plans it. Of `options` slots,
// max_rows, pool_tokens (which must be given) and cache_type count.
kernels::StateShape target_state_shape(const checkpoint::TargetConfig& config,
                                       const checkpoint::DraftConfig* draft,
                                       const LoadOptions& options);
kernels::StateShape draft_state_shape(const checkpoint::DraftConfig& config, int slots);

// Whether the draft belongs to the target and, unless its weights are made, is complete: from
// configs and tensor headers alone.
Result<void> check_draft(const checkpoint::ModelDir& target, const checkpoint::ModelDir& draft,
                         const LoadOptions& options);

// `draft` may be null. Everything is checked against both configs and all tensor headers before a
// weight is read; errors name file and tensor. The backend must outlive the model.
Result<std::unique_ptr<Model>> load(const checkpoint::ModelDir& target,
                                    const checkpoint::ModelDir* draft, kernels::Backend& backend,
                                    const LoadOptions& options);

}  // namespace lagoon::model
