// What the next step computes, and for whom.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace lagoon::engine {

// One sequence's part of a step.
struct Work {
  Sequence* sequence = nullptr;
  int prefill_rows = 0;  // the next rows of its prefill; 0: the newest token of the answer, and
  int proposals = 0;     // proposals to verify after it
  // Where proposals come from outside the model: the newest token and they, `proposals` + 1 tokens.
  std::vector<int32_t> explicit_tokens = {};

  int rows() const { return prefill_rows > 0 ? prefill_rows : proposals + 1; }
};

struct StepLimits {
  int max_rows = 0;       // of a step, at least one for each sequence
  int prefill_rows = 0;   // of all prefills together
  int proposals = 0;      // of a sequence whose request names no number; -1: as it was chosen
  int max_proposals = 0;  // of any sequence
};

// How `budget` is shared among who wants so much of it: nobody gets more than wanted, and nobody
// less than another who got less than wanted, but for 1.
std::vector<int> share_evenly(std::span<const int> wanted, int budget);

// Every answering sequence gets a row. An eighth of the rows is kept for prefills where there are
// any; what is left is shared evenly by proposals. Prefills get the rest: the first in order of
// arrival up to half of it, so that it goes on whatever comes; the others, which may be short,
// share the other half evenly. A prefill may get nothing. Text does not depend on any of this
// (docs/design.md, "The same text").
std::vector<Work> plan_step(std::span<const std::unique_ptr<Sequence>> running,
                            const StepLimits& limits);

// How many rows of prefill a step may have, as measured. Those who wait for the step are answers,
// which must not stall longer than max_stall seconds for prefill, or only new requests and
// cancellations, for which four times as long is good enough.
class PrefillPace {
 public:
  PrefillPace(double max_stall, int most) : max_stall_(max_stall), most_(most) {}

  int rows(bool answering) const;
  // A step with so many rows of prefill, of at most `allowed`, took so long.
  void measure(int rows, int allowed, double seconds);

 private:
  double max_stall_;
  int most_;
  double seconds_per_row_ = 0;  // 0: not measured yet
};

}  // namespace lagoon::engine
