// From a model's name to everything that is needed to run it.
#pragma once

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
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lagoon::app {

// k where --speculative-config does not say, or as many as the draft makes if that is fewer. A
// processor computes rows one after the other, so that each proposal costs; docs/figures.md has the
// measurement.
inline constexpr int kDefaultProposals = 3;

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
  std::unique_ptr<kernels::Backend> backend;
  int threads = 0;                         // of the backend
  int proposals = 0;                       // k
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
};

// Errors are one sentence.
Result<std::unique_ptr<LoadedModel>> load_model(const ModelOptions& options,
                                                const LoadSurroundings& surroundings);

// How many positions a pool of keys and values of so many bytes holds: those of the full layers,
// which are kept as pages. (Sliding layers keep a window for each request beside it.)
int64_t pool_positions(int64_t bytes, const checkpoint::TargetConfig& config,
                       kernels::CacheType cache_type);
// Bytes of one position in it.
int64_t position_bytes(const checkpoint::TargetConfig& config, kernels::CacheType cache_type);

// The type of key and value caches that --kv-cache-dtype asks for.
kernels::CacheType cache_type(const std::string& kv_cache_dtype,
                              const checkpoint::TargetConfig& config);

// What generation_config.json of a model directory says about sampling; where it does not say,
// temperature 1 and no cut. `json` is "" where there is no such file. `ignored` gets the names of
// what it asks for and this version does not do.
struct SamplingDefaults {
  kernels::Sampling sampling;
  std::string ignored;
};
Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path);

// The same with --override-generation-config on top: a JSON object of values that replace the
// file's. What this version does not do is an error there.
Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path,
                                                 const std::string& overriding);

}  // namespace lagoon::app
