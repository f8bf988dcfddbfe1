#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/operations.h"

namespace lagoon::kernels::ref {
namespace {

// A SwiGLU over some rows, in steps that several share.
struct Run {
  const SwiGlu* mlp = nullptr;
  std::vector<int32_t> x_rows;  // the rows of the step that it takes; empty: all
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t inner = 0;            // the intermediate size
  std::vector<float> gate, up;  // [rows, inner]
  std::vector<float> out;       // [rows, hidden]
};

Run make_run(const SwiGlu& mlp, std::vector<int32_t> x_rows, int64_t rows, int64_t hidden) {
  const int64_t inner = as_matrix(mlp.gate.get()).rows();
  return {.mlp = &mlp,
          .x_rows = std::move(x_rows),
          .rows = rows,
          .hidden = hidden,
          .inner = inner,
          .gate = std::vector<float>(rows * inner),
          .up = std::vector<float>(rows * inner),
          .out = std::vector<float>(rows * hidden)};
}

// gate x and up x, x [.., hidden].
void add_gate_and_up(Run& run, const float* x, std::vector<Product>& products) {
  for (const auto& [weight, y] :
       {std::pair(&run.mlp->gate, &run.gate), std::pair(&run.mlp->up, &run.up)}) {
    products.push_back(make_product(weight->get(), run.inner, run.hidden, run.rows, x, y->data()));
    products.back().x_rows = run.x_rows;
  }
}

// silu(gate) * up into gate, rounded.
void activate(Machine& machine, Run& run) {
  machine.workers.for_each(run.rows, [&](int64_t r, Buffer&) {
    float* row = run.gate.data() + r * run.inner;
    const float* up = run.up.data() + r * run.inner;
    for (int64_t i = 0; i < run.inner; ++i) row[i] = swiglu(row[i], up[i]);
    round_activations(machine.activations, row, run.inner);
  });
}

void add_down(Run& run, std::vector<Product>& products) {
  products.push_back(make_product(run.mlp->down.get(), run.hidden, run.inner, run.rows,
                                  run.gate.data(), run.out.data()));
}

// What one of a row's experts makes of it is row `index` of a run.
struct Place {
  size_t run = 0;
  int64_t index = 0;
};

struct Routing {
  std::vector<Choice> choices;  // [rows, top_k]
  std::vector<Place> places;    // [rows, top_k]
  std::vector<Run> runs;        // the experts that were chosen by any row
};

// Chooses experts for the rows from router logits [rows, experts]. All rows of an expert go into
// one run: its weights are decoded once.
Routing route(Machine& machine, const FfnLayer& layer, const std::vector<float>& logits,
              int64_t rows, int64_t hidden) {
  const size_t experts = layer.experts.size();
  const auto top_k = static_cast<size_t>(layer.top_k);
  const std::vector<float> bias = read_vector(layer.router_bias, static_cast<int64_t>(experts));
  Routing routing;
  routing.choices.resize(rows * top_k);
  machine.workers.for_each(rows, [&](int64_t r, Buffer&) {
    choose_experts({logits.data() + r * experts, experts}, bias, layer.router_softcap,
                   {routing.choices.data() + r * top_k, top_k});
  });

  std::vector<std::vector<int32_t>> rows_of(experts);
  for (size_t i = 0; i < routing.choices.size(); ++i) {
    std::vector<int32_t>& visitors = rows_of[routing.choices[i].expert];
    routing.places.push_back({0, static_cast<int64_t>(visitors.size())});
    visitors.push_back(static_cast<int32_t>(i / top_k));
  }
  std::vector<size_t> run_of(experts, 0);
  for (size_t e = 0; e < experts; ++e) {
    if (rows_of[e].empty()) continue;
    run_of[e] = routing.runs.size();
    const auto visitors = static_cast<int64_t>(rows_of[e].size());
    routing.runs.push_back(make_run(layer.experts[e], std::move(rows_of[e]), visitors, hidden));
  }
  for (size_t i = 0; i < routing.choices.size(); ++i) {
    routing.places[i].run = run_of[routing.choices[i].expert];
  }
  return routing;
}

// out += routed_scale * sum_j w_j expert_j for each row, the sum in order of choice.
void add_routed(Machine& machine, const FfnLayer& layer, const Routing& routing, int64_t rows,
                int64_t hidden, float* out) {
  machine.workers.for_each(rows, [&](int64_t r, Buffer& scratch) {
    float* sum = scratch.floats(hidden);
    std::fill_n(sum, hidden, 0.0f);
    for (int64_t j = r * layer.top_k; j < (r + 1) * layer.top_k; ++j) {
      const Place& place = routing.places[j];
      const float* expert = routing.runs[place.run].out.data() + place.index * hidden;
      for (int64_t i = 0; i < hidden; ++i) sum[i] += routing.choices[j].weight * expert[i];
    }
    for (int64_t i = 0; i < hidden; ++i) out[r * hidden + i] += layer.routed_scale * sum[i];
  });
}

// What is added to the residual, [rows, hidden]. Products that do not need each other are done
// together: each round of products is a meeting of all threads.
std::vector<float> feed_forward(Machine& machine, RefState& state, const FfnLayer& layer,
                                const std::vector<float>& normed, int64_t rows, int64_t hidden) {
  const bool sparse = !layer.experts.empty();
  const auto experts = static_cast<int64_t>(layer.experts.size());
  CHECK(!sparse || (layer.top_k > 0 && layer.top_k <= experts));
  Run mlp = make_run(layer.mlp, {}, rows, hidden);
  std::vector<float> logits(rows * experts);
  std::vector<Product> products;
  add_gate_and_up(mlp, normed.data(), products);
  if (sparse) {
    products.push_back(
        make_product(layer.router.get(), experts, hidden, rows, normed.data(), logits.data()));
  }
  multiply(machine.workers, products);
  activate(machine, mlp);

  Routing routing;
  if (sparse) {
    routing = route(machine, layer, logits, rows, hidden);
    state.count_experts(static_cast<int64_t>(routing.runs.size()));
    products.clear();
    for (Run& run : routing.runs) add_gate_and_up(run, normed.data(), products);
    multiply(machine.workers, products);
    for (Run& run : routing.runs) activate(machine, run);
  }
  products.clear();
  add_down(mlp, products);
  for (Run& run : routing.runs) add_down(run, products);
  multiply(machine.workers, products);
  if (sparse) add_routed(machine, layer, routing, rows, hidden, mlp.out.data());
  return std::move(mlp.out);
}

}  // namespace

void ffn_half(Machine& machine, RefState& state, const FfnLayer& layer) {
  const auto rows = static_cast<int64_t>(state.rows().size());
  const int64_t hidden = state.shape().hidden;
  std::vector<float> normed(rows * hidden);
  norm_rows(machine, state.residual(0), rows, hidden, layer.post_norm, layer.norm_epsilon,
            normed.data());
  const std::vector<float> sum = feed_forward(machine, state, layer, normed, rows, hidden);
  float* residual = state.residual(0);
  for (int64_t i = 0; i < rows * hidden; ++i) residual[i] += sum[i];
  if (layer.tap < 0) return;
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(state.residual(r), hidden, state.tap(layer.tap, r));
  }
}

}  // namespace lagoon::kernels::ref
