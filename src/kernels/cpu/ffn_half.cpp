#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/operations.h"

namespace lagoon::kernels::cpu {
namespace {

// What the steps of one half share. The choices of the rows are sorted by expert: all rows of an
// expert follow each other, so its weights are read once.
struct Half {
  Machine& machine;
  CpuState& state;
  const FfnLayer& layer;
  const Vectors& v;
  int64_t rows, hidden;
  int64_t inner;  // of the dense or shared feed-forward
  int64_t experts, top_k;
  int64_t expert_inner;
  float* normed;                   // [rows, hidden]
  float* logits;                   // [rows, experts]
  float *gate, *up;                // [rows, inner]
  float *expert_gate, *expert_up;  // [rows * top_k, expert_inner], sorted by expert
  float* expert_out;               // [rows * top_k, hidden], the same
  float* out;                      // [rows, hidden]
};

// gate becomes silu(gate) * up for the columns of `panels`.
void activate(const Half& h, const Matrix& matrix, const Range& panels, int64_t rows, float* gate,
              const float* up) {
  const int64_t columns = matrix.rows();
  const int64_t first = panels.begin * Matrix::panel_rows();
  const int64_t count = std::min(panels.end * Matrix::panel_rows(), columns) - first;
  if (count <= 0) return;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * columns + first;
    h.v.swiglu(gate + at, up + at, count, h.machine.rounds());
  }
}

// The router's logits, and silu(gate x) * (up x) of the dense or shared feed-forward.
void route_and_activate(const Half& h, int part) {
  const Matrix& gate = matrix_of(h.layer.mlp.gate.get(), h.inner, h.hidden);
  const Matrix& up = matrix_of(h.layer.mlp.up.get(), h.inner, h.hidden);
  const Matrix* router =
      h.experts > 0 ? &matrix_of(h.layer.router.get(), h.experts, h.hidden) : nullptr;
  const int64_t router_panels = router == nullptr ? 0 : router->panels();
  Panels panels(part, h.machine.parts(), router_panels + 2 * gate.panels());
  const auto m = static_cast<int>(h.rows);
  const Range of_router = panels.next(router_panels, 1);
  if (router != nullptr) {
    multiply(*router, h.normed, h.hidden, m, h.logits, h.experts, of_router.begin, of_router.end);
  }
  const Range range = panels.next(gate.panels(), 2);
  multiply(gate, h.normed, h.hidden, m, h.gate, h.inner, range.begin, range.end);
  multiply(up, h.normed, h.hidden, m, h.up, h.inner, range.begin, range.end);
  activate(h, gate, range, h.rows, h.gate, h.up);
}

void choose(const Half& h, int part) {
  const float* bias = vector_of(h.layer.router_bias, h.experts);
  float* scratch = h.machine.scratch[part].floats.floats(2 * h.experts);
  const Range range = share(h.rows, part, h.machine.parts());
  for (int64_t r = range.begin; r < range.end; ++r) {
    choose_experts(h.v, {h.logits + r * h.experts, static_cast<size_t>(h.experts)}, bias,
                   h.layer.router_softcap,
                   {h.machine.choices.data() + r * h.top_k, static_cast<size_t>(h.top_k)}, scratch);
  }
}

// Sorts the choices by expert. Every part does it for itself, which is quicker than to wait for
// one.
//   firsts[e]    the first place of expert e; firsts[experts]: the number of choices
//   places[i]    the place of choice i = row * top_k + j
//   order[p]     the choice in place p
void sort_choices(const Half& h, Scratch& scratch) {
  const int64_t count = h.rows * h.top_k;
  const Choice* choices = h.machine.choices.data();
  scratch.firsts.assign(static_cast<size_t>(h.experts) + 1, 0);
  scratch.places.resize(static_cast<size_t>(count));
  scratch.order.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ++scratch.firsts[choices[i].expert + 1];
  for (int64_t e = 0; e < h.experts; ++e) scratch.firsts[e + 1] += scratch.firsts[e];
  for (int64_t i = 0; i < count; ++i) {
    const int32_t place = scratch.firsts[choices[i].expert]++;
    scratch.places[i] = place;
    scratch.order[place] = static_cast<int32_t>(i);
  }
  for (int64_t e = h.experts; e > 0; --e) scratch.firsts[e] = scratch.firsts[e - 1];
  scratch.firsts[0] = 0;
}

int64_t distinct_experts(const Scratch& scratch) {
  int64_t count = 0;
  for (size_t e = 0; e + 1 < scratch.firsts.size(); ++e) {
    if (scratch.firsts[e] < scratch.firsts[e + 1]) ++count;
  }
  return count;
}

// silu(gate x) * (up x) of the chosen experts.
void activate_experts(const Half& h, int part) {
  Scratch& scratch = h.machine.scratch[part];
  const int64_t panel_count = (h.expert_inner + Matrix::panel_rows() - 1) / Matrix::panel_rows();
  Panels panels(part, h.machine.parts(), panel_count * h.rows * h.top_k);
  for (int64_t e = 0; e < h.experts; ++e) {
    const int32_t first = scratch.firsts[e];
    const int64_t m = scratch.firsts[e + 1] - first;
    if (m == 0) continue;
    const Range range = panels.next(panel_count, m);
    if (range.begin == range.end) continue;
    const SwiGlu& expert = h.layer.experts[e];
    const float* x = h.normed + scratch.order[first] / h.top_k * h.hidden;
    if (m > 1) {
      float* gathered = scratch.floats.floats(m * h.hidden);
      for (int64_t i = 0; i < m; ++i) {
        const int64_t row = scratch.order[first + i] / h.top_k;
        std::copy_n(h.normed + row * h.hidden, h.hidden, gathered + i * h.hidden);
      }
      x = gathered;
    }
    const Matrix& gate_matrix = matrix_of(expert.gate.get(), h.expert_inner, h.hidden);
    const Matrix& up_matrix = matrix_of(expert.up.get(), h.expert_inner, h.hidden);
    float* gate = h.expert_gate + first * h.expert_inner;
    float* up = h.expert_up + first * h.expert_inner;
    multiply(gate_matrix, x, h.hidden, static_cast<int>(m), gate, h.expert_inner, range.begin,
             range.end);
    multiply(up_matrix, x, h.hidden, static_cast<int>(m), up, h.expert_inner, range.begin,
             range.end);
    activate(h, gate_matrix, range, m, gate, up);
  }
}

// residual += ... for the part's columns, and the tap.
void project_out(const Half& h, int part) {
  const Matrix& down = matrix_of(h.layer.mlp.down.get(), h.hidden, h.inner);
  const Range panels = share(down.panels(), part, h.machine.parts());
  const int64_t column = panels.begin * Matrix::panel_rows();
  const int64_t count = std::min(panels.end * Matrix::panel_rows(), h.hidden) - column;
  if (count <= 0) return;
  multiply(down, h.gate, h.inner, static_cast<int>(h.rows), h.out, h.hidden, panels.begin,
           panels.end);
  Scratch& scratch = h.machine.scratch[part];
  for (int64_t e = 0; e < h.experts; ++e) {
    const int32_t first = scratch.firsts[e];
    const int32_t m = scratch.firsts[e + 1] - first;
    if (m == 0) continue;
    multiply(matrix_of(h.layer.experts[e].down.get(), h.hidden, h.expert_inner),
             h.expert_gate + first * h.expert_inner, h.expert_inner, m,
             h.expert_out + first * h.hidden, h.hidden, panels.begin, panels.end);
  }
  float* sum = scratch.floats.floats(count);
  for (int64_t r = 0; r < h.rows; ++r) {
    float* out = h.out + r * h.hidden + column;
    if (h.experts > 0) {
      std::fill_n(sum, count, 0.0f);
      for (int64_t i = r * h.top_k; i < (r + 1) * h.top_k; ++i) {
        h.v.add_scaled(sum, h.machine.choices[i].weight,
                       h.expert_out + scratch.places[i] * h.hidden + column, count);
      }
      h.v.add_scaled(out, h.layer.routed_scale, sum, count);
    }
    float* residual = h.state.residual(r) + column;
    h.v.add(residual, out, count);
    if (h.layer.tap >= 0) std::copy_n(residual, count, h.state.tap(h.layer.tap, r) + column);
  }
}

}  // namespace

void choose_experts(const Vectors& vectors, std::span<const float> logits, const float* bias,
                    float softcap, std::span<Choice> choices, float* scratch) {
  const auto experts = static_cast<int32_t>(logits.size());
  float* scores = scratch;
  float* ranks = scratch + experts;
  if (softcap > 0) {
    for (int32_t e = 0; e < experts; ++e) ranks[e] = softcap * std::tanh(logits[e] / softcap);
    vectors.sigmoid(ranks, experts, scores);
  } else {
    vectors.sigmoid(logits.data(), experts, scores);
  }
  for (int32_t e = 0; e < experts; ++e) {
    ranks[e] = scores[e] + bias[e];
    // Below any other, and above what was chosen already.
    if (!(ranks[e] > -std::numeric_limits<float>::max())) {
      ranks[e] = -std::numeric_limits<float>::max();
    }
  }
  float sum = 0;
  for (Choice& choice : choices) {
    const auto best = static_cast<int32_t>(vectors.argmax(ranks, experts));
    choice = {best, scores[best]};
    ranks[best] = -std::numeric_limits<float>::infinity();
    sum += scores[best];
  }
  for (Choice& choice : choices) choice.weight /= sum;
}

void ffn_half(Machine& machine, CpuState& state, const FfnLayer& layer) {
  const auto rows = static_cast<int64_t>(state.rows().size());
  if (rows == 0) return;
  const int64_t hidden = state.shape().hidden;
  const auto experts = static_cast<int64_t>(layer.experts.size());
  CHECK(experts == 0 || (layer.top_k > 0 && layer.top_k <= experts));
  const int64_t inner = matrix_of(layer.mlp.gate.get()).rows();
  const int64_t top_k = experts > 0 ? layer.top_k : 0;
  const int64_t expert_inner = experts > 0 ? matrix_of(layer.experts[0].gate.get()).rows() : 0;
  machine.choices.resize(static_cast<size_t>(rows * top_k));
  auto& buffers = machine.buffers;
  const Half half = {.machine = machine,
                     .state = state,
                     .layer = layer,
                     .v = vectors(),
                     .rows = rows,
                     .hidden = hidden,
                     .inner = inner,
                     .experts = experts,
                     .top_k = top_k,
                     .expert_inner = expert_inner,
                     .normed = buffers[0].floats(rows * hidden),
                     .logits = buffers[1].floats(rows * experts),
                     .gate = buffers[2].floats(rows * inner),
                     .up = buffers[3].floats(rows * inner),
                     .expert_gate = buffers[4].floats(rows * top_k * expert_inner),
                     .expert_up = buffers[5].floats(rows * top_k * expert_inner),
                     .expert_out = buffers[6].floats(rows * top_k * hidden),
                     .out = buffers[7].floats(rows * hidden)};
  const float* post_norm = vector_of(layer.post_norm, hidden);
  machine.pool.run([&](int part) {
    norm_share(machine, state.residual(0), rows, hidden, post_norm, layer.norm_epsilon, half.normed,
               part);
    machine.pool.barrier();
    route_and_activate(half, part);
    if (experts > 0) {
      machine.pool.barrier();
      choose(half, part);
      machine.pool.barrier();
      sort_choices(half, machine.scratch[part]);
      activate_experts(half, part);
    }
    machine.pool.barrier();
    project_out(half, part);
  });
  if (experts > 0) state.count_experts(distinct_experts(machine.scratch[0]));
}

}  // namespace lagoon::kernels::cpu
