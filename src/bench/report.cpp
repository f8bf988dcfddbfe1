#include "bench/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lagoon::bench {
namespace {

using Json = nlohmann::ordered_json;

bool any_synthetic(const Report& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const Row& row) { return row.synthetic; });
}

std::string k_text(int proposals) {
  if (proposals == kAdaptive) return "auto";
  return proposals < 0 ? "-" : fmt::format("{}", proposals);
}

Json k_json(int proposals) {
  if (proposals == kAdaptive) return "auto";
  return proposals < 0 ? Json() : Json(proposals);
}

const std::vector<std::string> kHeads = {"k",         "streams", "prompt",   "output",   "tok/s",
                                         "min..max",  "total",   "TTFT",     "prefill",  "step",
                                         "of memory", "accept",  "acc/step", "tok/step", "experts"};

// The share of the memory's rate that reading so many bytes in that time is; 0: not known.
double of_memory(double bytes, double seconds, double rate) {
  return bytes > 0 && seconds > 0 && rate > 0 ? bytes / seconds / rate : 0;
}

double of_memory(const Row& row, double rate) {
  return row.steps ? of_memory(row.step_bytes, row.steps->seconds.median, rate) : 0;
}

std::vector<std::string> cells(const Row& row, double memory_rate) {
  std::vector<std::string> cells = {
      k_text(row.measurement.shape.proposals),
      fmt::format("{}", row.measurement.streams),
      fmt::format("{:.0f}", row.prompt_tokens.median),
      fmt::format("{:.0f}", row.completion_tokens.median),
      fmt::format("{:.1f}", row.decode_rate.median),
      fmt::format("{:.1f}..{:.1f}", row.decode_rate.least, row.decode_rate.most),
      fmt::format("{:.1f}", row.total_rate.median),
      fmt::format("{:.1f}", 1000 * row.first_token.median),
      row.measurement.shape.random_context ? "-" : fmt::format("{:.0f}", row.prefill_rate.median),
      "-",
      "-",
      "-",
      "-",
      "-",
      "-"};
  if (row.steps) cells[9] = fmt::format("{:.3f}", 1000 * row.steps->seconds.median);
  if (const double share = of_memory(row, memory_rate); share > 0) {
    cells[10] = fmt::format("{:.2f}", share);
  }
  if (const auto& speculation = row.speculation) {
    cells[11] = fmt::format("{:.1f}%", 100 * speculation->acceptance);
    cells[12] = fmt::format("{:.2f}", speculation->accepted_per_step);
    cells[13] = fmt::format("{:.2f}", speculation->tokens_per_step);
  }
  if (const auto& experts = row.experts) {
    cells[14] = fmt::format("{:.1f}/{:.1f}", experts->distinct, experts->rows);
  }
  return cells;
}

std::string format_rows(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      text += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", line[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

Json to_json(const Spread& spread) {
  return {{"median", spread.median},
          {"min", spread.least},
          {"max", spread.most},
          {"values", spread.values}};
}

Json number_or_null(double number) {
  return number > 0 ? Json(number) : Json();
}

Json to_json(const StepTimes& steps) {
  return {{"median", steps.seconds.median},
          {"min", steps.seconds.least},
          {"max", steps.seconds.most},
          {"count", steps.count}};
}

Json to_json(const LoadFigures& load) {
  return {{"bytes", load.bytes},
          {"seconds", load.seconds},
          {"bytes_per_second", load.seconds > 0 ? load.bytes / load.seconds : 0}};
}

Json to_json(const DraftStep& draft, double memory_rate) {
  return {
      {"k", draft.proposals},
      {"context", draft.context},
      {"seconds", draft.seconds},
      {"bytes", draft.bytes},
      {"share_of_memory_rate", number_or_null(of_memory(draft.bytes, draft.seconds, memory_rate))}};
}

Json to_json(const Row& row, double memory_rate) {
  const RequestShape& shape = row.measurement.shape;
  Json json;
  json["k"] = k_json(shape.proposals);
  json["streams"] = row.measurement.streams;
  json["warmup"] = row.measurement.warmup;
  json["repeats"] = row.measurement.repeats;
  json["temperature"] = shape.temperature;
  json["prompt_tokens"] = to_json(row.prompt_tokens);
  json["completion_tokens"] = to_json(row.completion_tokens);
  json["decode_tokens_per_second"] = to_json(row.decode_rate);
  json["total_tokens_per_second"] = to_json(row.total_rate);
  json["time_to_first_token_seconds"] = to_json(row.first_token);
  json["prefill_tokens_per_second"] = to_json(row.prefill_rate);
  json["synthetic_acceptance"] = row.synthetic;
  const auto& speculation = row.speculation;
  json["acceptance"] = speculation ? Json(speculation->acceptance) : Json();
  json["accepted_drafts_per_step"] = speculation ? Json(speculation->accepted_per_step) : Json();
  json["tokens_emitted_per_step"] = speculation ? Json(speculation->tokens_per_step) : Json();
  json["acceptance_by_position"] = speculation ? Json(speculation->by_position) : Json();
  json["experts_per_layer"] = row.experts ? Json(row.experts->distinct) : Json();
  json["rows_per_step"] = row.experts ? Json(row.experts->rows) : Json();
  json["random_context"] = shape.random_context;
  json["step_seconds"] = row.steps ? to_json(*row.steps) : Json();
  json["host_share"] = row.host_share ? Json(*row.host_share) : Json();
  json["step_bytes"] = number_or_null(row.step_bytes);
  json["share_of_memory_rate"] = number_or_null(of_memory(row, memory_rate));
  return json;
}

}  // namespace

std::string to_table(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.facts) text += fmt::format("{}: {}\n", name, value);
  if (report.memory_rate > 0) {
    text += fmt::format("memory: {:.1f} GB/s\n", report.memory_rate / 1e9);
  }
  for (const DraftStep& draft : report.drafts) {
    text += fmt::format("a draft of {} proposals at {} positions: {:.3f} ms, {:.3f} GB\n",
                        draft.proposals, draft.context, 1000 * draft.seconds, draft.bytes / 1e9);
  }
  if (report.dummy_weights) text += "WEIGHTS ARE RANDOM: the text means nothing\n";
  if (any_synthetic(report)) {
    text += "ACCEPTANCE IS SYNTHETIC: drawn at the rates given, not found by the target\n";
  }
  std::vector<std::vector<std::string>> lines = {kHeads};
  for (const Row& row : report.rows) lines.push_back(cells(row, report.memory_rate));
  text += format_rows(lines);
  for (const Row& row : report.rows) {
    if (!row.speculation) continue;
    text += fmt::format(
        "acceptance by position, k {}, streams {}{}:", k_text(row.measurement.shape.proposals),
        row.measurement.streams, row.synthetic ? " (synthetic)" : "");
    for (const double rate : row.speculation->by_position) text += fmt::format(" {:.2f}", rate);
    text += '\n';
  }
  return text;
}

std::string to_json(const Report& report) {
  Json json;
  json["facts"] = Json::object();
  for (const auto& [name, value] : report.facts) json["facts"][name] = value;
  json["synthetic_acceptance"] = any_synthetic(report);
  json["dummy_weights"] = report.dummy_weights;
  json["loads"] = Json::array();
  for (const LoadFigures& load : report.loads) json["loads"].push_back(to_json(load));
  json["memory_bytes_per_second"] = number_or_null(report.memory_rate);
  json["draft_steps"] = Json::array();
  for (const DraftStep& draft : report.drafts) {
    json["draft_steps"].push_back(to_json(draft, report.memory_rate));
  }
  json["rows"] = Json::array();
  for (const Row& row : report.rows) json["rows"].push_back(to_json(row, report.memory_rate));
  // Names of models and servers may hold any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lagoon::bench
