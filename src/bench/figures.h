// From times and counts to the figures that are reported.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "bench/counts.h"
#include "bench/subject.h"

namespace lagoon::bench {

// The middle value (of an even number the mean of the two) and the extremes.
struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
  std::vector<double> values;  // in order of measurement
};
Spread spread(std::vector<double> values);

// (completion_tokens - 1) / (t_last - t_first): the first token's time is the prompt's. 0 for an
// answer that came at once or has one token.
double decode_rate(const Answer& answer);
// The same of answers that were made at one time: all tokens but the first ones, over the time from
// the earliest first token to the latest last one.
double total_rate(std::span<const Answer> answers);
double seconds_to_first(const Answer& answer);
// Prompt tokens over the time to the first token, which includes drawing it.
double prefill_rate(const Answer& answer);

// Seconds from each step that gave an answer tokens to the next one, of all answers; absent where
// no answer knows its steps, or none has two. `values` are left out: there are many.
struct StepTimes {
  Spread seconds;
  size_t count = 0;
};
std::optional<StepTimes> step_times(std::span<const Answer> answers);

// The share of the time from the first token to the last in which the host did not wait for its
// device, on average over the answers that know it; absent where none does.
std::optional<double> host_share(std::span<const Answer> answers);

// What counts say; absent where there is nothing to say it of.
struct Speculation {
  double acceptance = 0;            // accepted / drafted tokens
  double accepted_per_step = 0;     // accepted tokens / steps that verified drafts
  double tokens_per_step = 0;       // + 1: the token that the target adds
  std::vector<double> by_position;  // share of these steps that accepted drafts up to there
};
// Positions from `proposals` on are left out; -1: none.
std::optional<Speculation> speculation(const Counts& counts, int proposals = -1);

struct Experts {
  double distinct = 0;  // experts that a sparse layer reads in a step without prompt rows
  double rows = 0;      // of such a step
};
std::optional<Experts> experts(const Counts& counts);

}  // namespace lagoon::bench
