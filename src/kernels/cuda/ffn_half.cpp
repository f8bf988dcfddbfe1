#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr Packing kPackings[] = {Packing::kBFloat16, Packing::kFP8, Packing::kNVFP4};

// Puts the experts of a layer into device memory, the first time it is computed.
const ExpertTable& table_of(Machine& machine, const FfnLayer& layer, int64_t hidden) {
  ExpertTable& table = machine.experts[layer.experts.data()];
  // Another model's experts may have come to lie at the same place.
  const uint8_t* first = as_matrix(layer.experts[0].gate.get()).view().values;
  if (table.first == first) return table;
  table = ExpertTable();
  table.first = first;
  table.inner = as_matrix(layer.experts[0].gate.get()).rows();
  std::vector<ExpertView> views;
  for (const SwiGlu& expert : layer.experts) {
    views.push_back({view_of(expert.gate.get(), table.inner, hidden),
                     view_of(expert.up.get(), table.inner, hidden),
                     view_of(expert.down.get(), hidden, table.inner)});
    CHECK(views.back().gate.packing == views.back().up.packing);
    table.gate_packings[static_cast<int>(views.back().gate.packing)] = true;
    table.down_packings[static_cast<int>(views.back().down.packing)] = true;
  }
  const auto bytes = static_cast<int64_t>(views.size() * sizeof(ExpertView));
  uint8_t* memory = machine.device.tables.take(bytes);
  CHECK(memory != nullptr);
  check_device(cudaMemcpyAsync(memory, views.data(), static_cast<size_t>(bytes),
                               cudaMemcpyHostToDevice, machine.stream()),
               "a table of experts");
  machine.device.wait();
  table.views = reinterpret_cast<const ExpertView*>(memory);
  return table;
}

// silu(gate x) * (up x) of the dense or shared feed-forward.
Bits16* activate(Machine& machine, const SwiGlu& mlp, int64_t inner, int64_t hidden,
                 const Bits16* x, int64_t rows) {
  const MatrixView& gate = view_of(mlp.gate.get(), inner, hidden);
  const MatrixView& up = view_of(mlp.up.get(), inner, hidden);
  CHECK(gate.packing == up.packing);
  auto* h = machine.device.scratch_of<Bits16>(rows * padded(inner));
  if (rows <= kStreamedRows) {
    gate_and_up(machine.stream(), gate, up, x, rows, h);
    return h;
  }
  auto* gated = machine.device.scratch_of<float>(rows * inner);
  auto* raised = machine.device.scratch_of<float>(rows * inner);
  const Product products[] = {{.matrix = gate, .y = gated, .y_stride = inner},
                              {.matrix = up, .y = raised, .y_stride = inner}};
  multiply(machine.stream(), products, 2, x, rows);
  swiglu_rows(machine.stream(), gated, raised, rows, inner, h);
  return h;
}

// residual += routed_scale * sum_j w_j expert_j(x) + mlp, and the tap.
void add_experts(Machine& machine, CudaState& state, const FfnLayer& layer, const Bits16* x,
                 const float* mlp, float* tap) {
  Device& device = machine.device;
  const int64_t rows = state.rows();
  const int64_t hidden = state.shape().hidden;
  const auto experts = static_cast<int64_t>(layer.experts.size());
  const int64_t entries = rows * layer.top_k;
  const ExpertTable& table = table_of(machine, layer, hidden);
  auto* logits = device.scratch_of<float>(rows * experts);
  const Routing routing = {.experts = device.scratch_of<int32_t>(entries),
                           .weights = device.scratch_of<float>(entries),
                           .order = device.scratch_of<int32_t>(entries),
                           .slots = device.scratch_of<int32_t>(2 * experts + 2),
                           .count = device.scratch_of<int32_t>(1),
                           .views = device.scratch_of<ExpertView>(experts)};
  auto* h = device.scratch_of<Bits16>(entries * padded(table.inner));
  auto* y = device.scratch_of<float>(entries * hidden);
  const Product router = {
      .matrix = view_of(layer.router.get(), experts, hidden), .y = logits, .y_stride = experts};
  multiply(machine.stream(), &router, 1, x, rows);
  route(machine.stream(), logits, vector_of(layer.router_bias, experts), table.views, rows,
        static_cast<int>(experts), layer.top_k, layer.router_softcap, routing, state.expert_use());
  const int64_t slots = std::min(entries, experts);
  for (const Packing packing : kPackings) {
    if (!table.gate_packings[static_cast<int>(packing)]) continue;
    expert_gate_and_up(machine.stream(), packing, table.inner, hidden, routing, layer.top_k, slots,
                       x, h);
  }
  for (const Packing packing : kPackings) {
    if (!table.down_packings[static_cast<int>(packing)]) continue;
    expert_down(machine.stream(), packing, table.inner, hidden, routing, slots, h, y);
  }
  add_routed(machine.stream(), mlp, y, routing, layer.top_k, layer.routed_scale, rows, hidden,
             state.residual(), tap);
}

}  // namespace

void ffn_half(Machine& machine, CudaState& state, const FfnLayer& layer) {
  const int64_t rows = state.rows();
  if (rows == 0) return;
  const int64_t hidden = state.shape().hidden;
  const auto experts = static_cast<int64_t>(layer.experts.size());
  CHECK(experts == 0 || (layer.top_k > 0 && layer.top_k <= experts && experts <= kMostExperts));
  Device& device = machine.device;
  device.scratch.clear();
  auto* normed = device.scratch_of<Bits16>(rows * padded(hidden));
  norm_rows(machine.stream(),
            {.x = state.residual(),
             .x_stride = hidden,
             .weight = vector_of(layer.post_norm, hidden),
             .n = hidden,
             .epsilon = layer.norm_epsilon,
             .out = normed,
             .out_stride = padded(hidden),
             .zero_to = padded(hidden)},
            rows);
  const int64_t inner = as_matrix(layer.mlp.gate.get()).rows();
  const Bits16* h = activate(machine, layer.mlp, inner, hidden, normed, rows);
  float* tap = layer.tap >= 0 ? state.tap(layer.tap) : nullptr;
  Product down = {.matrix = view_of(layer.mlp.down.get(), hidden, inner),
                  .y = state.residual(),
                  .y_stride = hidden,
                  .add = true,
                  .copy = tap};
  if (experts > 0) {
    down.y = device.scratch_of<float>(rows * hidden);
    down.add = false;
    down.copy = nullptr;
  }
  multiply(machine.stream(), &down, 1, h, rows);
  if (experts > 0) add_experts(machine, state, layer, normed, down.y, tap);
}

}  // namespace lagoon::kernels::cuda
