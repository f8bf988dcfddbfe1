// The table and the JSON text of `lagoon bench`.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.h"

namespace lagoon::bench {

// Where the figures come from, in the order in which it is printed: {"model", "laguna-nano"}, ...
using Facts = std::vector<std::pair<std::string, std::string>>;

// Of one model as it was loaded.
struct LoadFigures {
  double bytes = 0;  // of weights, the draft's included
  double seconds = 0;
};

// A draft of k proposals for one request, without a verification (bench/draft_time.h).
struct DraftStep {
  int proposals = 0;
  int context = 0;  // positions before it
  double seconds = 0;
  double bytes = 0;  // that it reads
};

struct Report {
  Facts facts;
  bool dummy_weights = false;
  std::vector<LoadFigures> loads;
  std::vector<DraftStep> drafts;
  double memory_rate = 0;  // bytes per second, measured after the rows; 0: not known
  std::vector<Row> rows;
};

// Facts, the table, acceptance by position; what is synthetic is said. docs/bench.md explains the
// columns. What a row has no value for is "-".
std::string to_table(const Report& report);

// {"facts": {...}, "synthetic_acceptance": bool, "dummy_weights": bool, "loads": [...],
// "memory_bytes_per_second": n, "draft_steps": [...], "rows": [...]}; a row has every figure of the
// table and every single value. null where there is none.
std::string to_json(const Report& report);

}  // namespace lagoon::bench
