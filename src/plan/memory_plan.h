// What a model will take of this machine, part by part, before a byte of its weights is read, and
// whether that fits: `lagoon serve` goes by it, `lagoon inspect` prints it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "kernels/ops.h"
#include "plan/host_memory.h"
#include "plan/inventory.h"

namespace lagoon::plan {

// What is to be run.
struct Demand {
  checkpoint::TargetConfig target;
  Inventory weights;
  std::optional<checkpoint::DraftConfig> draft = {};  // none: no draft
  Inventory draft_weights = {};
  Layout layout = Layout::kCpu;
  int threads = 1;
  kernels::CacheType cache_type = kernels::CacheType::kActivations;
  int64_t staging_bytes = 0;  // of the host, while weights are read

  int64_t max_length = 0;     // positions of a request, at least 1
  bool fit_length = false;    // a shorter max_length will do (--max-model-len auto)
  int slots = 1;              // --max-num-seqs
  int max_rows = 512;         // rows of a step (--max-num-batched-tokens)
  int foreign_proposals = 0;  // model::LoadOptions::foreign_proposals
  int64_t pool_bytes = 0;     // --kv-cache-memory-bytes; 0: slots * max_length, or what there is
  double utilization = 0;     // --gpu-memory-utilization; 0: no cap
};

// Memory to take it from.
struct Machine {
  HostMemory host;
  std::string device = "cpu";  // as vLLM's sentences call it: "cuda:0"
  // Of a device that has memory of its own; else it has the host's.
  std::optional<kernels::DeviceMemory> device_memory = {};
  std::vector<MemoryHolder> holders = {};  // for the refusal
};

struct MemoryPlan {
  struct Item {
    std::string name;
    int64_t bytes = 0;
    std::string detail;
    bool on_host = true;  // else in the device's own memory
  };
  std::vector<Item> items;
  int64_t pool_tokens = 0;  // positions of the pages of full layers
  int64_t pool_bytes = 0;   // what they were given
  int64_t max_length = 0;
  std::string refusal;  // "" where it fits; else why not, and what would help

  // Sum of the items there; without memory of its own a device has none.
  int64_t host_bytes() const;
  int64_t device_bytes() const;
};

MemoryPlan make_plan(const Demand& demand, const Machine& machine);

// The plan as a table, with what the machine has: several lines, without a line end at the end.
std::string to_table(const MemoryPlan& plan, const Machine& machine);

// Two lines: vLLM's by its formula, and Lagoon's; scripts find "GPU KV cache size: " in one of them
// where a request of full length fits. `batched_tokens`: --max-num-batched-tokens, 0 where it is
// not given.
std::string kv_lines(const MemoryPlan& plan, const Demand& demand, int64_t batched_tokens);

// Of the full layers: bytes of one position, and how many positions so many bytes hold, whole
// pages.
int64_t position_bytes(const checkpoint::TargetConfig& config, kernels::CacheType cache_type);
int64_t pool_positions(int64_t bytes, const checkpoint::TargetConfig& config,
                       kernels::CacheType cache_type);

// Memory of the host that is left to everybody else: 3 % of it, 256 MiB at least, 4 GiB at most.
int64_t host_reserve(int64_t total_bytes);

}  // namespace lagoon::plan
