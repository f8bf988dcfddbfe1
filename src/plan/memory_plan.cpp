#include "plan/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/pending_context.h"
#include "kernels/step.h"
#include "model/laguna.h"
#include "plan/vllm_kv.h"

namespace lagoon::plan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLeastReserve = 256 * kMiB;
constexpr int64_t kMostReserve = 4096 * kMiB;
constexpr int64_t kDeviceReserve = 512 * kMiB;  // of a device's own memory: driver and display
// A GPU takes memory for weights in pieces: ends of them stay unused, of target and draft.
constexpr int64_t kDevicePieces = 1024 * kMiB;
constexpr int64_t kHeadRows = 64;  // whose logits are in memory at a time
// Partial sums of attention (128 MiB, kernels/cuda/attention_half.cpp), tables of experts, copies
// of rows and draws, graphs.
constexpr int64_t kDeviceSteps = 512 * kMiB;

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

// Buffers that an operation of the target fills for each row of a step, FP32, and the logits.
int64_t scratch_bytes(const Demand& demand) {
  const checkpoint::TargetConfig& config = demand.target;
  int64_t attention = 0;
  int64_t inner = config.shared_intermediate;
  for (const auto& layer : config.layers) {
    const int64_t width = int64_t{layer.heads} * config.head_dim;
    attention = std::max(attention, 3 * width + 2 * int64_t{config.kv_heads} * config.head_dim);
    if (!layer.sparse) inner = std::max<int64_t>(inner, config.intermediate);
  }
  const int64_t routed =
      config.top_k * (int64_t{2} * config.moe_intermediate + config.hidden) + config.experts;
  const int64_t feed_forward = int64_t{2} * config.hidden + 2 * inner + routed;
  const int64_t row = std::max(attention + config.hidden, feed_forward);
  int64_t bytes = demand.max_rows * row * 4;
  // Each thread gathers the rows of an expert.
  bytes += demand.threads * int64_t{demand.max_rows} * config.hidden * 4;
  // Logits, and a copy where penalties change them.
  bytes += std::min<int64_t>(kHeadRows, demand.max_rows) * config.vocab * 4 * 2;
  if (demand.layout == Layout::kCuda) bytes += kDeviceSteps;
  return bytes;
}

// Residual and taps.
int64_t row_bytes(const kernels::StateShape& shape) {
  return int64_t{shape.max_rows} * shape.hidden * 4 * (1 + shape.taps);
}

int64_t ring_bytes(kernels::StateShape shape, int64_t element, Layout layout) {
  shape.full.clear();
  constexpr int kRingMultiple = 16;       // of both backends
  constexpr int kDeviceRowsAtOnce = 512;  // kernels/cuda/state.cpp
  const int at_once = layout == Layout::kCuda ? kDeviceRowsAtOnce : std::numeric_limits<int>::max();
  return kernels::cache_bytes(kernels::Step(shape, kRingMultiple, at_once), element);
}

int64_t round_to_pages(int64_t positions) {
  return (positions + model::kPageTokens - 1) / model::kPageTokens * model::kPageTokens;
}

std::string_view type_name(kernels::CacheType type) {
  return type == kernels::CacheType::kFP8 ? "fp8" : "bfloat16";
}

// Everything but the pages.
std::vector<MemoryPlan::Item> fixed_items(const Demand& demand, const Machine& machine) {
  const checkpoint::DraftConfig* draft = demand.draft ? &*demand.draft : nullptr;
  const bool host = !machine.device_memory;
  const bool gpu = demand.layout == Layout::kCuda;
  model::LoadOptions load;
  load.slots = demand.slots;
  load.max_rows = demand.max_rows;
  load.pool_tokens = model::kPageTokens;
  load.cache_type = demand.cache_type;
  load.foreign_proposals = demand.foreign_proposals;
  const kernels::StateShape target = model::target_state_shape(demand.target, draft, load);
  const int64_t element = demand.cache_type == kernels::CacheType::kFP8 ? 1 : 2;
  int64_t rings = ring_bytes(target, element, demand.layout);
  int64_t rows = row_bytes(target);
  std::vector<MemoryPlan::Item> items;
  const std::string experts = describe_experts(demand.weights);
  items.push_back({"weights",
                   demand.weights.packed_bytes(demand.layout) + (gpu ? kDevicePieces : 0),
                   fmt::format("{} tensors, {:.2f} GB stored{}", grouped(demand.weights.tensors()),
                               static_cast<double>(demand.weights.bytes()) / 1e9,
                               experts.empty() ? "" : ", experts: " + experts),
                   host});
  if (draft != nullptr) {
    const kernels::StateShape shape = model::draft_state_shape(*draft, demand.slots);
    rings += ring_bytes(shape, 2, demand.layout);
    rows += row_bytes(shape);
    if (demand.layout == Layout::kCpu) {
      rows += kernels::cpu::PendingContext::bytes(
          draft->window, demand.slots, static_cast<int>(draft->tap_layers.size()), target.hidden);
    }
    items.push_back(
        {"draft", demand.draft_weights.packed_bytes(demand.layout),
         fmt::format("{} tensors, {:.2f} GB stored", grouped(demand.draft_weights.tensors()),
                     static_cast<double>(demand.draft_weights.bytes()) / 1e9),
         host});
  }
  items.push_back({"rings", rings,
                   fmt::format("{} sliding layers{}, {} requests", target.sliding.size(),
                               draft == nullptr ? "" : " and the draft's", demand.slots),
                   host});
  items.push_back({"graphs and scratch", scratch_bytes(demand) + rows,
                   fmt::format("steps of {} rows", grouped(demand.max_rows)), host});
  if (demand.staging_bytes > 0) {
    items.push_back({"staging", demand.staging_bytes, "while weights are read"});
  }
  const int64_t reserve = host_reserve(machine.host.total_bytes());
  if (!host) items.push_back({"reserve of the device", kDeviceReserve, "", false});
  items.push_back({"reserve", reserve, "left to the rest of the machine"});
  return items;
}

int64_t sum(const std::vector<MemoryPlan::Item>& items, bool on_host) {
  int64_t bytes = 0;
  for (const auto& item : items) bytes += item.on_host == on_host ? item.bytes : 0;
  return bytes;
}

// Where the model itself goes: the device's own memory, or the host's.
struct Store {
  int64_t free = 0;
  int64_t total = 0;
  int64_t cap = 0;  // of --gpu-memory-utilization
  bool on_host = true;

  Store(const Demand& demand, const Machine& machine)
      : free(machine.device_memory ? machine.device_memory->free : machine.host.free_bytes()),
        total(machine.device_memory ? machine.device_memory->total : machine.host.total_bytes()),
        cap(total),
        on_host(!machine.device_memory) {
    if (demand.utilization > 0) {
      cap = static_cast<int64_t>(demand.utilization * static_cast<double>(total));
    }
  }
};

enum class Fault { kNone, kPool, kUtilization, kMemory, kHostMemory };

struct Attempt {
  MemoryPlan plan;
  Fault fault = Fault::kNone;
  int64_t needed = 0;   // in the store, reserve included, with one request at least
  int64_t largest = 0;  // pool that would fit, in bytes; may be negative
  double least_utilization = 0;
};

// The pages, and the length of a request that they hold. `held`: positions that there is memory
// for.
void size_pool(const Demand& demand, int64_t held, MemoryPlan& plan) {
  plan.max_length = demand.max_length;
  if (demand.pool_bytes > 0) {
    plan.pool_tokens = pool_positions(demand.pool_bytes, demand.target, demand.cache_type);
    plan.pool_bytes = demand.pool_bytes;
  } else {
    plan.pool_tokens = std::min(demand.slots * round_to_pages(demand.max_length), held);
    plan.pool_bytes = plan.pool_tokens * position_bytes(demand.target, demand.cache_type);
  }
  if (demand.fit_length) plan.max_length = std::min(plan.max_length, plan.pool_tokens);
}

Attempt attempt(const Demand& demand, const Machine& machine) {
  Attempt made;
  MemoryPlan& plan = made.plan;
  plan.items = fixed_items(demand, machine);
  const Store store(demand, machine);
  const int64_t reserve = store.on_host ? host_reserve(machine.host.total_bytes()) : kDeviceReserve;
  const int64_t fixed = sum(plan.items, store.on_host);
  const int64_t position = std::max<int64_t>(position_bytes(demand.target, demand.cache_type), 1);
  const int64_t by_free = store.free - fixed;
  const int64_t by_cap = store.cap - (fixed - reserve);  // what is left to others is no part of it
  made.largest = std::min(by_free, by_cap);
  const int64_t held =
      pool_positions(std::max<int64_t>(made.largest, 0), demand.target, demand.cache_type);
  const int64_t one = round_to_pages(demand.max_length);
  size_pool(demand, held, plan);
  const int64_t taken = plan.pool_tokens * position;
  made.needed = fixed + std::max(taken, demand.pool_bytes > 0 ? taken : one * position);
  made.least_utilization = std::ceil(static_cast<double>(made.needed - reserve) /
                                     static_cast<double>(store.total) * 100) /
                           100;
  plan.items.insert(std::find_if(plan.items.begin(), plan.items.end(),
                                 [](const auto& item) { return item.name == "rings"; }),
                    {"keys and values", taken,
                     fmt::format("{} positions in pages of {}, {}", grouped(plan.pool_tokens),
                                 model::kPageTokens, type_name(demand.cache_type)),
                     store.on_host});
  const bool too_short = plan.max_length < 2 || plan.pool_tokens < plan.max_length;
  const bool too_large = taken > made.largest || made.largest <= 0;
  // A pool that was asked for, and is too small, is told first: more memory would not help.
  if (too_short && (demand.pool_bytes > 0 || !too_large)) {
    made.fault = Fault::kPool;
  } else if (too_large) {
    made.fault = by_cap < by_free ? Fault::kUtilization : Fault::kMemory;
  } else if (!store.on_host && sum(plan.items, true) > machine.host.free_bytes()) {
    made.fault = Fault::kHostMemory;
  }
  return made;
}

// A change of the command line that makes it fit, or "".
std::string remedy(const Demand& demand, const Machine& machine, const Attempt& failed) {
  const auto fits = [&](const Demand& changed) {
    return attempt(changed, machine).fault == Fault::kNone;
  };
  Demand changed = demand;
  if (demand.utilization > 0) {
    changed.utilization = failed.least_utilization;
    if (changed.utilization <= 1 && fits(changed)) {
      return fmt::format("--gpu-memory-utilization {:.2f} fits", changed.utilization);
    }
    changed = demand;
  }
  if (demand.pool_bytes > 0) {
    const int64_t position = position_bytes(demand.target, demand.cache_type);
    const int64_t one = round_to_pages(demand.max_length) * position;
    changed.pool_bytes = std::max(one, failed.fault == Fault::kPool ? one : failed.largest);
    if (fits(changed)) {
      return fmt::format("--kv-cache-memory-bytes {} fits", changed.pool_bytes);
    }
    changed = demand;
  }
  changed.fit_length = true;
  if (const Attempt shorter = attempt(changed, machine); shorter.fault == Fault::kNone) {
    return fmt::format("--max-model-len {} fits (auto chooses it)", shorter.plan.max_length);
  }
  changed = demand;
  if (demand.max_rows > 512) {
    changed.max_rows = 512;
    if (fits(changed)) return "--max-num-batched-tokens 512 fits";
  }
  changed.slots = 1;
  if (fits(changed)) {
    return demand.max_rows > 512 ? "--max-num-seqs 1 with --max-num-batched-tokens 512 fits"
                                 : "--max-num-seqs 1 fits";
  }
  if (demand.draft) {
    changed.draft.reset();
    changed.fit_length = true;
    if (fits(changed)) return "without --speculative-config a short context fits";
  }
  return "";
}

// vLLM's words where it has some, with these figures; then what helps.
std::string refusal(const Demand& demand, const Machine& machine, const Attempt& failed) {
  const Store store(demand, machine);
  const std::string helps = remedy(demand, machine, failed);
  std::string text;
  const int64_t position = position_bytes(demand.target, demand.cache_type);
  switch (failed.fault) {
    case Fault::kNone:
      return "";
    case Fault::kPool: {
      const int64_t pool =
          demand.pool_bytes > 0 ? demand.pool_bytes : std::max<int64_t>(failed.largest, 0);
      text = vllm_too_small(demand.max_length, demand.max_length * position, pool,
                            pool_positions(pool, demand.target, demand.cache_type));
      text += fmt::format(
          " Try increasing `{}` or decreasing `--max-model-len`.",
          demand.pool_bytes > 0 ? "--kv-cache-memory-bytes" : "--gpu-memory-utilization");
      break;
    }
    case Fault::kUtilization:
      text = fmt::format(
          "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
          "initializing the engine. --gpu-memory-utilization {:g} allows {:.2f} of {:.2f} GiB, and "
          "the plan is {:.2f} GiB.",
          demand.utilization, gib(store.cap), gib(store.total),
          gib(failed.needed - (store.on_host ? host_reserve(store.total) : kDeviceReserve)));
      break;
    case Fault::kMemory:
    case Fault::kHostMemory: {
      const bool host = failed.fault == Fault::kHostMemory || store.on_host;
      const int64_t needed =
          failed.fault == Fault::kHostMemory ? failed.plan.host_bytes() : failed.needed;
      const int64_t free = host ? machine.host.free_bytes() : store.free;
      const int64_t total = host ? machine.host.total_bytes() : store.total;
      text = fmt::format(
          "Free memory on device {} ({:.2f}/{:.2f} GiB) on startup is less than desired GPU memory "
          "utilization ({:.2f}, {:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory "
          "used by other processes.",
          host ? "cpu" : machine.device, gib(free), gib(total),
          static_cast<double>(needed) / static_cast<double>(std::max<int64_t>(total, 1)),
          gib(needed));
      if (host && machine.host.limited_by() != "MemAvailable") {
        text += fmt::format(" The limit is that of {}.", machine.host.limited_by());
      }
      break;
    }
  }
  if (!helps.empty()) {
    text += fmt::format(" Here {}.", helps);
  } else if (failed.fault != Fault::kPool) {
    text += " No option makes it fit: free memory, or take a smaller checkpoint.";
  }
  const std::string holders = describe(machine.holders);
  const bool others = failed.fault != Fault::kUtilization &&
                      (failed.fault != Fault::kPool || demand.pool_bytes == 0);
  if (!holders.empty() && others) text += fmt::format(" {}.", holders);
  return text;
}

}  // namespace

int64_t MemoryPlan::host_bytes() const {
  return sum(items, true);
}

int64_t MemoryPlan::device_bytes() const {
  return sum(items, false);
}

int64_t host_reserve(int64_t total_bytes) {
  return std::clamp(total_bytes * 3 / 100, kLeastReserve, kMostReserve);
}

int64_t position_bytes(const checkpoint::TargetConfig& config, kernels::CacheType cache_type) {
  const auto full = std::count_if(config.layers.begin(), config.layers.end(),
                                  [](const auto& layer) { return !layer.sliding; });
  const int element = cache_type == kernels::CacheType::kFP8 ? 1 : 2;
  return int64_t{2} * full * config.kv_heads * config.head_dim * element;
}

int64_t pool_positions(int64_t bytes, const checkpoint::TargetConfig& config,
                       kernels::CacheType cache_type) {
  const int64_t positions = bytes / std::max<int64_t>(position_bytes(config, cache_type), 1);
  return positions / model::kPageTokens * model::kPageTokens;
}

MemoryPlan make_plan(const Demand& demand, const Machine& machine) {
  Attempt made = attempt(demand, machine);
  made.plan.refusal = refusal(demand, machine, made);
  return std::move(made.plan);
}

std::string to_table(const MemoryPlan& plan, const Machine& machine) {
  const HostMemory& host = machine.host;
  std::string text =
      fmt::format("memory plan: {:.2f} of {:.2f} GiB of the host are free ({})",
                  gib(host.free_bytes()), gib(host.total_bytes()), host.limited_by());
  if (machine.device_memory) {
    text += fmt::format(", {:.2f} of {:.2f} GiB of {}", gib(machine.device_memory->free),
                        gib(machine.device_memory->total), machine.device);
  }
  for (const MemoryPlan::Item& item : plan.items) {
    text +=
        fmt::format("\n  {:<22}{:>10.3f} GiB  {}{}", item.name, gib(item.bytes),
                    item.on_host || !machine.device_memory ? "" : "on the device; ", item.detail);
    while (text.ends_with(' ') || text.ends_with(';')) text.pop_back();
  }
  if (machine.device_memory) {
    text += fmt::format("\n  {:<22}{:>10.3f} GiB", "total on the device", gib(plan.device_bytes()));
    text += fmt::format("\n  {:<22}{:>10.3f} GiB", "total on the host", gib(plan.host_bytes()));
  } else {
    text += fmt::format("\n  {:<22}{:>10.3f} GiB", "total", gib(plan.host_bytes()));
  }
  return text;
}

std::string kv_lines(const MemoryPlan& plan, const Demand& demand, int64_t batched_tokens) {
  const bool given = batched_tokens > 0;
  const VllmKv vllm(demand.target, demand.draft ? &*demand.draft : nullptr, demand.cache_type,
                    given ? batched_tokens : kVllmBatchedTokens);
  const int64_t length = std::max<int64_t>(plan.max_length, 1);
  const bool fits = plan.pool_tokens >= length;
  const std::string own =
      fits ? fmt::format("{} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
                         grouped(plan.pool_tokens), grouped(length),
                         static_cast<double>(plan.pool_tokens) / static_cast<double>(length))
           : fmt::format("Lagoon's estimated maximum model length is {} ({} tokens were asked for)",
                         plan.pool_tokens, length);
  if (vllm.longest(plan.pool_bytes) >= length) {
    return fmt::format("GPU KV cache size: {} (vLLM's formula{})\n{}{}",
                       vllm_kv_text(vllm, plan.pool_bytes, length),
                       given ? "" : ", with its --max-num-batched-tokens 2048",
                       fits ? "Lagoon KV cache size: " : "", own);
  }
  return fmt::format(
      "vLLM would say: {}\n{}{}{}",
      vllm_too_small(length, vllm.bytes_of(length), plan.pool_bytes, vllm.longest(plan.pool_bytes)),
      fits ? "GPU KV cache size: " : "", own, fits ? " (Lagoon's)" : "");
}

}  // namespace lagoon::plan
