#include "app/load.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "app/speculative_config.h"
#include "base/log.h"
#include "checkpoint/config.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/quantization.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"
#include "model/laguna.h"

namespace lagoon::app {
namespace {

constexpr int kMaxDefaultThreads = 8;
constexpr double kMaxTemperature = 1e6;
constexpr double kLogInterval = 10;  // seconds, as in vLLM

void print_line(FILE* lines, const std::string& line) {
  fmt::print(lines, "{}\n", line);
  std::fflush(lines);
}

std::string directory_name(const std::string& path) {
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
};

Result<checkpoint::ModelDir> open_model(const ModelOptions& options, const std::string& path) {
  return options.dummy ? checkpoint::ModelDir::open_config(path) : checkpoint::ModelDir::open(path);
}

Result<std::optional<Draft>> open_draft(const ModelOptions& options) {
  if (options.speculative_config.empty()) return std::optional<Draft>();
  LAGOON_ASSIGN(SpeculativeConfig config, parse_speculative_config(options.speculative_config));
  if (options.proposals >= 0) config.proposals = options.proposals;
  LAGOON_ASSIGN(const std::string path, checkpoint::find_model(config.model));
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
  return std::optional<Draft>(Draft{std::move(directory), proposals});
}

// The text of the generation_config.json that --generation-config asks for, and what to call it.
struct GenerationConfig {
  std::string json;  // "" where there is none
  std::string path;  // for errors
  std::string from;  // for the start-up line
};

Result<GenerationConfig> read_generation_config(const ModelOptions& options,
                                                const checkpoint::ModelDir& target) {
  constexpr std::string_view kFile = "generation_config.json";
  if (options.generation_config == "vllm") {
    return GenerationConfig{.json = "", .path = "", .from = "--generation-config vllm"};
  }
  if (options.generation_config != "auto") {
    const std::string path = fmt::format("{}/{}", options.generation_config, kFile);
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (file.is_open() && !file.bad() && !text.str().empty()) {
      return GenerationConfig{.json = text.str(), .path = path, .from = path};
    }
    return Error{ErrorCode::kNotFound,
                 fmt::format("--generation-config is {}, and there is no {} that can be read; it "
                             "takes auto, vllm or a directory that has one",
                             options.generation_config, path)};
  }
  auto text = target.read_text(kFile);
  if (text.ok()) {
    return GenerationConfig{.json = std::move(text).value(),
                            .path = target.file_path(kFile),
                            .from = std::string(kFile)};
  }
  if (text.error().code != ErrorCode::kNotFound) return text.error();
  return GenerationConfig{
      .json = "", .path = "", .from = "the model has no generation_config.json"};
}

Result<kernels::Sampling> read_sampling_defaults(const ModelOptions& options,
                                                 const checkpoint::ModelDir& target, FILE* lines) {
  LAGOON_ASSIGN(const GenerationConfig file, read_generation_config(options, target));
  LAGOON_ASSIGN(const SamplingDefaults defaults,
                parse_generation_config(file.json, file.path, options.override_generation_config));
  const kernels::Sampling& sampling = defaults.sampling;
  print_line(
      lines,
      fmt::format(
          "sampling defaults: temperature {:g}, top_p {:g}, top_k {}, min_p {:g} ({}{})",
          sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, file.from,
          options.override_generation_config.empty() ? "" : ", --override-generation-config"));
  if (!defaults.ignored.empty()) {
    print_line(lines, fmt::format("not applied, since this version does not do it: {} of {}",
                                  defaults.ignored, file.path));
  }
  return sampling;
}

int thread_count(int asked) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxDefaultThreads);
}

Result<std::unique_ptr<kernels::Backend>> make_backend(const ModelOptions& options, int threads) {
  const std::string& name = options.backend;
  if (name == "ref") return kernels::ref::make_backend(kernels::Activations::kBFloat16, threads);
  if (name == "cuda" || (name == "auto" && kernels::cuda::built())) {
    auto backend = kernels::cuda::make_backend(kernels::Activations::kBFloat16, options.graphs);
    if (backend.ok() || name == "cuda") return backend;
    LOG(info, "on the processor, since {}", backend.error().message);
  }
  LAGOON_RETURN_IF_ERROR(kernels::cpu::select_from_environment());
  return kernels::cpu::make_backend(kernels::Activations::kBFloat16, threads);
}

// Prompt and answer together; 0: all that the model was made for.
Result<int64_t> context_length(const ModelOptions& options,
                               const checkpoint::TargetConfig& config) {
  if (options.max_length > config.max_positions) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-model-len is {}, and the model was made for at most {} tokens "
                             "(max_position_embeddings in its config.json)",
                             options.max_length, config.max_positions)};
  }
  if (options.max_length > 0) return options.max_length;
  return std::min(options.enough_length, config.max_positions);
}

double gib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// Where the pool of --kv-cache-memory-bytes is too small for one request of the greatest length,
// vLLM's sentence, of which scripts read the figures.
Result<void> size_pool(const ModelOptions& options, const checkpoint::TargetConfig& config,
                       model::LoadOptions& load) {
  if (options.kv_cache_bytes == 0) return {};
  load.pool_tokens = pool_positions(options.kv_cache_bytes, config, load.cache_type);
  const int64_t wanted = load.max_length > 0 ? load.max_length : config.max_positions;
  if (load.pool_tokens >= wanted) return {};
  if (options.fit_length && load.pool_tokens > 0) {
    load.max_length = load.pool_tokens;
    return {};
  }
  const int64_t needed = wanted * position_bytes(config, load.cache_type);
  return Error{
      ErrorCode::kResourceExhausted,
      fmt::format("To serve at least one request with the models's max seq len ({}), ({:.3g} GiB "
                  "KV cache is needed, which is larger than the available KV cache memory ({:.3g} "
                  "GiB). Based on the available memory, the estimated maximum model length is {}. "
                  "Try increasing `--kv-cache-memory-bytes` or decreasing `--max-model-len`.",
                  wanted, gib(needed), gib(options.kv_cache_bytes), load.pool_tokens)};
}

Result<model::LoadOptions> load_options(const ModelOptions& options,
                                        const checkpoint::TargetConfig& config) {
  model::LoadOptions load;
  load.slots = options.slots;
  LAGOON_ASSIGN(load.max_length, context_length(options, config));
  load.cache_type = cache_type(options.kv_cache_dtype, config);
  LAGOON_RETURN_IF_ERROR(size_pool(options, config, load));
  if (options.max_batched_tokens > 0 && options.max_batched_tokens < options.slots) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--max-num-batched-tokens is {}, and each of the {} requests of "
                             "--max-num-seqs needs one at least",
                             options.max_batched_tokens, options.slots)};
  }
  load.max_rows = options.max_batched_tokens > 0 ? options.max_batched_tokens
                                                 : std::max(load.max_rows, options.slots);
  if (options.dummy) {
    load.random = model::RandomOptions{.seed = options.dummy_seed,
                                       .routing_overlap = options.dummy_routing_overlap};
  }
  return load;
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

// 16384 as "16,384".
std::string grouped(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
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

// The lines that scripts know from vLLM's start, and the figures as they are here.
void print_memory(const model::ModelInfo& info, const checkpoint::TargetConfig& config,
                  const checkpoint::ModelDir& target, const model::LoadOptions& load,
                  int64_t max_length, double seconds, FILE* lines) {
  print_line(lines, fmt::format("Model loading took {:.4f} GiB and {:.3f} seconds",
                                gib(static_cast<int64_t>(target.weight_bytes())), seconds));
  if (has_nvfp4_experts(target, config)) {
    print_line(lines, "Using LAGOON NvFp4 MoE backend");
  }
  const int64_t positions = int64_t{info.pages} * info.page_tokens;
  print_line(lines, fmt::format("Available KV cache memory: {:.4f} GiB",
                                gib(positions * position_bytes(config, load.cache_type))));
  print_line(lines,
             fmt::format("GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per "
                         "request: {:.2f}x",
                         grouped(positions), grouped(max_length),
                         static_cast<double>(positions) / static_cast<double>(max_length)));
}

Result<void> load_weights(const ModelOptions& options, const LoadSurroundings& surroundings,
                          const checkpoint::ModelDir& target,
                          const checkpoint::TargetConfig& config, const Draft* draft,
                          const std::string& tokenizer_path, LoadedModel& loaded) {
  FILE* const lines = surroundings.lines;
  const int threads = thread_count(options.threads);
  const int proposals = draft == nullptr ? 0 : draft->proposals;
  LAGOON_ASSIGN(const model::LoadOptions load, load_options(options, config));
  loaded.threads = threads;
  loaded.proposals = proposals;
  // A draft that is asked for no proposals takes no memory, but what is wrong with it is said.
  if (draft != nullptr && proposals == 0) {
    LAGOON_RETURN_IF_ERROR(model::check_draft(target, draft->directory, load));
  }
  LAGOON_ASSIGN(loaded.backend, make_backend(options, threads));
  const auto start = std::chrono::steady_clock::now();
  LAGOON_ASSIGN(auto model, model::load(target, proposals > 0 ? &draft->directory : nullptr,
                                        *loaded.backend, load));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const model::ModelInfo info = model->info();
  if (loaded.tokenizer->vocab_size() > info.vocab) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has {} tokens, and the model of {} knows {}: they do not belong "
                             "together",
                             tokenizer_path, loaded.tokenizer->vocab_size(),
                             target.file_path("config.json"), info.vocab)};
  }
  print_line(lines, fmt::format("model: {} ({}, {:.1f} MB), {} threads, backend {}", loaded.name,
                                target.path(), static_cast<double>(target.weight_bytes()) / 1e6,
                                threads, loaded.backend->name()));
  print_line(lines, fmt::format("keys and values: {} (--kv-cache-dtype {})",
                                load.cache_type == kernels::CacheType::kFP8 ? "fp8" : "bfloat16",
                                options.kv_cache_dtype));
  print_synthetic(options, loaded, lines);
  if (draft == nullptr) {
    print_line(lines, "no draft: --speculative-config not given");
  } else if (proposals == 0) {
    print_line(lines, fmt::format("no draft: num_speculative_tokens is 0 ({} is not loaded)",
                                  draft->directory.path()));
  } else {
    print_line(lines, fmt::format("draft: {}, {} of at most {} proposals a step",
                                  draft->directory.path(), proposals, info.max_proposals));
  }
  loaded.engine = engine::Engine::start(
      std::move(model), *loaded.tokenizer, *loaded.metrics,
      surroundings.served_name.empty() ? loaded.name : surroundings.served_name,
      {.proposals = proposals,
       .max_length = load.max_length,
       .max_num_seqs = options.slots,
       .max_num_batched_tokens = load.max_rows,
       .synthetic_acceptance = options.synthetic_acceptance,
       .log_interval = surroundings.log_stats ? kLogInterval : 0});
  print_line(lines, fmt::format("context: {} tokens, prompt and answer together",
                                loaded.engine->max_length()));
  print_memory(info, config, target, load, loaded.engine->max_length(), seconds.count(), lines);
  return {};
}

}  // namespace

kernels::CacheType cache_type(const std::string& kv_cache_dtype,
                              const checkpoint::TargetConfig& config) {
  const bool fp8 = kv_cache_dtype == "auto" ? config.fp8_cache : kv_cache_dtype != "bfloat16";
  return fp8 ? kernels::CacheType::kFP8 : kernels::CacheType::kActivations;
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

namespace {

// Keys of --override-generation-config that replace the file's.
Result<std::string> with_override(const std::string& json, const std::string& path,
                                  const std::string& overriding) {
  if (overriding.empty()) return json;
  constexpr const char* kOption = "--override-generation-config";
  const auto changes = nlohmann::json::parse(overriding, nullptr, false);
  if (!changes.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a JSON object: {}", kOption, overriding)};
  }
  auto config = nlohmann::json::parse(json.empty() ? "{}" : json, nullptr, false);
  if (!config.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  }
  for (const auto& [key, value] : changes.items()) {
    if (key != "temperature" && key != "top_p" && key != "top_k" && key != "min_p") {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{} sets {}, and this version has server-wide defaults for "
                               "temperature, top_p, top_k and min_p only",
                               kOption, key)};
    }
    if (!value.is_number()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} gives {} a value that is no number", kOption, key)};
    }
    config[key] = value;
  }
  return config.dump();
}

}  // namespace

Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path,
                                                 const std::string& overriding) {
  LAGOON_ASSIGN(const std::string merged, with_override(json, path, overriding));
  return parse_generation_config(
      merged, overriding.empty() ? path : "--override-generation-config on " + path);
}

Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path) {
  SamplingDefaults defaults;
  defaults.sampling.temperature = 1;
  if (json.empty()) return defaults;
  const auto config = nlohmann::json::parse(json, nullptr, false);
  if (!config.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  }
  const auto number = [&](const char* key, double otherwise) {
    const auto found = config.find(key);
    return found != config.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  const double temperature = number("temperature", 1);
  const double top_p = number("top_p", 1);
  const double top_k = number("top_k", 0);
  const double min_p = number("min_p", 0);
  if (!(temperature >= 0 && temperature <= kMaxTemperature) || !(top_p > 0 && top_p <= 1) ||
      !(min_p >= 0 && min_p <= 1) || !(top_k <= std::numeric_limits<int>::max())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has a temperature outside [0, {:g}], a top_p outside (0, 1], a "
                             "min_p outside [0, 1] or a top_k that is no token count",
                             path, kMaxTemperature)};
  }
  defaults.sampling.temperature = static_cast<float>(temperature);
  defaults.sampling.top_p = static_cast<float>(top_p);
  defaults.sampling.top_k = static_cast<int>(std::max(top_k, 0.0));
  defaults.sampling.min_p = static_cast<float>(min_p);
  const std::pair<const char*, double> neutral[] = {
      {"repetition_penalty", 1}, {"presence_penalty", 0}, {"frequency_penalty", 0}};
  for (const auto& [key, value] : neutral) {
    if (number(key, value) == value) continue;
    defaults.ignored += (defaults.ignored.empty() ? "" : ", ") + std::string(key);
  }
  return defaults;
}

Result<std::unique_ptr<LoadedModel>> load_model(const ModelOptions& options,
                                                const LoadSurroundings& surroundings) {
  LAGOON_ASSIGN(const std::string path, checkpoint::find_model(options.model));
  LAGOON_ASSIGN(const auto target, open_model(options, path));
  LAGOON_ASSIGN(const auto config, checkpoint::parse_target_config(
                                       target.config_json(), target.file_path("config.json")));
  LAGOON_RETURN_IF_ERROR(context_length(options, config));
  LAGOON_ASSIGN(const auto draft, open_draft(options));
  auto loaded = std::make_unique<LoadedModel>();
  loaded->metrics = surroundings.metrics;
  loaded->name = directory_name(path);
  loaded->directory = path;
  LAGOON_ASSIGN(const std::string tokenizer, tokenizer_directory(options, target));
  const std::string tokenizer_path = tokenizer + "/tokenizer.json";
  LAGOON_ASSIGN(loaded->tokenizer, text::Tokenizer::load(tokenizer_path));
  LAGOON_ASSIGN(loaded->chat_template, text::ChatTemplate::load(tokenizer));
  LAGOON_ASSIGN(loaded->default_sampling,
                read_sampling_defaults(options, target, surroundings.lines));
  LAGOON_RETURN_IF_ERROR(load_weights(options, surroundings, target, config,
                                      draft ? &*draft : nullptr, tokenizer_path, *loaded));
  return loaded;
}

}  // namespace lagoon::app
