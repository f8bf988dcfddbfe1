// Speculative decoding: proposals for the next tokens, and which of them stand. The target draws
// the token at a position by a generator keyed with (seed, position); a proposal stands while it
// equals that token. So the text is the one without proposals, sampled text too, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace lagoon::engine {

class Speculator {
 public:
  // Proposals come from `proposer`, or from the model's draft where it is null.
  Speculator(model::Model& model, Proposer proposer);

  // Makes the proposals that the plan asks for, in one draft for all sequences. A proposer may give
  // fewer than asked for; the plan then says how many.
  void propose(std::span<Work> plan);

 private:
  void draft(std::span<const Work> plan);
  void ask_proposer(Work& work);

  model::Model& model_;
  Proposer proposer_;
};

// Proposals that are random tokens of the vocabulary, so that steps of k + 1 rows can be timed
// without a draft. Depends on the position alone.
Proposer random_proposer(int vocab);

// How many proposals stand. `computed` is the newest token and the proposals after it; `sampled`
// holds the token drawn after each of them: proposal j + 1 stands if it equals sampled[j] and all
// before it stand. The answer gains the accepted ones and one more, sampled[accepted].
int count_accepted(std::span<const int32_t> computed, std::span<const int32_t> sampled);

// The tokens that the answer gains: the accepted proposals as computed, and the one drawn after the
// last of them.
std::vector<int32_t> gained_tokens(std::span<const int32_t> computed,
                                   std::span<const int32_t> sampled, int accepted);

// Options::synthetic_acceptance: draws how many proposals stand. Immutable.
class SyntheticAcceptance {
 public:
  // Entry i: the probability that proposals 0..i all stand. CHECKs that it never rises and lies in
  // [0, 1]. Empty: nothing is synthetic.
  explicit SyntheticAcceptance(std::vector<double> rates);

  bool enabled() const { return !rates_.empty(); }
  // Of `proposals` after the anchor at `position` of a request with that sampling seed. The same
  // arguments draw the same number, whatever else is computed.
  int draw(uint64_t seed, int32_t position, int proposals) const;

 private:
  std::vector<double> rates_;
};

}  // namespace lagoon::engine
