#include "model/rope.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace lagoon::model {
namespace {

// The dimension pair (as a real number) that turns `rotations` times over the original context.
double correction_dimension(const checkpoint::RopeConfig& config, double rotary_dim,
                            double rotations) {
  const auto context = static_cast<double>(config.original_max_position);
  return rotary_dim * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

// Bounds of the ramp between plain (below) and interpolated (above) frequencies.
std::pair<double, double> ramp_bounds(const checkpoint::RopeConfig& config, double rotary_dim) {
  double low = std::floor(correction_dimension(config, rotary_dim, config.beta_fast));
  double high = std::ceil(correction_dimension(config, rotary_dim, config.beta_slow));
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1);
  // The published implementations widen an empty ramp by this much.
  if (low == high) high += 0.001;
  return {low, high};
}

}  // namespace

Result<kernels::Rope> make_rope(const checkpoint::RopeConfig& config, int head_dim) {
  const int rotary_dim = static_cast<int>(head_dim * config.partial_rotary_factor);
  if (rotary_dim <= 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("partial_rotary_factor {} of head_dim {} leaves {} rotated "
                             "dimensions; their number must be even and positive",
                             config.partial_rotary_factor, head_dim, rotary_dim)};
  }
  kernels::Rope rope;
  if (config.yarn) rope.attention_factor = static_cast<float>(config.attention_factor);
  const auto [low, high] = config.yarn ? ramp_bounds(config, rotary_dim) : std::pair(0.0, 1.0);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    double frequency = std::pow(config.theta, -2.0 * i / rotary_dim);
    if (config.yarn) {
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = frequency * (1 - ramp) + frequency / config.factor * ramp;
    }
    rope.inverse_frequencies.push_back(static_cast<float>(frequency));
  }
  return rope;
}

}  // namespace lagoon::model
