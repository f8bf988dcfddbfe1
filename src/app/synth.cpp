#include "app/synth.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/config.h"
#include "checkpoint/config_parts.h"
#include "checkpoint/depth.h"
#include "checkpoint/file.h"
#include "checkpoint/json_value.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/quantization.h"
#include "model/random_weights.h"
#include "text/tokenizer.h"

namespace lagoon::app {
namespace {

namespace fs = std::filesystem;

// Files beside the weights that a target needs to be served, as far as they are there.
constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::string_view kTokenizerFiles[] = {kTokenizer, "tokenizer_config.json",
                                                "special_tokens_map.json", "chat_template.jinja"};
constexpr std::string_view kGeneration = "generation_config.json";
constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 24;

// --config: a config.json, or the directory or bundled model that has it.
struct Source {
  std::string directory;
  std::string path;
  std::string json;
};

Result<Source> find_source(const std::string& name) {
  Source source;
  std::error_code error;
  if (fs::is_regular_file(name, error)) {
    source.path = name;
    const fs::path parent = fs::path(name).parent_path();
    source.directory = parent.empty() ? "." : parent.string();
  } else {
    LAGOON_ASSIGN(source.directory, checkpoint::find_model(name));
    source.path = source.directory + "/config.json";
  }
  LAGOON_ASSIGN(source.json, checkpoint::read_whole_file(source.path, kMaxConfigBytes));
  return source;
}

Result<bool> is_draft(const Source& source) {
  LAGOON_ASSIGN(const checkpoint::JsonValue document,
                checkpoint::parse_json(source.json, source.path));
  const auto* object = document.get_if<checkpoint::JsonObject>();
  if (object == nullptr)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", source.path)};
  const checkpoint::JsonFields config(*object, source.path);
  return checkpoint::check_architecture(config, checkpoint::kDraftArchitecture).ok();
}

// What will be written.
struct Plan {
  bool draft = false;
  int layers = 0;
  std::string config;
  std::vector<model::RandomTensor> tensors;
  std::vector<fs::path> copies;  // files beside the weights
};

Result<void> plan_tensors(const Source& source, const SynthOptions& options, Plan& plan) {
  plan.config = source.json;
  LAGOON_ASSIGN(const auto scheme, checkpoint::QuantizationScheme::parse(source.json, source.path));
  if (plan.draft) {
    if (options.routing_overlap > 0)
      return Error{ErrorCode::kInvalidArgument,
                   "--dummy-routing-overlap acts on routers, and a draft has none"};
    if (options.layers > 0) {
      LAGOON_ASSIGN(plan.config, checkpoint::fit_draft(source.json, source.path, options.layers));
    }
    LAGOON_ASSIGN(const auto config, checkpoint::parse_draft_config(plan.config, source.path));
    plan.layers = config.layers;
    LAGOON_ASSIGN(plan.tensors, model::random_draft(config, scheme));
    return {};
  }
  if (options.layers > 0) {
    LAGOON_ASSIGN(plan.config, checkpoint::cut_target(source.json, source.path, options.layers));
  }
  LAGOON_ASSIGN(const auto config, checkpoint::parse_target_config(plan.config, source.path));
  plan.layers = static_cast<int>(config.layers.size());
  LAGOON_ASSIGN(plan.tensors, model::random_target(config, scheme,
                                                   {.seed = options.seed,
                                                    .routing_overlap = options.routing_overlap}));
  return {};
}

// The tokenizer of --tokenizer, else of the config's own directory; a draft needs none.
Result<void> plan_copies(const Source& source, const SynthOptions& options, Plan& plan) {
  if (plan.draft) {
    if (!options.tokenizer.empty())
      return Error{ErrorCode::kInvalidArgument,
                   "--tokenizer is for a target: a draft has its target's"};
    return {};
  }
  std::string directory = source.directory;
  if (!options.tokenizer.empty()) {
    LAGOON_ASSIGN(directory, checkpoint::find_model(options.tokenizer));
  }
  std::error_code error;
  const fs::path tokenizer = fs::path(directory) / kTokenizer;
  if (fs::exists(tokenizer, error)) {
    LAGOON_ASSIGN(const auto config, checkpoint::parse_target_config(plan.config, source.path));
    LAGOON_ASSIGN(const auto loaded, text::Tokenizer::load(tokenizer.string()));
    if (loaded->vocab_size() > config.vocab)
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("{} has {} tokens, and the model of {} knows {}: give another "
                      "--tokenizer",
                      tokenizer.string(), loaded->vocab_size(), source.path, config.vocab)};
  } else if (!options.tokenizer.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("{} has no {}", directory, kTokenizer)};
  }
  for (const std::string_view name : kTokenizerFiles)
    if (const fs::path file = fs::path(directory) / name; fs::exists(file, error))
      plan.copies.push_back(file);
  if (const fs::path file = fs::path(source.directory) / kGeneration; fs::exists(file, error))
    plan.copies.push_back(file);
  return {};
}

// How far it is, on one line of a terminal.
class Progress {
 public:
  void show(uint64_t written, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || (written < total && now - last_ < std::chrono::milliseconds(200))) return;
    last_ = now;
    const double share = total == 0 ? 1 : static_cast<double>(written) / total;
    fmt::print(stderr, "\r{:.2f} of {:.2f} GB ({:.0f} %){}", written / 1e9, total / 1e9,
               100 * share, written < total ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point last_;
};

// The bytes of a tensor from `first` on, made by all threads together: a processor alone makes them
// more slowly than a disk takes them.
void fill(const model::RandomTensor& tensor, uint64_t seed, uint64_t first,
          std::span<std::byte> into, ThreadPool& pool) {
  constexpr size_t kPiece = size_t{16} << 10;
  const auto pieces = static_cast<int64_t>((into.size() + kPiece - 1) / kPiece);
  pool.parallel_for(pieces, [&](int64_t begin, int64_t end) {
    const size_t from = static_cast<size_t>(begin) * kPiece;
    const size_t to = std::min(into.size(), static_cast<size_t>(end) * kPiece);
    model::fill_random(tensor, seed, first + from, into.subspan(from, to - from));
  });
}

std::vector<checkpoint::TensorToWrite> to_write(const Plan& plan, uint64_t seed, ThreadPool& pool) {
  std::vector<checkpoint::TensorToWrite> tensors;
  tensors.reserve(plan.tensors.size());
  for (const model::RandomTensor& tensor : plan.tensors) {
    checkpoint::TensorToWrite write;
    write.name = tensor.name;
    write.dtype = tensor.dtype;
    write.shape = tensor.shape;
    write.make = [&tensor, seed, &pool](uint64_t first, std::span<std::byte> into) {
      fill(tensor, seed, first, into, pool);
    };
    tensors.push_back(std::move(write));
  }
  return tensors;
}

Result<void> copy_file(const fs::path& from, const std::string& directory) {
  std::error_code error;
  const fs::path to = fs::path(directory) / from.filename();
  fs::copy_file(from, to, error);
  if (error)
    return Error{ErrorCode::kInternal, fmt::format("{} cannot be copied to {}: {}", from.string(),
                                                   to.string(), error.message())};
  return {};
}

void print_summary(const Plan& plan, const SynthOptions& options, uint64_t bytes) {
  if (options.no_weights) {
    fmt::print(
        "{}: config of a {} of {} layers, without weights; --load-format dummy makes them "
        "in memory ({:.2f} GB)\n",
        options.out, plan.draft ? "draft" : "target", plan.layers, bytes / 1e9);
  } else {
    fmt::print("{}: {} of {} layers, {} tensors of random weights, {:.2f} GB, seed {}\n",
               options.out, plan.draft ? "draft" : "target", plan.layers, plan.tensors.size(),
               bytes / 1e9, options.seed);
  }
  const bool has_tokenizer = !plan.copies.empty() && plan.copies.front().filename() == kTokenizer;
  if (!plan.draft && !has_tokenizer)
    fmt::print(
        "It has no tokenizer.json, which serving needs: copy one there, or give --tokenizer "
        "DIR (the bundled laguna-nano-nvfp4 will do for random weights)\n");
}

}  // namespace

Result<void> synth(const SynthOptions& options) {
  LAGOON_ASSIGN(const Source source, find_source(options.config));
  Plan plan;
  LAGOON_ASSIGN(plan.draft, is_draft(source));
  LAGOON_RETURN_IF_ERROR(plan_tensors(source, options, plan));
  LAGOON_RETURN_IF_ERROR(plan_copies(source, options, plan));
  ThreadPool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U)));
  const auto tensors = to_write(plan, options.seed, pool);
  LAGOON_ASSIGN(const uint64_t bytes, checkpoint::total_bytes(tensors));
  LAGOON_RETURN_IF_ERROR(
      checkpoint::prepare_directory(options.out, options.no_weights ? 0 : bytes));
  if (!options.no_weights) {
    Progress progress;
    checkpoint::WriteOptions write;
    write.progress = [&](uint64_t written, uint64_t total) { progress.show(written, total); };
    LAGOON_RETURN_IF_ERROR(checkpoint::write_weights(options.out, tensors, write));
  }
  for (const fs::path& file : plan.copies) LAGOON_RETURN_IF_ERROR(copy_file(file, options.out));
  // The last: what was not finished is no model directory.
  LAGOON_RETURN_IF_ERROR(checkpoint::write_text(options.out + "/config.json", plan.config));
  print_summary(plan, options, bytes);
  return {};
}

}  // namespace lagoon::app
