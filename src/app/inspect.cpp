#include "app/inspect.h"

#include <fmt/core.h>

#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/make_backend.h"
#include "app/plan_memory.h"
#include "checkpoint/config.h"
#include "checkpoint/weight_reader.h"
#include "plan/family.h"
#include "plan/memory_plan.h"
#include "plan/pair.h"
#include "plan/scan.h"
#include "plan/speed.h"
#include "plan/vllm_kv.h"

namespace lagoon::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kContexts[] = {2048, 65536};
constexpr int kProposals[] = {0, 3, 6, 7};
constexpr size_t kHoldersTold = 3;

struct Speed {
  int proposals = 0;
  int64_t context = 0;
  double tokens_per_second = 0;
};

struct Report {
  plan::ScannedModel target;
  checkpoint::TargetConfig config;
  std::optional<plan::ScannedModel> draft;
  std::optional<checkpoint::DraftConfig> draft_config;
  std::string pair;  // "" where they fit, else why not
  std::string backend;
  plan::Demand demand;
  plan::Machine machine;
  plan::MemoryPlan plan;
  int64_t batched_tokens = 0;
  double rate = 0;  // bytes a second
  std::vector<Speed> speeds;
};

Result<void> scan_draft(const std::string& name, Report& report) {
  LAGOON_ASSIGN(report.draft, plan::scan_model(name));
  const plan::ScannedModel& draft = *report.draft;
  LAGOON_ASSIGN(report.draft_config,
                checkpoint::parse_draft_config(draft.config_json, draft.config_path));
  if (const auto fits = checkpoint::check_pair(report.config, *report.draft_config); !fits.ok()) {
    report.pair = fits.error().message;
  } else if (const auto same =
                 plan::check_precision(report.target.inventory, report.target.path, draft.path);
             !same.ok()) {
    report.pair = same.error().message;
  } else if (draft.state == plan::ScannedModel::State::kIncomplete) {
    report.pair = draft.problem;
  }
  return {};
}

void predict(kernels::Backend& backend, Report& report) {
  report.rate = plan::measure_memory_rate(backend, int64_t{256} << 20, report.demand.threads);
  if (report.rate == 0) return;
  const plan::Inventory* draft = report.draft ? &report.draft->inventory : nullptr;
  const plan::ByteModel model(report.config, report.target.inventory, draft,
                              report.demand.cache_type);
  for (const int k : kProposals) {
    if (k > 0 && (!report.draft || k >= report.draft_config->block_size)) continue;
    for (const int64_t context : kContexts) {
      if (context >= report.demand.max_length) continue;
      report.speeds.push_back({k, context, model.tokens_per_second(k, context, report.rate)});
    }
  }
}

Result<Report> make_report(const InspectOptions& options) {
  Report report;
  LAGOON_ASSIGN(report.target, plan::scan_model(options.model.model, options.model.revision));
  if (report.target.is_draft) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} is a draft: give the target first, then its draft", report.target.path)};
  }
  LAGOON_ASSIGN(report.config, checkpoint::parse_target_config(report.target.config_json,
                                                               report.target.config_path));
  if (!options.draft.empty()) LAGOON_RETURN_IF_ERROR(scan_draft(options.draft, report));
  LAGOON_ASSIGN(const std::unique_ptr<kernels::Backend> backend,
                make_backend(options.model.backend, thread_count(options.model.threads)));
  report.backend = backend->name();
  report.batched_tokens = options.model.max_batched_tokens;
  LAGOON_ASSIGN(report.demand, make_demand(options.model, report.config, *backend));
  report.demand.weights = report.target.inventory;
  report.demand.staging_bytes = static_cast<int64_t>(checkpoint::ReadOptions().staging_bytes);
  if (report.draft) {
    report.demand.staging_bytes *= 2;  // both are read ahead
    report.demand.draft = report.draft_config;
    report.demand.draft_weights = report.draft->inventory;
  }
  LAGOON_ASSIGN(report.machine, read_machine(*backend));
  report.machine.holders = plan::largest_holders(kHoldersTold);
  report.plan = plan::make_plan(report.demand, report.machine);
  predict(*backend, report);
  return report;
}

// ---- Text

std::string state_text(const plan::ScannedModel& model) {
  using State = plan::ScannedModel::State;
  if (model.state == State::kComplete) return "complete";
  if (model.state == State::kConfigOnly)
    return "a config without weights: figures are the config's";
  std::string text =
      fmt::format("incomplete: {} % of the bytes, {}", model.percent(),
                  model.files_expected > 0
                      ? fmt::format("{} of {} files", model.files_present, model.files_expected)
                      : fmt::format("{} files", model.files_present));
  if (!model.partial.empty()) {
    text += fmt::format(", {} still being downloaded", model.partial.size());
  }
  return text + "; " + model.problem;
}

void print_parts(const plan::Inventory& inventory) {
  for (const auto& [key, sum] : inventory.parts()) {
    fmt::print("  {:<20}{:<8}{:>10} tensors{:>12.3f} GB\n", plan::part_name(key.first),
               plan::format_name(key.second), plan::grouped(sum.tensors),
               static_cast<double>(sum.bytes) / 1e9);
  }
  fmt::print("  {:<28}{:>10} tensors{:>12.3f} GB, {:.2f} B parameters\n", "total",
             plan::grouped(inventory.tensors()), static_cast<double>(inventory.bytes()) / 1e9,
             static_cast<double>(inventory.parameters()) / 1e9);
}

void print_text(const Report& report) {
  fmt::print("model: {}\n", report.target.path);
  fmt::print("family: {}\n", plan::family_of(report.config));
  fmt::print("revision: {}\n", plan::revision_class(report.config, report.target.inventory));
  fmt::print("state: {}\n", state_text(report.target));
  print_parts(report.target.inventory);
  if (report.draft) {
    fmt::print("draft: {}\n", report.draft->path);
    fmt::print("state: {}\n", state_text(*report.draft));
    print_parts(report.draft->inventory);
    fmt::print("pair: {}\n", report.pair.empty() ? "fits, by configs, tensors and names"
                                                 : "does not fit: " + report.pair);
  }
  fmt::print("backend: {}\n{}\n", report.backend, plan::to_table(report.plan, report.machine));
  fmt::print("{}\n", plan::kv_lines(report.plan, report.demand, report.batched_tokens));
  fmt::print("fits: {}\n", report.plan.refusal.empty() ? "yes" : "no. " + report.plan.refusal);
  if (report.rate == 0) {
    fmt::print("memory: too little is free to measure how fast it is; nothing is predicted\n");
    return;
  }
  fmt::print("memory reads {:.1f} GB/s here; predicted, for one request and at most:\n",
             report.rate / 1e9);
  for (const Speed& speed : report.speeds) {
    fmt::print("  {:<10} context {:>7}{:>10.1f} tok/s{}\n",
               speed.proposals == 0 ? "no draft" : fmt::format("k = {}", speed.proposals),
               plan::grouped(speed.context), speed.tokens_per_second,
               speed.proposals == 0
                   ? ""
                   : fmt::format(", {:.2f} tokens per step as published on code",
                                 plan::published_tokens_per_step(speed.proposals)));
  }
}

// ---- JSON

Json model_json(const plan::ScannedModel& model) {
  using State = plan::ScannedModel::State;
  Json json;
  json["path"] = model.path;
  json["state"] = model.state == State::kComplete     ? "complete"
                  : model.state == State::kIncomplete ? "incomplete"
                                                      : "config only";
  json["percent"] = model.state == State::kConfigOnly ? 0 : model.percent();
  if (!model.problem.empty()) json["problem"] = model.problem;
  if (model.state == State::kIncomplete) {
    json["files"] = {{"expected", model.files_expected},
                     {"present", model.files_present},
                     {"missing", model.missing},
                     {"partial", model.partial}};
    json["bytes_present"] = model.bytes_present;
  }
  json["precision"] = plan::format_name(plan::precision_class(model.inventory));
  json["tensors"] = model.inventory.tensors();
  json["bytes"] = model.inventory.bytes();
  json["parameters"] = model.inventory.parameters();
  json["parts"] = Json::array();
  for (const auto& [key, sum] : model.inventory.parts()) {
    json["parts"].push_back({{"part", plan::part_name(key.first)},
                             {"format", plan::format_name(key.second)},
                             {"tensors", sum.tensors},
                             {"bytes", sum.bytes}});
  }
  return json;
}

Json plan_json(const Report& report) {
  const plan::MemoryPlan& plan = report.plan;
  Json json;
  json["backend"] = report.backend;
  json["fits"] = plan.refusal.empty();
  if (!plan.refusal.empty()) json["refusal"] = plan.refusal;
  const plan::HostMemory& host = report.machine.host;
  json["host"] = {{"free", host.free_bytes()},
                  {"total", host.total_bytes()},
                  {"limited_by", host.limited_by()},
                  {"planned", plan.host_bytes()}};
  if (const auto& device = report.machine.device_memory) {
    json["device"] = {
        {"free", device->free}, {"total", device->total}, {"planned", plan.device_bytes()}};
  }
  json["items"] = Json::array();
  for (const plan::MemoryPlan::Item& item : plan.items) {
    json["items"].push_back({{"name", item.name},
                             {"bytes", item.bytes},
                             {"where", item.on_host ? "host" : "device"},
                             {"detail", item.detail}});
  }
  json["max_model_len"] = plan.max_length;
  json["kv_cache_tokens"] = plan.pool_tokens;
  json["kv_cache_bytes"] = plan.pool_bytes;
  return json;
}

Json vllm_json(const Report& report) {
  const int64_t batched =
      report.batched_tokens > 0 ? report.batched_tokens : plan::kVllmBatchedTokens;
  const plan::VllmKv vllm(report.config, report.draft_config ? &*report.draft_config : nullptr,
                          report.demand.cache_type, batched);
  const int64_t pool = report.plan.pool_bytes;
  return {{"max_num_batched_tokens", batched},
          {"kv_cache_tokens", vllm.tokens(pool, report.demand.max_length)},
          {"concurrency", vllm.concurrency(pool, report.demand.max_length)},
          {"needed_bytes", vllm.bytes_of(report.demand.max_length)},
          {"longest", vllm.longest(pool)}};
}

void print_json(const Report& report) {
  Json json;
  json["family"] = plan::family_of(report.config);
  json["revision"] = plan::revision_class(report.config, report.target.inventory);
  json["target"] = model_json(report.target);
  if (report.draft) {
    json["draft"] = model_json(*report.draft);
    json["pair"] = {{"fits", report.pair.empty()}};
    if (!report.pair.empty()) json["pair"]["problem"] = report.pair;
  }
  json["plan"] = plan_json(report);
  json["vllm"] = vllm_json(report);
  json["read_bytes_per_second"] = report.rate;
  json["predicted"] = Json::array();
  for (const Speed& speed : report.speeds) {
    json["predicted"].push_back({{"num_speculative_tokens", speed.proposals},
                                 {"context", speed.context},
                                 {"tokens_per_second", speed.tokens_per_second}});
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace

Result<void> inspect(const InspectOptions& options) {
  LAGOON_ASSIGN(const Report report, make_report(options));
  if (options.json) {
    print_json(report);
  } else {
    print_text(report);
  }
  std::fflush(stdout);
  return {};
}

}  // namespace lagoon::app
