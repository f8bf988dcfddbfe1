// From a model's name to everything that is needed to run it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "app/options.h"
#include "base/metrics.h"
#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/load_progress.h"
#include "engine/engine.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "plan/memory_plan.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lagoon::app {

// k where --speculative-config does not say and the backend cannot tell what a draft takes, or as
// many as the draft makes if that is fewer. Others choose k as they go (ModelOptions::kAdaptive).
inline constexpr int kDefaultProposals = 3;
// Most that is chosen. Nobody has measured a better k above it on code (docs/figures.md).
inline constexpr int kMostAdaptiveProposals = 7;

struct LoadedModel {
  std::string name;       // the directory's
  std::string directory;  // where it was found
  // What its text is not: the model's own words. "" where it is, else a remark for whoever reads
  // it.
  std::string synthetic;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  kernels::Sampling default_sampling;
  std::shared_ptr<MetricsRegistry> metrics;
  plan::Demand demand;  // what it is: configs and inventories
  double load_seconds = 0;
  std::unique_ptr<kernels::Backend> backend;
  int threads = 0;                         // of the backend
  int proposals = 0;                       // k; 0 where the draft was given up, too
  bool adaptive = false;                   // k is chosen as it goes, `proposals` at most
  int64_t memory_floor = 0;                // bytes of the host that requests must leave
  std::unique_ptr<engine::Engine> engine;  // uses all of the above
};

// What load_model() takes from its caller.
struct LoadSurroundings {
  std::string served_name = {};    // labels the engine's metrics; "": the model's own name
  FILE* lines = stdout;            // what was loaded, one line each, as it goes
  FILE* progress_lines = nullptr;  // how far it is; null: where the other lines go
  std::shared_ptr<MetricsRegistry> metrics = std::make_shared<MetricsRegistry>();
  bool log_stats = false;                        // the engine logs speed and load every ten seconds
  checkpoint::LoadProgress* progress = nullptr;  // how far it is; null: nobody asks
  bool warm_up = false;     // compute steps of many shapes, where that makes later ones quicker
  bool test_draft = false;  // try it on code, and give it up where it is of no use
  // What else to do with the model before the engine has it; null: nothing.
  std::function<Result<void>(model::Model&, const plan::Demand&)> before_engine = nullptr;
};

// Whether configs and headers allow what the options ask for, as load_model() would find before it
// reads weights, but for tokenizer and memory. Errors are one sentence.
Result<void> check_model(const ModelOptions& options);

// Errors are one sentence.
Result<std::unique_ptr<LoadedModel>> load_model(const ModelOptions& options,
                                                const LoadSurroundings& surroundings);

}  // namespace lagoon::app
