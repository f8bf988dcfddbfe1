#include "engine/step_costs.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace lagoon::engine {
namespace {

// A pass that took longer than expected by more than this factor counts as one that took so long.
constexpr double kMostSurprise = 1.5;
constexpr double kMostRatioSurprise = 1.15;
constexpr double kLevelWeight = 1.0 / 8;
constexpr double kRatioWeight = 1.0 / 16;
// A pass that has not run for so many others tells nothing of the level. Where it is quicker than
// expected its ratio was wrong; where it is slower something may have held it up.
constexpr int64_t kLate = 12;
constexpr double kQuickerWeight = 1.0 / 2;

double surprise(double ratio, double most) {
  return std::clamp(ratio, 1 / most, most) - 1;
}

}  // namespace

void StepCosts::measure_target(int rows, double seconds) {
  measure(target_, rows, seconds);
}

void StepCosts::measure_draft(int rows, double seconds) {
  measure(draft_, rows, seconds);
}

bool StepCosts::knows(const Curve& curve) {
  return std::ranges::any_of(
      curve, [](const auto& entry) { return entry.second.samples >= kFirstSamples; });
}

void StepCosts::measure(Curve& curve, int rows, double seconds) {
  CHECK(rows >= 1);
  if (!(seconds > 0)) return;
  if (level_ == 0) level_ = seconds;
  Point& point = curve[rows];
  const double ratio = seconds / level_;
  const bool late = ++passes_ - point.measured > kLate;
  point.measured = passes_;
  if (point.samples < kFirstSamples) {
    point.first[point.samples++] = ratio;
    std::sort(point.first, point.first + point.samples);
    point.ratio = point.first[(point.samples - 1) / 2];
    return;
  }
  const double found = ratio / point.ratio;
  if (late && found < 1) {
    point.ratio *= 1 + kQuickerWeight * surprise(found, kMostSurprise);
    return;
  }
  if (!late) level_ *= 1 + kLevelWeight * surprise(found, kMostSurprise);
  point.ratio *= 1 + kRatioWeight * surprise(found, kMostRatioSurprise);
}

double StepCosts::seconds(const Curve& curve, int rows) const {
  CHECK(!curve.empty());
  const auto [least, at_least] = *curve.begin();
  const auto [most, at_most] = *curve.rbegin();
  // One number is measured: half of the time is taken to be there for any number of rows.
  const double slope = least == most
                           ? at_most.ratio / 2 / most
                           : std::max(0.0, at_most.ratio - at_least.ratio) / (most - least);
  if (rows <= least) {
    return level_ * std::max(at_least.ratio / 2, at_least.ratio - slope * (least - rows));
  }
  if (rows >= most) return level_ * (at_most.ratio + slope * (rows - most));
  const auto above = curve.lower_bound(rows);
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return level_ * (below->second.ratio + share * (above->second.ratio - below->second.ratio));
}

}  // namespace lagoon::engine
