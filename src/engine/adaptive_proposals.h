// How many proposals the next step should verify, where nobody has said: as many as give the most
// tokens a second, going by what steps cost and how many proposals stand. Text does not depend on
// it (README.md). Not thread-safe: the engine's thread.
#pragma once

#include <span>
#include <vector>

#include "engine/acceptance.h"
#include "engine/step_costs.h"

namespace lagoon::engine {

// What is remembered of a request, and what was chosen for its next step.
class Drafting {
 public:
  int proposals() const { return proposals_; }

 private:
  friend class AdaptiveProposals;
  static constexpr double kKeep = 0.95;  // of an observation: the last twenty steps count
  static constexpr int kFirstPatience = 16;

  int proposals_ = 0;
  Acceptance acceptance_{kKeep};
  int idle_ = 0;                   // steps since it had proposals
  int patience_ = kFirstPatience;  // idle steps until it is tried again
  int trials_ = 0;                 // steps that are left of the trial under way
  int trial_proposals_ = 0;        // of its next step
  int drafts_ = 0;                 // steps with proposals
};

// Whatever it tries is paid from an account: steps that took longer than their tokens would have
// without proposals take from it, others add to it up to a limit, and so does half a percent of all
// time. While it is overdrawn nothing is proposed. So what is lost is little once it is known what
// a step without proposals takes, which is looked at often as long as it is not sure.
class AdaptiveProposals {
 public:
  // At most `most` proposals (at least 1) for a request.
  explicit AdaptiveProposals(int most);

  // The part of a step that is not chosen here: requests that name their number.
  struct Fixed {
    int answers = 0;         // with proposals or without
    int rows = 0;            // of the target's pass
    int anchors = 0;         // of the draft
    int most_proposals = 0;  // of one of them
  };
  // Chooses for the requests that answer and name no number, at most `budget` in all.
  void choose(std::span<Drafting* const> requests, const Fixed& fixed, int budget);

  // A step verified `proposed` proposals of a request that names no number, or of another (null).
  void observe(Drafting* request, int proposed, int accepted);

  // A step without prompt rows: rows and seconds of the draft's pass (0 where there was none) and
  // of the rest of the step.
  struct Times {
    int draft_rows = 0;
    double draft_seconds = 0;
    int target_rows = 0;
    double target_seconds = 0;
  };
  void measure(const Times& times);

 private:
  // A proposal that might be verified.
  struct Candidate {
    double gain = 0;  // tokens that it is expected to give
    Drafting* request = nullptr;
  };
  std::vector<Candidate> candidates(std::span<Drafting* const> requests) const;
  // The requests' numbers by what is known.
  void choose_best(std::span<Drafting* const> requests, const Fixed& fixed, int budget);
  void try_others(std::span<Drafting* const> requests, int budget);
  void check_plain(const Times& times);
  void keep_account(const Times& times);

  int most_;
  StepCosts costs_;
  Acceptance acceptance_;  // of all requests
  int since_plain_ = 0;    // steps since one without proposals
  int plain_every_;        // steps: then one without proposals
  bool drafted_ = false;   // in the last step
  double account_ = 0;     // seconds that may be lost
  bool opened_ = false;    // the account
  // The step under way: what it would be without proposals of those who name no number.
  int requests_ = 0;
  int plain_rows_ = 0;
  int plain_draft_rows_ = 0;
  int plain_tokens_ = 0;  // with what has stood so far
  int accepted_ = 0;      // so far, of those requests
};

}  // namespace lagoon::engine
