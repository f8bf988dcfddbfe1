// From the options of a command to the memory plan, and to what the model is loaded with.
#pragma once

#include <optional>

#include "app/options.h"
#include "base/result.h"
#include "checkpoint/model_dir.h"
#include "kernels/ops.h"
#include "model/laguna.h"
#include "plan/memory_plan.h"

namespace lagoon::app {

// What is loaded, from its files or, with --load-format dummy, from its configs alone.
struct PlanSubject {
  const checkpoint::ModelDir& target;
  const checkpoint::TargetConfig& config;
  const checkpoint::ModelDir* draft = nullptr;  // null: none, or one without proposals
};

// The type of key and value caches that --kv-cache-dtype asks for.
kernels::CacheType cache_type(const std::string& kv_cache_dtype,
                              const checkpoint::TargetConfig& config);

// Prompt and answer together. Error: longer than the model was made for, or shorter than
// enough_length, which is then that of the prompts and answers of `lagoon bench`.
Result<int64_t> context_length(const ModelOptions& options, const checkpoint::TargetConfig& config);

// Rows of a step at most, unless --max-num-batched-tokens says, for so many requests at a time.
int rows_of_step(int slots);

// The memory of this machine, and of the backend's device.
Result<plan::Machine> read_machine(const kernels::Backend& backend);

// What the options ask for; the inventories are for the caller to fill in. Error: options that
// contradict each other.
Result<plan::Demand> make_demand(const ModelOptions& options,
                                 const checkpoint::TargetConfig& config,
                                 const kernels::Backend& backend);

struct PlannedModel {
  plan::Demand demand;
  plan::Machine machine;
  plan::MemoryPlan plan;  // fits
  model::LoadOptions load;
};

// Error: the refusal of the plan. Before that the page cache of the model's own files is given
// back, which may be what is missing.
Result<PlannedModel> plan_model(const ModelOptions& options, const PlanSubject& subject,
                                const kernels::Backend& backend);

}  // namespace lagoon::app
