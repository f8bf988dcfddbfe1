#include "app/load.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "app/generation_config.h"
#include "app/make_backend.h"
#include "app/plan_memory.h"
#include "app/progress_lines.h"
#include "app/speculative_config.h"
#include "base/log.h"
#include "checkpoint/config.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/quantization.h"
#include "engine/self_test.h"
#include "engine/speculate.h"
#include "model/laguna.h"
#include "model/warm_up.h"
#include "plan/memory_plan.h"
#include "plan/pair.h"

namespace lagoon::app {
namespace {

constexpr double kLogInterval = 10;  // seconds, as in vLLM

void print_line(FILE* lines, const std::string& line) {
  fmt::print(lines, "{}\n", line);
  std::fflush(lines);
}

// A snapshot of the hub cache is named after its repository.
std::string directory_name(const std::string& path) {
  if (const auto snapshot = checkpoint::hub_snapshot_of(path)) return snapshot->repository;
  const auto absolute = std::filesystem::absolute(path).lexically_normal();
  return (absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename())
      .string();
}

// --synthetic-acceptance and the number of proposals it is for.
Result<void> check_rates(const std::vector<double>& rates, int proposals) {
  if (rates.empty()) return {};
  if (proposals == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--synthetic-acceptance acts on drafts, and num_speculative_tokens is 0"};
  }
  if (rates.size() >= static_cast<size_t>(proposals)) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--synthetic-acceptance gives {} rates, and num_speculative_tokens is "
                           "{}: give a rate for each",
                           rates.size(), proposals)};
}

// The draft of --speculative-config: opened, and compared with the number of proposals.
struct Draft {
  checkpoint::ModelDir directory;
  int proposals;
  int most;    // that it makes
  bool named;  // the number; else it is the default where it is not chosen as it goes
};

Result<checkpoint::ModelDir> open_model(const ModelOptions& options, const std::string& path) {
  return options.dummy ? checkpoint::ModelDir::open_config(path) : checkpoint::ModelDir::open(path);
}

Result<std::optional<Draft>> open_draft(const ModelOptions& options) {
  if (options.speculative_config.empty()) return std::optional<Draft>();
  LAGOON_ASSIGN(SpeculativeConfig config, parse_speculative_config(options.speculative_config));
  if (options.proposals >= 0) config.proposals = options.proposals;
  if (options.proposals == ModelOptions::kAdaptive) config.proposals.reset();
  LAGOON_ASSIGN(const std::string path, checkpoint::find_model(config.model, config.revision));
  LAGOON_ASSIGN(auto directory, open_model(options, path));
  LAGOON_ASSIGN(const auto draft, checkpoint::parse_draft_config(
                                      directory.config_json(), directory.file_path("config.json")));
  const int proposals =
      config.proposals.value_or(std::min(kDefaultProposals, draft.block_size - 1));
  if (proposals >= draft.block_size) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("num_speculative_tokens is {}, and the draft {} with its block_size {} "
                    "makes at most {}",
                    proposals, path, draft.block_size, draft.block_size - 1)};
  }
  LAGOON_RETURN_IF_ERROR(check_rates(options.synthetic_acceptance, proposals));
  if (options.require_draft && proposals == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--require-draft is about a draft, and num_speculative_tokens is 0: leave one of "
                 "them out"};
  }
  return std::optional<Draft>(Draft{.directory = std::move(directory),
                                    .proposals = proposals,
                                    .most = draft.block_size - 1,
                                    .named = config.proposals.has_value()});
}

// Says, at start-up and in the log, where the text will not be the model's own.
void print_synthetic(const ModelOptions& options, LoadedModel& loaded, FILE* lines) {
  if (options.dummy) {
    loaded.synthetic = fmt::format("random weights, seed {}", options.dummy_seed);
    if (options.dummy_routing_overlap > 0) {
      loaded.synthetic += fmt::format(", routing overlap {:g}", options.dummy_routing_overlap);
    }
  }
  if (!options.synthetic_acceptance.empty()) {
    loaded.synthetic +=
        loaded.synthetic.empty() ? "synthetic acceptance" : "; synthetic acceptance";
    for (const double rate : options.synthetic_acceptance) {
      loaded.synthetic += fmt::format(" {:g}", rate);
    }
  }
  if (loaded.synthetic.empty()) return;
  print_line(lines, fmt::format("SYNTHETIC: {}: the text means nothing", loaded.synthetic));
  LOG(warning, "synthetic: {}: the text of all answers means nothing", loaded.synthetic);
}

// The directory of --tokenizer, else the model's own.
Result<std::string> tokenizer_directory(const ModelOptions& options,
                                        const checkpoint::ModelDir& target) {
  if (!options.tokenizer.empty()) return checkpoint::find_model(options.tokenizer);
  std::error_code error;
  if (std::filesystem::exists(target.file_path("tokenizer.json"), error)) return target.path();
  return Error{ErrorCode::kNotFound,
               fmt::format("{} has no tokenizer.json: give the directory of one with --tokenizer{}",
                           target.path(),
                           options.dummy ? " (for random weights the bundled laguna-nano-nvfp4 "
                                           "will do)"
                                         : "")};
}

// Whether the experts' weights are NVFP4, as far as the config says.
bool has_nvfp4_experts(const checkpoint::ModelDir& target, const checkpoint::TargetConfig& config) {
  const auto scheme = checkpoint::QuantizationScheme::parse(target.config_json(), target.path());
  if (!scheme.ok()) return false;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!config.layers[i].sparse) continue;
    const std::string module = fmt::format("model.layers.{}.mlp.experts.0.up_proj", i);
    if (scheme->storage(module) == checkpoint::Storage::kNVFP4) return true;
  }
  return false;
}

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (int64_t{1} << 30);
}

// The lines that scripts know from vLLM's start, and the figures as they are here.
void print_memory(const PlannedModel& planned, const ModelOptions& options,
                  const checkpoint::ModelDir& target, double seconds, FILE* lines) {
  print_line(lines, fmt::format("Model loading took {:.4f} GiB and {:.3f} seconds",
                                gib(planned.demand.weights.bytes()), seconds));
  if (has_nvfp4_experts(target, planned.demand.target)) {
    print_line(lines, "Using LAGOON NvFp4 MoE backend");
  }
  const int64_t position = plan::position_bytes(planned.demand.target, planned.demand.cache_type);
  print_line(lines, fmt::format("Available KV cache memory: {:.4f} GiB",
                                gib(planned.plan.pool_tokens * position)));
  print_line(lines, plan::kv_lines(planned.plan, planned.demand, options.max_batched_tokens));
}

// The draft on code, before anybody is served. Where a draft of this target would do better, it is
// given up, or the start is refused (--require-draft).
Result<void> try_draft(const ModelOptions& options, const PlannedModel& planned, const Draft& draft,
                       FILE* lines, model::Model& model, LoadedModel& loaded) {
  LAGOON_ASSIGN(
      const engine::SelfTest test,
      engine::test_draft(model, engine::self_test_prompts(*loaded.tokenizer), draft.proposals,
                         planned.load.max_length, [] { return engine::Clock::now(); }));
  print_line(lines, fmt::format("draft on built-in code: {}", describe(test)));
  if (!test.failed()) return {};
  const std::string sentence = fmt::format(
      "the draft {} is of no use to {}: {:.1f} % of {} drafted tokens were accepted, and {:.0f} % "
      "are the least; {}",
      draft.directory.path(), loaded.directory, 100 * test.acceptance(), test.drafted,
      100 * engine::kLeastAcceptance,
      plan::likely_cause(draft.directory.path(), *planned.demand.draft, planned.demand.weights));
  if (options.require_draft) {
    return Error{ErrorCode::kInvalidArgument,
                 sentence + " (leave --require-draft out to be served without a draft)"};
  }
  LOG(warning, "{}", sentence);
  print_line(lines, fmt::format("no draft: {}", sentence));
  model.drop_draft();
  loaded.proposals = 0;
  loaded.adaptive = false;
  return {};
}

Result<void> check_vocabulary(const LoadedModel& loaded, const std::string& tokenizer_path,
                              const checkpoint::ModelDir& target,
                              const checkpoint::TargetConfig& config) {
  if (loaded.tokenizer->vocab_size() <= config.vocab) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{} has {} tokens, and the model of {} knows {}: they do not belong "
                           "together",
                           tokenizer_path, loaded.tokenizer->vocab_size(),
                           target.file_path("config.json"), config.vocab)};
}

// From configs and headers alone.
Result<void> check_pair(const ModelOptions& options, const checkpoint::ModelDir& target,
                        const checkpoint::ModelDir& draft) {
  model::LoadOptions load;
  if (options.dummy) load.random = model::RandomOptions{};
  LAGOON_RETURN_IF_ERROR(model::check_draft(target, draft, load));
  if (options.dummy) return {};
  return plan::check_precision(plan::take_inventory(target), target.path(), draft.path());
}

// Steps of the shapes that requests will have, so that the first requests do not wait for graphs.
Result<void> warm_up(const ModelOptions& options, const PlannedModel& planned, FILE* lines,
                     model::Model& model, const LoadedModel& loaded) {
  print_line(lines, "making graphs of steps ...");
  model::WarmUp shapes;
  shapes.sequences = options.slots;
  shapes.proposals = loaded.proposals > 0 ? loaded.proposals : options.foreign_proposals;
  shapes.drafts = loaded.proposals > 0;
  shapes.max_length = planned.load.max_length;
  LAGOON_ASSIGN(const model::WarmedUp warmed, model::warm_up(model, shapes));
  print_line(lines, fmt::format("graphs: {} shapes of steps, contexts up to {}, in {:.1f} s",
                                warmed.shapes, warmed.max_length, warmed.seconds));
  return {};
}

void print_model(const ModelOptions& options, const PlannedModel& planned,
                 const checkpoint::ModelDir& target, const Draft* draft, int max_proposals,
                 LoadedModel& loaded, FILE* lines) {
  print_line(lines,
             fmt::format("model: {} ({}, {:.1f} MB), {} threads, backend {}", loaded.name,
                         target.path(), static_cast<double>(planned.demand.weights.bytes()) / 1e6,
                         loaded.threads, loaded.backend->name()));
  const bool fp8 = planned.load.cache_type == kernels::CacheType::kFP8;
  print_line(lines, fmt::format("keys and values: {} (--kv-cache-dtype {})",
                                fp8 ? "fp8" : "bfloat16", options.kv_cache_dtype));
  print_synthetic(options, loaded, lines);
  if (draft == nullptr) {
    print_line(lines, "no draft: --speculative-config not given");
  } else if (loaded.proposals == 0) {
    print_line(lines, fmt::format("no draft: num_speculative_tokens is 0 ({} is not loaded)",
                                  draft->directory.path()));
  } else {
    print_line(lines, fmt::format("draft: {}, {}{} of at most {} proposals a step",
                                  draft->directory.path(), loaded.adaptive ? "0 to " : "",
                                  loaded.proposals, max_proposals));
  }
}

// How many proposals a step verifies: as named, or chosen as it goes where the backend can tell
// what they cost and the target decides how many stand, or the default.
Result<void> set_proposals(const ModelOptions& options, const Draft& draft, LoadedModel& loaded) {
  loaded.proposals = draft.proposals;
  if (draft.named || !options.synthetic_acceptance.empty()) return {};
  loaded.adaptive = loaded.backend->synchronous();
  if (loaded.adaptive) loaded.proposals = std::min(draft.most, kMostAdaptiveProposals);
  if (options.proposals != ModelOptions::kAdaptive || loaded.adaptive) return {};
  return Error{
      ErrorCode::kUnsupported,
      fmt::format("k can be chosen as it goes on the CPU only, and the backend is {}: give "
                  "a number",
                  loaded.backend->name())};
}

Result<void> load_weights(const ModelOptions& options, const LoadSurroundings& surroundings,
                          const checkpoint::ModelDir& target,
                          const checkpoint::TargetConfig& config, const Draft* draft,
                          const std::string& tokenizer_path, LoadedModel& loaded) {
  FILE* const lines = surroundings.lines;
  loaded.threads = thread_count(options.threads);
  LAGOON_RETURN_IF_ERROR(check_vocabulary(loaded, tokenizer_path, target, config));
  // A draft that is asked for no proposals takes no memory, but what is wrong with it is said.
  if (draft != nullptr) {
    LAGOON_RETURN_IF_ERROR(check_pair(options, target, draft->directory));
  }
  LAGOON_ASSIGN(loaded.backend, make_backend(options.backend, loaded.threads, options.graphs));
  if (draft != nullptr) LAGOON_RETURN_IF_ERROR(set_proposals(options, *draft, loaded));
  const checkpoint::ModelDir* const drafting = loaded.proposals > 0 ? &draft->directory : nullptr;
  LAGOON_ASSIGN(PlannedModel planned,
                plan_model(options, {.target = target, .config = config, .draft = drafting},
                           *loaded.backend));
  print_line(lines, plan::to_table(planned.plan, planned.machine));
  loaded.memory_floor = plan::host_reserve(planned.machine.host.total_bytes()) / 2;
  checkpoint::LoadProgress own_progress;
  planned.load.progress = surroundings.progress != nullptr ? surroundings.progress : &own_progress;
  std::optional<ProgressLines> progress_lines(
      std::in_place, surroundings.progress_lines != nullptr ? surroundings.progress_lines : lines,
      *planned.load.progress);
  const auto start = std::chrono::steady_clock::now();
  LAGOON_ASSIGN(auto model, model::load(target, drafting, *loaded.backend, planned.load));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  progress_lines.reset();
  if (!options.dummy) print_line(lines, summary(planned.load.progress->state()));
  print_model(options, planned, target, draft, model->info().max_proposals, loaded, lines);
  if (drafting != nullptr && surroundings.test_draft && loaded.synthetic.empty()) {
    LAGOON_RETURN_IF_ERROR(try_draft(options, planned, *draft, lines, *model, loaded));
  }
  if (surroundings.warm_up && loaded.backend->replays_steps()) {
    LAGOON_RETURN_IF_ERROR(warm_up(options, planned, lines, *model, loaded));
  }
  if (surroundings.before_engine) {
    LAGOON_RETURN_IF_ERROR(surroundings.before_engine(*model, planned.demand));
  }
  loaded.load_seconds = seconds.count();
  loaded.demand = planned.demand;
  const int foreign = options.foreign_proposals;
  loaded.engine = engine::Engine::start(
      std::move(model), *loaded.tokenizer, *loaded.metrics,
      surroundings.served_name.empty() ? loaded.name : surroundings.served_name,
      {.proposals = foreign > 0 ? foreign : loaded.proposals,
       .adaptive_proposals = loaded.adaptive,
       .max_length = planned.load.max_length,
       .max_num_seqs = options.slots,
       .max_num_batched_tokens = planned.load.max_rows,
       .synthetic_acceptance = options.synthetic_acceptance,
       .log_interval = surroundings.log_stats ? kLogInterval : 0},
      foreign > 0 ? engine::random_proposer(config.vocab) : nullptr);
  print_line(lines, fmt::format("context: {} tokens, prompt and answer together",
                                loaded.engine->max_length()));
  print_memory(planned, options, target, seconds.count(), lines);
  if (surroundings.progress != nullptr) {
    surroundings.progress->enter(checkpoint::LoadPhase::kReady);
  }
  return {};
}

// What the options name, with its configs and headers.
struct Opened {
  std::string path;
  checkpoint::ModelDir target;
  checkpoint::TargetConfig config;
  std::optional<Draft> draft;
};

Result<Opened> open(const ModelOptions& options) {
  LAGOON_ASSIGN(std::string path, checkpoint::find_model(options.model, options.revision));
  LAGOON_ASSIGN(auto target, open_model(options, path));
  LAGOON_ASSIGN(auto config, checkpoint::parse_target_config(target.config_json(),
                                                             target.file_path("config.json")));
  LAGOON_RETURN_IF_ERROR(context_length(options, config));
  LAGOON_ASSIGN(auto draft, open_draft(options));
  return Opened{.path = std::move(path),
                .target = std::move(target),
                .config = std::move(config),
                .draft = std::move(draft)};
}

}  // namespace

Result<void> check_model(const ModelOptions& options) {
  LAGOON_ASSIGN(const Opened opened, open(options));
  if (!opened.draft) return {};
  return check_pair(options, opened.target, opened.draft->directory);
}

Result<std::unique_ptr<LoadedModel>> load_model(const ModelOptions& options,
                                                const LoadSurroundings& surroundings) {
  LAGOON_ASSIGN(const Opened opened, open(options));
  const auto& [path, target, config, draft] = opened;
  auto loaded = std::make_unique<LoadedModel>();
  loaded->metrics = surroundings.metrics;
  loaded->name = directory_name(path);
  loaded->directory = path;
  LAGOON_ASSIGN(const std::string tokenizer, tokenizer_directory(options, target));
  const std::string tokenizer_path = tokenizer + "/tokenizer.json";
  LAGOON_ASSIGN(loaded->tokenizer, text::Tokenizer::load(tokenizer_path));
  LAGOON_ASSIGN(loaded->chat_template, text::ChatTemplate::load(tokenizer));
  LAGOON_ASSIGN(const ModelSampling sampling, read_sampling_defaults(options, target));
  for (const std::string& line : sampling.lines) print_line(surroundings.lines, line);
  loaded->default_sampling = sampling.sampling;
  LAGOON_RETURN_IF_ERROR(load_weights(options, surroundings, target, config,
                                      draft ? &*draft : nullptr, tokenizer_path, *loaded));
  return loaded;
}

}  // namespace lagoon::app
