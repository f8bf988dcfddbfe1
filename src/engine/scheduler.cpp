#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lagoon::engine {
namespace {

constexpr int kFewestRows = 16;       // fewer are hardly quicker
constexpr int kUnmeasuredRows = 256;  // at most, before the first measurement

// Proposals worth verifying: the last token that the answer may get needs none after it. Since
// prompt and answer fit the context, so do the rows.
int wanted_proposals(const Sequence& sequence, const StepLimits& limits) {
  int k = sequence.request().proposals;
  if (k < 0) k = limits.proposals;
  if (k < 0) k = sequence.drafting().proposals();
  k = std::min(k, limits.max_proposals);
  return std::min(k, sequence.remaining() - 1);
}

// Shares of prefills in order of arrival.
std::vector<int> share_prefill(std::span<const int> wanted, int budget) {
  const int first = std::min(wanted[0], wanted.size() == 1 ? budget : (budget + 1) / 2);
  std::vector<int> shares = share_evenly(wanted.subspan(1), budget - first);
  const int left = budget - first - std::accumulate(shares.begin(), shares.end(), 0);
  shares.insert(shares.begin(), std::min(wanted[0], first + left));
  return shares;
}

}  // namespace

std::vector<int> share_evenly(std::span<const int> wanted, int budget) {
  CHECK(budget >= 0);
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  std::vector<int> shares(wanted.size());
  auto others = static_cast<int>(wanted.size());
  for (const size_t i : order) {
    shares[i] = std::min(wanted[i], (budget + others - 1) / others);
    budget -= shares[i];
    --others;
  }
  return shares;
}

std::vector<Work> plan_step(std::span<const std::unique_ptr<Sequence>> running,
                            const StepLimits& limits) {
  std::vector<Work> answers;
  std::vector<Work> prefills;
  std::vector<int> wanted;
  std::vector<int> wanted_prefill;
  for (const auto& sequence : running) {
    if (sequence->in_prefill()) {
      prefills.push_back({.sequence = sequence.get()});
      wanted_prefill.push_back(sequence->prefill_rows());
    } else {
      answers.push_back({.sequence = sequence.get()});
      wanted.push_back(wanted_proposals(*sequence, limits));
    }
  }
  int left = limits.max_rows - static_cast<int>(answers.size());
  CHECK(left >= static_cast<int>(prefills.empty() ? 0 : 1));
  const int kept = prefills.empty() ? 0 : std::max(1, std::min(limits.max_rows / 8, left));
  const std::vector<int> proposals = share_evenly(wanted, left - kept);
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].proposals = proposals[i];
    left -= proposals[i];
  }
  if (prefills.empty()) return answers;
  const std::vector<int> rows = share_prefill(wanted_prefill, std::min(left, limits.prefill_rows));
  std::vector<Work> plan = std::move(answers);
  for (size_t i = 0; i < prefills.size(); ++i) {
    if (rows[i] == 0) continue;
    prefills[i].prefill_rows = rows[i];
    plan.push_back(std::move(prefills[i]));
  }
  return plan;
}

int PrefillPace::rows(bool answering) const {
  if (seconds_per_row_ == 0) return std::min(most_, kUnmeasuredRows);
  const double rows = (answering ? 1 : 4) * max_stall_ / seconds_per_row_;
  if (rows >= most_) return most_;
  return std::max(std::min(kFewestRows, most_), static_cast<int>(rows));
}

void PrefillPace::measure(int rows, int allowed, double seconds) {
  if (rows <= 0 || seconds <= 0) return;
  const double per_row = seconds / rows;
  if (seconds_per_row_ == 0) {
    seconds_per_row_ = per_row;
    return;
  }
  // What a step takes anyway weighs on few rows, so these tell only that rows are cheaper.
  if (rows * 2 < allowed && per_row > seconds_per_row_) return;
  seconds_per_row_ = (seconds_per_row_ + per_row) / 2;
}

}  // namespace lagoon::engine
