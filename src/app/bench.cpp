#include "app/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "app/load.h"
#include "app/speculative_config.h"
#include "bench/engine_subject.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/server_subject.h"
#include "checkpoint/checkpoint_writer.h"
#include "net/client.h"

namespace lagoon::app {
namespace {

static_assert(ModelOptions::kAdaptive == bench::kAdaptive);

bench::Measurement measurement(const BenchOptions& options, int proposals, int streams) {
  bench::Measurement made;
  made.shape.input_length = options.input_length;
  made.shape.output_length = options.output_length;
  made.shape.proposals = proposals;
  made.shape.temperature = options.temperature;
  made.shape.chat = options.chat;
  made.shape.stop_at_eos = options.stop_at_eos;
  made.streams = streams;
  made.warmup = options.warmup;
  made.repeats = options.repeats;
  made.seed = options.seed;
  return made;
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

// A model set up for values of k that all have a draft, or all have none: without one nothing is
// computed for it, so k = 0 is not measured beside a draft.
Result<void> measure_model(const BenchOptions& options, std::vector<int> ks,
                           bench::Report& report) {
  ModelOptions model = options.model;
  const bool drafts = std::ranges::any_of(ks, [](int k) { return k != 0; });
  if (!drafts) {
    model.speculative_config.clear();
    model.synthetic_acceptance.clear();
  } else if (std::ranges::count(ks, bench::kAdaptive) > 0) {
    model.proposals = ModelOptions::kAdaptive;
  } else {
    model.proposals = *std::max_element(ks.begin(), ks.end());  // or as the configuration says
  }
  model.slots = *std::max_element(options.streams.begin(), options.streams.end());
  model.enough_length = int64_t{options.input_length} + options.output_length;
  LAGOON_ASSIGN(const auto loaded, load_model(model, {.lines = stderr}));
  if (report.facts.empty()) {
    report.facts = {
        {"model", loaded->name},
        {"backend", fmt::format("{}, {} threads", loaded->backend->name(), loaded->threads)}};
    report.dummy_weights = model.dummy;
  }
  std::ranges::replace(ks, bench::kAsSetUp,
                       loaded->adaptive ? bench::kAdaptive : loaded->proposals);
  if (drafts) report.facts.emplace_back("draft", options.model.speculative_config);
  if (!loaded->synthetic.empty() && (drafts || options.model.speculative_config.empty())) {
    report.facts.emplace_back("synthetic", loaded->synthetic);
  }
  const auto subject = bench::make_engine_subject(*loaded->engine, *loaded->tokenizer,
                                                  *loaded->chat_template, *loaded->metrics);
  return measure_all(*subject, options, ks, report);
}

Result<void> measure_in_process(const BenchOptions& options, bench::Report& report) {
  std::vector<int> ks = options.proposals;
  if (ks.empty()) {
    int k = 0;
    if (!options.model.speculative_config.empty()) {
      LAGOON_ASSIGN(const auto config, parse_speculative_config(options.model.speculative_config));
      k = config.proposals.value_or(bench::kAsSetUp);
    }
    ks = {k};
  }
  // Those without a draft come first.
  std::vector<int> with_draft;
  std::copy_if(ks.begin(), ks.end(), std::back_inserter(with_draft), [](int k) { return k != 0; });
  std::erase_if(ks, [](int k) { return k != 0; });
  for (const auto& part : {ks, with_draft}) {
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

}  // namespace

Result<void> bench(const BenchOptions& options) {
  bench::Report report;
  LAGOON_RETURN_IF_ERROR(options.url.empty() ? measure_in_process(options, report)
                                             : measure_server(options, report));
  report.facts.emplace_back("prompts", options.chat ? "generated code, chat" : "generated code");
  if (!options.json.empty()) {
    LAGOON_RETURN_IF_ERROR(checkpoint::write_text(options.json, bench::to_json(report)));
  }
  fmt::print("{}", bench::to_table(report));
  return {};
}

}  // namespace lagoon::app
