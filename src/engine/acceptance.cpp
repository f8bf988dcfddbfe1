#include "engine/acceptance.h"

#include <algorithm>

#include "base/check.h"

namespace lagoon::engine {
namespace {

constexpr double kGuessWeight = 4;  // observations

}  // namespace

void Acceptance::observe(int proposed, int accepted) {
  CHECK(accepted >= 0 && accepted <= proposed);
  // What comes after the first proposal that was refused tells nothing.
  const auto told = static_cast<size_t>(std::min(accepted + 1, proposed));
  if (positions_.size() < told) positions_.resize(told);
  for (size_t i = 0; i < told; ++i) {
    Position& position = positions_[i];
    position.trials = position.trials * keep_ + 1;
    position.hits = position.hits * keep_ + (static_cast<int>(i) < accepted ? 1 : 0);
  }
}

void Acceptance::fade(double factor) {
  for (Position& position : positions_) {
    position.trials *= factor;
    position.hits *= factor;
  }
}

double Acceptance::rate(int position, double guess) const {
  const auto at = static_cast<size_t>(position);
  if (at >= positions_.size()) return guess;
  return (positions_[at].hits + kGuessWeight * guess) / (positions_[at].trials + kGuessWeight);
}

}  // namespace lagoon::engine
