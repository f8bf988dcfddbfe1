#include "kernels/ref/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/ref/matrix.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::ref {

void round_activations(Activations activations, float* x, int64_t n) {
  if (activations == Activations::kFloat32) return;
  for (int64_t i = 0; i < n; ++i) x[i] = numeric::round_to_bfloat16(x[i]);
}

void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

float softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
}

void scale_by_softplus(float gate, float* x, int64_t n) {
  const float factor = softplus(gate);
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void multiply_by_softplus(const float* gates, float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= softplus(gates[i]);
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

float swiglu(float gate, float up) {
  return gate / (1.0f + std::exp(-gate)) * up;
}

Rotation::Rotation(const Rope& rope, int32_t position) {
  for (const float frequency : rope.inverse_frequencies) {
    const float angle = static_cast<float>(position) * frequency;
    cosines_.push_back(std::cos(angle) * rope.attention_factor);
    sines_.push_back(std::sin(angle) * rope.attention_factor);
  }
}

void Rotation::apply(float* head) const {
  const size_t pairs = cosines_.size();
  for (size_t j = 0; j < pairs; ++j) {
    const float a = head[j];
    const float b = head[j + pairs];
    head[j] = a * cosines_[j] - b * sines_[j];
    head[j + pairs] = b * cosines_[j] + a * sines_[j];
  }
}

void norm_and_rotate(float* heads, int count, int head_dim, const float* norm_weight, float epsilon,
                     const Rotation& rotation, Activations activations) {
  for (int h = 0; h < count; ++h) {
    float* head = heads + int64_t{h} * head_dim;
    rms_norm(head, norm_weight, head_dim, epsilon, head);
    rotation.apply(head);
  }
  round_activations(activations, heads, int64_t{count} * head_dim);
}

void choose_experts(std::span<const float> logits, std::span<const float> bias, float softcap,
                    std::span<Choice> choices) {
  CHECK(bias.size() == logits.size() && choices.size() <= logits.size());
  const auto experts = static_cast<int32_t>(logits.size());
  std::vector<float> scores(experts);  // sigmoid
  std::vector<float> ranks(experts);   // sigmoid + bias
  for (int32_t e = 0; e < experts; ++e) {
    const float logit = softcap > 0 ? softcap * std::tanh(logits[e] / softcap) : logits[e];
    scores[e] = sigmoid(logit);
    ranks[e] = scores[e] + bias[e];
    if (std::isnan(ranks[e])) ranks[e] = -std::numeric_limits<float>::infinity();
  }
  std::vector<bool> chosen(experts, false);
  float sum = 0;
  for (Choice& choice : choices) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      if (!chosen[e] && (best < 0 || ranks[e] > ranks[best])) best = e;
    }
    chosen[best] = true;
    choice = {best, scores[best]};
    sum += scores[best];
  }
  for (Choice& choice : choices) choice.weight /= sum;
}

}  // namespace lagoon::kernels::ref
