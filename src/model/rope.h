// Inverse frequencies of the rotary embedding, plain or YaRN (https://arxiv.org/abs/2309.00071).
#pragma once

#include "base/result.h"
#include "checkpoint/config.h"
#include "kernels/ops.h"

namespace lagoon::model {

// With d = head_dim * partial_rotary_factor and i = 0 .. d/2 - 1:
//   default: f_i = theta^(-2i/d)
//   yarn:    f_i * (1 - r_i) + f_i / factor * r_i,  r_i = clamp((i - low) / (high - low), 0, 1),
//            low = floor(c(beta_fast)), high = ceil(c(beta_slow)), both within [0, d - 1],
//            c(b) = d * ln(original_max_position / (2 pi b)) / (2 ln theta)
// Computed in double, kept as float. An error where d is not even and positive.
Result<kernels::Rope> make_rope(const checkpoint::RopeConfig& config, int head_dim);

}  // namespace lagoon::model
