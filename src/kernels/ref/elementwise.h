// Steps on a single row of activations, all in FP32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::kernels::ref {

// Rounds to BF16 if activations are BF16: the rounding points of kernels/ops.h.
void round_activations(Activations activations, float* x, int64_t n);

// out_i = (x_i * (1 / sqrt(mean(x^2) + epsilon))) * weight_i; the squares are summed as in dot().
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. out may be x.
void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, float* out);

// log(1 + e^x), without overflow.
float softplus(float x);

// x *= softplus(gate), one gate for all of x or one for each.
void scale_by_softplus(float gate, float* x, int64_t n);
void multiply_by_softplus(const float* gates, float* x, int64_t n);

// 1 / (1 + e^-x).
float sigmoid(float x);

// silu(gate) * up, silu(x) = x / (1 + e^-x).
float swiglu(float gate, float up);

// The rotation of one position: angle_j = position * inverse_frequencies[j] in FP32, its cosine and
// sine times attention_factor.
class Rotation {
 public:
  Rotation(const Rope& rope, int32_t position);

  // Rotates the pairs (j, j + n) of a head, n = number of frequencies, 2n <= its dimensions:
  // (a, b) becomes (a cos - b sin, b cos + a sin).
  void apply(float* head) const;

 private:
  std::vector<float> cosines_, sines_;
};

// What q and k go through: RMSNorm and rotation of each of `count` heads [head_dim], then rounding
// once.
void norm_and_rotate(float* heads, int count, int head_dim, const float* norm_weight, float epsilon,
                     const Rotation& rotation, Activations activations);

// The experts of one row, from its router logits and the selection bias; see FfnLayer.
struct Choice {
  int32_t expert = 0;
  float weight = 0;
};
// Writes choices.size() <= logits.size() choices in order of falling sigmoid + bias. A NaN is
// chosen last.
void choose_experts(std::span<const float> logits, std::span<const float> bias, float softcap,
                    std::span<Choice> choices);

}  // namespace lagoon::kernels::ref
