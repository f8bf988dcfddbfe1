#include "app/plan_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/make_backend.h"
#include "checkpoint/weight_reader.h"

namespace lagoon::app {
namespace {

constexpr size_t kHoldersTold = 3;

plan::Layout layout_of(const kernels::Backend& backend) {
  if (backend.name() == "cuda") return plan::Layout::kCuda;
  return backend.name() == "ref" ? plan::Layout::kRef : plan::Layout::kCpu;
}

template <typename Config>
Result<plan::Inventory> inventory_of(const ModelOptions& options,
                                     const checkpoint::ModelDir& directory, const Config& config) {
  if (!options.dummy) return plan::take_inventory(directory);
  return plan::expected_inventory(config, directory.config_json(),
                                  directory.file_path("config.json"));
}

std::vector<std::string> weight_files(const PlanSubject& subject) {
  std::set<std::string> paths;
  for (const checkpoint::ModelDir* directory : {&subject.target, subject.draft}) {
    if (directory == nullptr) continue;
    for (const checkpoint::Tensor& tensor : directory->tensors()) paths.insert(tensor.file->path());
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

kernels::CacheType cache_type(const std::string& kv_cache_dtype,
                              const checkpoint::TargetConfig& config) {
  const bool fp8 = kv_cache_dtype == "auto" ? config.fp8_cache : kv_cache_dtype != "bfloat16";
  return fp8 ? kernels::CacheType::kFP8 : kernels::CacheType::kActivations;
}

Result<int64_t> context_length(const ModelOptions& options,
                               const checkpoint::TargetConfig& config) {
  if (options.max_length > config.max_positions) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-model-len is {}, and the model was made for at most {} tokens "
                             "(max_position_embeddings in its config.json)",
                             options.max_length, config.max_positions)};
  }
  const int64_t length = options.max_length > 0 ? options.max_length : config.max_positions;
  if (options.enough_length > length) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--input-len and --output-len make {} tokens, and {}", options.enough_length,
                    options.max_length > 0
                        ? fmt::format("--max-model-len is {}", length)
                        : fmt::format("the model was made for at most {} "
                                      "(max_position_embeddings in its config.json)",
                                      length))};
  }
  return options.max_length == 0 && options.enough_length > 0 ? options.enough_length : length;
}

int rows_of_step(int slots) {
  return std::max(model::LoadOptions().max_rows, slots);
}

Result<plan::Machine> read_machine(const kernels::Backend& backend) {
  plan::Machine machine;
  LAGOON_ASSIGN(machine.host, plan::read_host_memory());
  machine.device = layout_of(backend) == plan::Layout::kCuda ? "cuda:0" : "cpu";
  machine.device_memory = backend.device_memory();
  return machine;
}

Result<plan::Demand> make_demand(const ModelOptions& options,
                                 const checkpoint::TargetConfig& config,
                                 const kernels::Backend& backend) {
  if (options.max_batched_tokens > 0 && options.max_batched_tokens < options.slots) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-num-batched-tokens is {}, and each of the {} requests of "
                             "--max-num-seqs needs one at least",
                             options.max_batched_tokens, options.slots)};
  }
  plan::Demand demand;
  demand.target = config;
  demand.layout = layout_of(backend);
  demand.threads = thread_count(options.threads);
  demand.cache_type = cache_type(options.kv_cache_dtype, config);
  LAGOON_ASSIGN(demand.max_length, context_length(options, config));
  demand.fit_length = options.fit_length;
  demand.slots = options.slots;
  demand.max_rows =
      options.max_batched_tokens > 0 ? options.max_batched_tokens : rows_of_step(options.slots);
  demand.foreign_proposals = options.foreign_proposals;
  demand.pool_bytes = options.kv_cache_bytes;
  demand.utilization = options.memory_utilization;
  return demand;
}

Result<PlannedModel> plan_model(const ModelOptions& options, const PlanSubject& subject,
                                const kernels::Backend& backend) {
  PlannedModel planned;
  LAGOON_ASSIGN(planned.demand, make_demand(options, subject.config, backend));
  plan::Demand& demand = planned.demand;
  LAGOON_ASSIGN(demand.weights, inventory_of(options, subject.target, subject.config));
  if (!options.dummy) {
    demand.staging_bytes = static_cast<int64_t>(checkpoint::staging_bound(subject.target));
  }
  if (subject.draft != nullptr) {
    const checkpoint::ModelDir& draft = *subject.draft;
    LAGOON_ASSIGN(demand.draft, checkpoint::parse_draft_config(draft.config_json(),
                                                               draft.file_path("config.json")));
    LAGOON_ASSIGN(demand.draft_weights, inventory_of(options, draft, *demand.draft));
    if (!options.dummy) {
      demand.staging_bytes += static_cast<int64_t>(checkpoint::staging_bound(draft));
    }
  }
  LAGOON_ASSIGN(planned.machine, read_machine(backend));
  planned.plan = plan::make_plan(demand, planned.machine);
  if (!planned.plan.refusal.empty()) {
    plan::drop_page_cache(weight_files(subject));
    LAGOON_ASSIGN(planned.machine, read_machine(backend));
    planned.machine.holders = plan::largest_holders(kHoldersTold);
    planned.plan = plan::make_plan(demand, planned.machine);
  }
  if (!planned.plan.refusal.empty()) {
    return Error{ErrorCode::kResourceExhausted, planned.plan.refusal};
  }
  planned.load.slots = demand.slots;
  planned.load.max_rows = demand.max_rows;
  planned.load.max_length = planned.plan.max_length;
  planned.load.pool_tokens = planned.plan.pool_tokens;
  planned.load.cache_type = demand.cache_type;
  if (options.dummy) {
    planned.load.random = model::RandomOptions{.seed = options.dummy_seed,
                                               .routing_overlap = options.dummy_routing_overlap};
  }
  planned.load.random_caches = options.random_caches;
  planned.load.foreign_proposals = demand.foreign_proposals;
  return planned;
}

}  // namespace lagoon::app
