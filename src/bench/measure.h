// Rounds of requests to a subject, and what they say.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "bench/figures.h"
#include "bench/subject.h"

namespace lagoon::bench {

// One line of the table.
struct Measurement {
  RequestShape shape;
  int streams = 1;
  int warmup = 0;
  int repeats = 1;
  uint64_t seed = 0;  // of the prompts
};

struct Row {
  Measurement measurement;
  Spread prompt_tokens;                    // of all requests of all rounds
  Spread completion_tokens;                // likewise, and so on
  Spread decode_rate;                      // tokens per second
  Spread first_token;                      // seconds
  Spread prefill_rate;                     // tokens per second
  Spread total_rate;                       // of a round: tokens per second of all streams
  bool synthetic = false;                  // acceptance was drawn
  std::optional<Speculation> speculation;  // of the rounds that count
  std::optional<Experts> experts;
  std::optional<StepTimes> steps;
  std::optional<double> host_share;
  // Bytes of memory that the median step reads, by what is counted; 0: not known. Whoever knows the
  // model fills it in.
  double step_bytes = 0;
};

// Runs the warm-up rounds and those that count. In a round every stream sends one request with a
// prompt of its own; the next round begins when all have ended. `progress` hears of each round.
// Error: the first that a request met.
Result<Row> measure(Subject& subject, const Measurement& measurement,
                    const std::function<void(const std::string&)>& progress);

}  // namespace lagoon::bench
