#include "engine/speculate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/sampling.h"
#include "numeric/random_numbers.h"

namespace lagoon::engine {

Speculator::Speculator(model::Model& model, Proposer proposer)
    : model_(model), proposer_(std::move(proposer)) {}

void Speculator::propose(std::span<Work> plan) {
  if (!proposer_) {
    draft(plan);
    return;
  }
  for (Work& work : plan) {
    if (work.proposals > 0) ask_proposer(work);
  }
}

void Speculator::draft(std::span<const Work> plan) {
  std::vector<model::Anchor> anchors;
  int most = 0;
  for (const Work& work : plan) {
    if (work.proposals == 0) continue;
    const Sequence& sequence = *work.sequence;
    anchors.push_back({sequence.slot(), sequence.tokens().back(), sequence.committed()});
    most = std::max(most, work.proposals);
  }
  // The first k' of k proposals do not depend on k, so one draft serves different numbers.
  if (most > 0) model_.draft(anchors, most);
}

void Speculator::ask_proposer(Work& work) {
  const std::vector<int32_t>& tokens = work.sequence->tokens();
  const std::vector<int32_t> proposed = proposer_(tokens, work.proposals);
  CHECK(static_cast<int>(proposed.size()) <= work.proposals);
  work.proposals = static_cast<int>(proposed.size());
  work.explicit_tokens.assign(1, tokens.back());
  for (const int32_t token : proposed) {
    CHECK(token >= 0 && token < model_.info().vocab);
    work.explicit_tokens.push_back(token);
  }
}

Proposer random_proposer(int vocab) {
  return [vocab](const std::vector<int32_t>& tokens, int k) {
    std::vector<int32_t> proposed(static_cast<size_t>(k));
    const numeric::RandomNumbers numbers{tokens.size()};
    for (int i = 0; i < k; ++i) {
      proposed[static_cast<size_t>(i)] = static_cast<int32_t>(
          numeric::mix_bits(numbers.word(static_cast<uint64_t>(i))) % static_cast<uint64_t>(vocab));
    }
    return proposed;
  };
}

int count_accepted(std::span<const int32_t> computed, std::span<const int32_t> sampled) {
  CHECK(!computed.empty() && computed.size() == sampled.size());
  size_t accepted = 0;
  while (accepted + 1 < computed.size() && sampled[accepted] == computed[accepted + 1]) ++accepted;
  return static_cast<int>(accepted);
}

std::vector<int32_t> gained_tokens(std::span<const int32_t> computed,
                                   std::span<const int32_t> sampled, int accepted) {
  CHECK(accepted >= 0 && static_cast<size_t>(accepted) < sampled.size());
  const auto proposals = computed.subspan(1, static_cast<size_t>(accepted));
  std::vector<int32_t> tokens(proposals.begin(), proposals.end());
  tokens.push_back(sampled[static_cast<size_t>(accepted)]);
  return tokens;
}

SyntheticAcceptance::SyntheticAcceptance(std::vector<double> rates) : rates_(std::move(rates)) {
  for (size_t i = 0; i < rates_.size(); ++i) {
    CHECK(rates_[i] >= 0 && rates_[i] <= (i == 0 ? 1.0 : rates_[i - 1]));
  }
}

int SyntheticAcceptance::draw(uint64_t seed, int32_t position, int proposals) const {
  CHECK(proposals <= static_cast<int>(rates_.size()));
  // One number for all positions: since rates never rise, those that stand are a prefix. Another
  // stream than the one that draws tokens at the same (seed, position).
  constexpr uint64_t kStream = 0x53796e7468657469;
  const double u = kernels::uniform(seed ^ kStream, position);
  int accepted = 0;
  while (accepted < proposals && u < rates_[static_cast<size_t>(accepted)]) ++accepted;
  return accepted;
}

}  // namespace lagoon::engine
