// What a server has counted of speculation, read from its Prometheus metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lagoon::bench {

// Counters since the server started; those of several models or engines are added up.
struct Counts {
  bool speculation = false;         // the server has vLLM's vllm:spec_decode_* counters
  double drafts = 0;                // steps that verified drafts
  double drafted = 0;               // tokens
  double accepted = 0;              // tokens
  std::vector<double> accepted_at;  // by position in the draft

  // Of Lagoon: sparse layers of steps without prompt rows, their rows, the experts they read.
  double expert_layers = 0;
  double expert_rows = 0;
  double experts_read = 0;

  bool synthetic = false;  // acceptance is drawn, not compared (a label of Lagoon's metrics)
};

// Reads an exposition text (https://prometheus.io/docs/instrumenting/exposition_formats). Lines
// that are not understood are left out.
Counts parse_counts(std::string_view metrics);

// What was counted between two readings.
Counts difference(const Counts& before, const Counts& after);

}  // namespace lagoon::bench
