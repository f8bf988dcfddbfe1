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

struct Report {
  Facts facts;
  bool dummy_weights = false;
  std::vector<Row> rows;
};

// Facts, the table, acceptance by position; what is synthetic is said. docs/bench.md explains the
// columns. What a row has no value for is "-".
std::string to_table(const Report& report);

// {"facts": {...}, "synthetic_acceptance": bool, "dummy_weights": bool, "rows": [...]}; a row has
// every figure of the table and every single value. null where there is none.
std::string to_json(const Report& report);

}  // namespace lagoon::bench
