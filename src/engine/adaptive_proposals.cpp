#include "engine/adaptive_proposals.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lagoon::engine {
namespace {

constexpr double kKeepOfAll = 0.995;
constexpr double kFirstGuess = 0.7;  // of a proposal, before anything was observed
constexpr int kFirstProposals = 3;   // while the draft is not measured yet
constexpr double kLeastGain = 1.03;  // below, what is measured cannot tell it from none
constexpr int kTrialProposals = 2;
constexpr int kTrialSteps = 2;           // not counting those whose proposals all stand
constexpr double kKeepWhileIdle = 0.98;  // of an observation, each step without proposals
constexpr int kMostPatience = 512;
constexpr int kDeeperEvery = 32;      // steps with proposals of a request: one more
constexpr int kFirstPlainEvery = 8;   // steps: one without proposals, twice as rare each time
constexpr int kMostPlainEvery = 128;  // up to here
constexpr double kAsExpected = 1.4;   // factor between what such a step took and should have
constexpr double kLostShare = 0.005;  // of all time
constexpr double kFirstAccount = 6;   // steps without proposals
constexpr double kMostAccount = 64;   // the same
constexpr double kLongestStep = 2;    // times what was expected; beyond, something else ran

int total(std::span<Drafting* const> requests) {
  return std::accumulate(requests.begin(), requests.end(), 0,
                         [](int sum, const Drafting* r) { return sum + r->proposals(); });
}

}  // namespace

AdaptiveProposals::AdaptiveProposals(int most)
    : most_(most), acceptance_(kKeepOfAll), plain_every_(kFirstPlainEvery) {
  CHECK(most >= 1);
}

void AdaptiveProposals::choose(std::span<Drafting* const> requests, const Fixed& fixed,
                               int budget) {
  for (Drafting* request : requests) request->proposals_ = 0;
  requests_ = static_cast<int>(requests.size());
  plain_rows_ = fixed.rows + requests_;
  plain_draft_rows_ = fixed.anchors > 0 ? fixed.anchors * (fixed.most_proposals + 1) : 0;
  plain_tokens_ = fixed.answers + requests_;
  accepted_ = 0;
  if (requests.empty() || budget <= 0) return;
  if (!costs_.knows_target() || (fixed.anchors == 0 && since_plain_ >= plain_every_)) return;
  if (!costs_.knows_draft()) {
    for (Drafting* request : requests) {
      request->proposals_ = std::min({kFirstProposals, most_, budget - total(requests)});
    }
    return;
  }
  if (opened_ && account_ < 0) return;
  choose_best(requests, fixed, budget);
  try_others(requests, budget);
}

std::vector<AdaptiveProposals::Candidate> AdaptiveProposals::candidates(
    std::span<Drafting* const> requests) const {
  std::vector<Candidate> made;
  for (Drafting* request : requests) {
    double of_all = kFirstGuess;
    double rate = 0;
    double gain = 1;
    for (int position = 0; position < most_; ++position) {
      of_all = acceptance_.rate(position, of_all);
      // Proposals further on stand about as often as those before them, where those stood.
      rate = request->acceptance_.rate(position, position == 0 ? of_all : (of_all + rate) / 2);
      gain *= rate;
      made.push_back({gain, request});
    }
  }
  // Those of a request stay in order, since their gains never rise.
  std::ranges::stable_sort(made, std::ranges::greater(), &Candidate::gain);
  return made;
}

void AdaptiveProposals::choose_best(std::span<Drafting* const> requests, const Fixed& fixed,
                                    int budget) {
  double tokens = plain_tokens_;
  double best =
      kLeastGain * tokens / (costs_.target(plain_rows_) + costs_.draft(plain_draft_rows_));
  int best_count = 0;
  std::vector<Candidate> order = candidates(requests);
  order.resize(std::min(order.size(), static_cast<size_t>(budget)));
  int anchors = fixed.anchors;
  int deepest = fixed.most_proposals;
  for (size_t i = 0; i < order.size(); ++i) {
    Drafting& request = *order[i].request;
    if (request.proposals_++ == 0) ++anchors;
    deepest = std::max(deepest, request.proposals_);
    tokens += order[i].gain;
    const int count = static_cast<int>(i) + 1;
    const double rate =
        tokens / (costs_.target(plain_rows_ + count) + costs_.draft(anchors * (deepest + 1)));
    if (rate > best) {
      best = rate;
      best_count = count;
    }
  }
  for (auto left = order.begin() + best_count; left != order.end(); ++left) {
    --left->request->proposals_;
  }
}

void AdaptiveProposals::try_others(std::span<Drafting* const> requests, int budget) {
  int left = budget - total(requests);
  for (Drafting* request : requests) {
    int more = 0;
    if (request->proposals_ > 0) {
      request->idle_ = 0;
      request->trials_ = 0;
      request->patience_ = Drafting::kFirstPatience;
      if (++request->drafts_ % kDeeperEvery == 0 && request->proposals_ < most_) more = 1;
    } else if (request->trials_ > 0) {
      more = request->trial_proposals_;
    } else {
      request->acceptance_.fade(kKeepWhileIdle);
      if (++request->idle_ > request->patience_) {
        request->idle_ = 0;
        request->patience_ = std::min(2 * request->patience_, kMostPatience);
        request->trials_ = kTrialSteps;
        more = request->trial_proposals_ = std::min(kTrialProposals, most_);
      }
    }
    more = std::min(more, left);
    request->proposals_ += more;
    left -= more;
  }
}

void AdaptiveProposals::observe(Drafting* request, int proposed, int accepted) {
  if (proposed == 0) return;
  acceptance_.observe(proposed, accepted);
  if (request == nullptr) {
    plain_tokens_ += accepted;
    return;
  }
  accepted_ += accepted;
  request->acceptance_.observe(proposed, accepted);
  if (request->trials_ == 0) return;
  if (accepted == proposed) {
    request->trial_proposals_ = std::min(request->trial_proposals_ + 1, most_);
  } else {
    --request->trials_;
  }
}

void AdaptiveProposals::measure(const Times& times) {
  const bool drafts = times.draft_rows > 0;
  if (!drafts && since_plain_ > 0 && costs_.knows_target()) check_plain(times);
  since_plain_ = drafts ? since_plain_ + 1 : 0;
  if (times.target_rows > 0) costs_.measure_target(times.target_rows, times.target_seconds);
  // The first draft after a pause also computes the context of the positions since the last one.
  if (drafts && drafted_) costs_.measure_draft(times.draft_rows, times.draft_seconds);
  drafted_ = drafts;
  if (requests_ > 0 && costs_.knows_target() && costs_.knows_draft()) keep_account(times);
}

// All gains are measured by what steps without proposals take: while that is not sure it is looked
// at often.
void AdaptiveProposals::check_plain(const Times& times) {
  const double found = times.target_seconds / costs_.target(times.target_rows);
  if (found > kAsExpected || found < 1 / kAsExpected) {
    plain_every_ = kFirstPlainEvery;
  } else if (since_plain_ >= plain_every_) {
    plain_every_ = std::min(2 * plain_every_, kMostPlainEvery);
  }
}

void AdaptiveProposals::keep_account(const Times& times) {
  const double plain = costs_.target(plain_rows_) + costs_.draft(plain_draft_rows_);
  if (!opened_) account_ = kFirstAccount * plain;
  opened_ = true;
  const double expected = costs_.target(times.target_rows) + costs_.draft(times.draft_rows);
  const double took = std::min(times.draft_seconds + times.target_seconds, kLongestStep * expected);
  account_ += kLostShare * took;
  const bool proposed = times.target_rows > plain_rows_;
  if (proposed) account_ += plain * (plain_tokens_ + accepted_) / plain_tokens_ - took;
  account_ = std::min(account_, kMostAccount * plain);
}

}  // namespace lagoon::engine
