#include "app/bench.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/load.h"
#include "app/option_parts.h"
#include "app/speculative_config.h"
#include "bench/draft_time.h"
#include "bench/engine_subject.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/server_subject.h"
#include "checkpoint/checkpoint_writer.h"
#include "net/client.h"
#include "plan/speed.h"

namespace lagoon::app {
namespace {

namespace fs = std::filesystem;

static_assert(ModelOptions::kAdaptive == bench::kAdaptive);

bench::Measurement measurement(const BenchOptions& options, int proposals, int streams) {
  bench::Measurement made;
  made.shape.input_length = options.input_length;
  made.shape.output_length = options.output_length;
  made.shape.proposals = proposals;
  made.shape.temperature = options.temperature;
  made.shape.chat = options.chat;
  made.shape.stop_at_eos = options.stop_at_eos;
  made.shape.random_context = options.random_context;
  made.streams = streams;
  made.warmup = options.warmup;
  made.repeats = options.repeats;
  made.seed = options.seed;
  return made;
}

// Enough that caches do not count, and as much as a published rate of a copy is measured with.
constexpr int64_t kCopyBytes = int64_t{4} << 30;

plan::ByteModel byte_model(const plan::Demand& demand) {
  return {demand.target, demand.weights, demand.draft ? &demand.draft_weights : nullptr,
          demand.cache_type};
}

// Bytes of the median step of a row, in the middle of its answers; 0 where the backend did not
// count the experts, or some steps have a draft and others none.
double step_bytes(const bench::Row& row, const plan::Demand& demand) {
  if (demand.target.experts > 0 && !row.experts) return 0;
  if (row.measurement.shape.proposals == bench::kAdaptive) return 0;
  const double context = row.prompt_tokens.median + row.completion_tokens.median / 2;
  const int streams = row.measurement.streams;
  const plan::ByteModel bytes = byte_model(demand);
  const double target =
      bytes.counted_bytes(row.experts ? row.experts->distinct : 0, context, streams);
  const bool drafted = demand.draft.has_value() && row.measurement.shape.proposals > 0;
  return target + (drafted ? bytes.draft_bytes(*demand.draft, context, streams, true) : 0);
}

Result<void> measure_drafts(const BenchOptions& options, const std::vector<int>& ks,
                            const plan::Demand& demand, model::Model& model,
                            bench::Report& report) {
  for (const int k : ks) {
    const int context =
        static_cast<int>(std::min<int64_t>(options.input_length, demand.max_length - k - 1));
    if (k <= 0 || context < 1 || model.info().max_rows < k + 1) continue;
    LAGOON_ASSIGN(const double seconds, bench::time_draft(model, k, context));
    report.drafts.push_back(
        {.proposals = k,
         .context = context,
         .seconds = seconds,
         .bytes = byte_model(demand).draft_bytes(*demand.draft, context, 1, false)});
  }
  return {};
}

Result<void> measure_all(bench::Subject& subject, const BenchOptions& options,
                         const std::vector<int>& ks, bench::Report& report) {
  for (const int k : ks) {
    for (const int streams : options.streams) {
      const std::string what = k == bench::kAsSetUp ? fmt::format("streams {}", streams)
                               : k == bench::kAdaptive
                                   ? fmt::format("k auto, streams {}", streams)
                                   : fmt::format("k {}, streams {}", k, streams);
      LAGOON_ASSIGN(bench::Row row, bench::measure(subject, measurement(options, k, streams),
                                                   [&](const std::string& round) {
                                                     fmt::print(stderr, "{}: {}\n", what, round);
                                                   }));
      report.rows.push_back(std::move(row));
    }
  }
  return {};
}

bool with_draft(const BenchOptions& options, const std::vector<int>& ks) {
  return !options.random_proposals && std::ranges::any_of(ks, [](int k) { return k != 0; });
}

// A model set up for values of k that all have a draft, or all have none: without one nothing is
// computed for it, so k = 0 is not measured beside a draft.
ModelOptions model_options(const BenchOptions& options, const std::vector<int>& ks) {
  ModelOptions model = options.model;
  const int most = *std::max_element(ks.begin(), ks.end());
  const bool drafts = with_draft(options, ks);
  model.random_caches = options.random_context;
  if (options.random_proposals) {
    model.foreign_proposals = most;
  } else if (!drafts) {
    model.speculative_config.clear();
    model.synthetic_acceptance.clear();
  } else if (std::ranges::count(ks, bench::kAdaptive) > 0) {
    model.proposals = ModelOptions::kAdaptive;
  } else {
    model.proposals = most;  // or as the configuration says
  }
  model.slots = *std::max_element(options.streams.begin(), options.streams.end());
  model.enough_length = int64_t{options.input_length} + options.output_length;
  return model;
}

Result<void> measure_model(const BenchOptions& options, std::vector<int> ks,
                           bench::Report& report) {
  const ModelOptions model = model_options(options, ks);
  const bool drafts = with_draft(options, ks);
  LoadSurroundings surroundings{.lines = stderr};
  surroundings.warm_up = true;
  if (drafts) {
    surroundings.before_engine = [&](model::Model& made, const plan::Demand& demand) {
      return measure_drafts(options, ks, demand, made, report);
    };
  }
  LAGOON_ASSIGN(const auto loaded, load_model(model, surroundings));
  const plan::Demand& demand = loaded->demand;
  report.loads.push_back(
      {.bytes = static_cast<double>(demand.weights.bytes() + demand.draft_weights.bytes()),
       .seconds = loaded->load_seconds});
  if (report.facts.empty()) {
    report.facts = {
        {"model", loaded->name},
        {"backend", fmt::format("{}, {} threads", loaded->backend->name(), loaded->threads)}};
    report.dummy_weights = model.dummy;
  }
  std::ranges::replace(ks, bench::kAsSetUp,
                       loaded->adaptive ? bench::kAdaptive : loaded->proposals);
  if (options.random_context) {
    report.facts.emplace_back("context", "random keys and values, taken as computed");
  }
  if (options.random_proposals) {
    report.facts.emplace_back("proposals", "random tokens, without a draft");
  }
  if (drafts) report.facts.emplace_back("draft", options.model.speculative_config);
  if (!loaded->synthetic.empty() && (drafts || options.model.speculative_config.empty())) {
    report.facts.emplace_back("synthetic", loaded->synthetic);
  }
  const auto subject =
      bench::make_engine_subject(*loaded->engine, *loaded->tokenizer, *loaded->chat_template,
                                 *loaded->metrics, *loaded->backend);
  const size_t first = report.rows.size();
  LAGOON_RETURN_IF_ERROR(measure_all(*subject, options, ks, report));
  for (size_t i = first; i < report.rows.size(); ++i) {
    report.rows[i].step_bytes = step_bytes(report.rows[i], demand);
  }
  if (report.memory_rate > 0) return {};
  loaded->engine.reset();  // the backend is ours, and the caches are free again
  report.memory_rate = plan::measure_memory_rate(*loaded->backend, kCopyBytes, loaded->threads);
  return {};
}

// What cannot be measured is said before anything is, since measuring takes long.
Result<void> check_part(const BenchOptions& options, const std::vector<int>& ks) {
  ModelOptions model = model_options(options, ks);
  LAGOON_RETURN_IF_ERROR(check_model(model));
  const int most = *std::max_element(ks.begin(), ks.end());
  LAGOON_RETURN_IF_ERROR(check_rows(options, most));
  if (model.proposals != ModelOptions::kAdaptive || most <= 0) return {};
  model.proposals = most;  // named beside auto
  return check_model(model);
}

Result<void> measure_in_process(const BenchOptions& options, bench::Report& report) {
  std::vector<int> ks = options.proposals;
  std::optional<int> named;
  if (!options.model.speculative_config.empty()) {
    LAGOON_ASSIGN(const auto config, parse_speculative_config(options.model.speculative_config));
    named = config.proposals.value_or(bench::kAsSetUp);
  }
  if (ks.empty()) ks = {named.value_or(0)};
  // Those without a draft come first.
  std::vector<int> drafting;
  std::copy_if(ks.begin(), ks.end(), std::back_inserter(drafting), [](int k) { return k != 0; });
  std::erase_if(ks, [](int k) { return k != 0; });
  // Without a draft all of them are measured with one model.
  if (options.random_proposals) {
    ks.insert(ks.end(), drafting.begin(), drafting.end());
    drafting.clear();
  }
  for (const auto& part : {ks, drafting}) {
    if (!part.empty()) LAGOON_RETURN_IF_ERROR(check_part(options, part));
  }
  for (const auto& part : {ks, drafting}) {
    if (!part.empty()) LAGOON_RETURN_IF_ERROR(measure_model(options, part, report));
  }
  return {};
}

Result<void> measure_server(const BenchOptions& options, bench::Report& report) {
  LAGOON_ASSIGN(net::Url url, net::parse_url(options.url));
  // Base URLs of clients end in /v1.
  if (url.prefix.ends_with("/v1")) url.prefix.resize(url.prefix.size() - 3);
  bench::ServerOptions server{.url = std::move(url), .model = options.served_model, .timeouts = {}};
  server.timeouts.silence = std::chrono::seconds(options.timeout);
  LAGOON_ASSIGN(const auto subject, bench::connect_server(server));
  report.facts = {{"server", options.url}, {"model", subject->model()}};
  return measure_all(*subject, options, {bench::kAsSetUp}, report);
}

// Before it is measured what goes into it.
Result<void> check_file(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--json {}: there is no folder {}", path, folder.string())};
  }
  if (fs::is_directory(path, error)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--json {} is a folder: name a file in it", path)};
  }
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--json {}: files in its folder cannot be written", path)};
}

}  // namespace

Result<void> bench(const BenchOptions& options) {
  if (!options.json.empty()) LAGOON_RETURN_IF_ERROR(check_file(options.json));
  bench::Report report;
  LAGOON_RETURN_IF_ERROR(options.url.empty() ? measure_in_process(options, report)
                                             : measure_server(options, report));
  report.facts.emplace_back("prompts", options.chat ? "generated code, chat" : "generated code");
  // The table first: a disk that is full takes no figures away.
  fmt::print("{}", bench::to_table(report));
  if (options.json.empty()) return {};
  return checkpoint::write_text(options.json, bench::to_json(report));
}

}  // namespace lagoon::app
