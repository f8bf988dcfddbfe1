#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr Packing kPackings[] = {Packing::kBFloat16, Packing::kFP8, Packing::kNVFP4};

struct Sizes {
  int64_t hidden, inner, experts, expert_inner, top_k;
  Sizes(int64_t hidden_size, const FfnLayer& layer)
      : hidden(hidden_size),
        inner(as_matrix(layer.mlp.gate.get()).rows()),
        experts(static_cast<int64_t>(layer.experts.size())),
        expert_inner(experts == 0 ? 0 : as_matrix(layer.experts[0].gate.get()).rows()),
        top_k(experts == 0 ? 0 : layer.top_k) {}
};

struct Buffers {
  Bits16* normed;
  Bits16* h;              // of the dense or shared feed-forward
  float *gated, *raised;  // for more than kStreamedRows
  float* shared;          // its output beside experts
  float* logits;          // of the router
  Routing routing;
  Bits16* expert_h;
  float* y;  // of experts, by entry
  Buffers(Cutter& cutter, const Sizes& sizes, int64_t rows)
      : normed(take_normed(cutter, rows, sizes.hidden)),
        h(cutter.take<Bits16>(rows * padded(sizes.inner))),
        gated(cutter.take<float>(rows > kStreamedRows ? rows * sizes.inner : 0)),
        raised(cutter.take<float>(rows > kStreamedRows ? rows * sizes.inner : 0)),
        shared(cutter.take<float>(sizes.experts > 0 ? rows * sizes.hidden : 0)),
        logits(cutter.take<float>(rows * sizes.experts)) {
    const int64_t entries = rows * sizes.top_k;
    routing.experts = cutter.take<int32_t>(entries);
    routing.weights = cutter.take<float>(entries);
    routing.order = cutter.take<int32_t>(entries);
    routing.slots = cutter.take<int32_t>(2 * sizes.experts + 2);
    routing.count = cutter.take<int32_t>(1);
    routing.views = cutter.take<ExpertView>(sizes.experts);
    expert_h = cutter.take<Bits16>(entries * padded(sizes.expert_inner));
    y = cutter.take<float>(entries * sizes.hidden);
  }
};

int64_t bytes_of(const Sizes& sizes, int64_t rows) {
  Cutter cutter;
  const Buffers buffers(cutter, sizes, rows);
  static_cast<void>(buffers);
  return cutter.used();
}

// The experts' logits and what choosing by them takes.
RouteArgs route_args(const Machine& machine, const CudaState& state, const FfnLayer& layer,
                     const Sizes& sizes, const Buffers& b) {
  return {.logits = b.logits,
          .bias = vector_of(layer.router_bias, sizes.experts),
          .table = machine.experts.at(layer.experts.data()).views,
          .rows = state.rows(),
          .experts = static_cast<int>(sizes.experts),
          .top_k = layer.top_k,
          .softcap = layer.router_softcap,
          .routing = b.routing,
          .use = state.expert_use(),
          .zeros = state.arrived()};
}

// h = silu(gate x) * (up x) of the dense or shared feed-forward.
void activate(Machine& machine, const MatrixView& gate, const MatrixView& up, const Sizes& sizes,
              const Buffers& b, int64_t rows) {
  if (rows <= kStreamedRows) {
    gate_and_up(machine.stream(), gate, up, b.normed, rows, b.h);
    return;
  }
  const Product products[] = {{.matrix = gate, .y = b.gated, .y_stride = sizes.inner},
                              {.matrix = up, .y = b.raised, .y_stride = sizes.inner}};
  multiply(machine.stream(), products, 2, b.normed, rows);
  swiglu_rows(machine.stream(), b.gated, b.raised, rows, sizes.inner, b.h);
}

// The shared feed-forward, and the choice of experts.
void share_and_route(Machine& machine, const CudaState& state, const FfnLayer& layer,
                     const Sizes& sizes, Buffers& b, const SharedExpert& shared) {
  const Product router = {.matrix = shared.router, .y = b.logits, .y_stride = sizes.experts};
  const Product down = {.matrix = shared.down, .y = shared.y, .y_stride = sizes.hidden};
  const Stream stream = machine.stream();
  RouteArgs args = route_args(machine, state, layer, sizes, b);
  args.routing.made = state.made(machine.experts.at(layer.experts.data()).ordinal);
  if (shared_expert_and_route(stream, shared, args)) {
    b.routing.made = args.routing.made;
    return;
  }
  args.routing.made = nullptr;
  multiply(stream, &router, 1, shared.x, args.rows);
  route(stream, args);
  activate(machine, shared.gate, shared.up, sizes, b, args.rows);
  b.routing.settled = true;
  multiply(stream, &down, 1, shared.h, args.rows, b.routing.settled);
}

// residual += routed_scale * sum_j w_j expert_j(x) + mlp, and the tap, once experts are chosen;
// then the norm of what comes next, if that is known.
void add_experts(Machine& machine, const CudaState& state, const FfnLayer& layer,
                 const Sizes& sizes, const Buffers& b, float* tap) {
  const ExpertTable& table = machine.experts.at(layer.experts.data());
  const int64_t rows = state.rows();
  const int64_t slots = std::min(rows * layer.top_k, sizes.experts);
  for (const Packing packing : kPackings) {
    if (!table.gate_packings[static_cast<int>(packing)]) continue;
    expert_gate_and_up(machine.stream(), packing, table.inner, sizes.hidden, b.routing, layer.top_k,
                       slots, b.normed, b.expert_h);
  }
  for (const Packing packing : kPackings) {
    if (!table.down_packings[static_cast<int>(packing)]) continue;
    expert_down(machine.stream(), packing, table.inner, sizes.hidden, b.routing, slots, b.expert_h,
                b.y);
  }
  Norm norm;
  if (machine.next != nullptr) norm = norm_of(state, *machine.next, b.normed);
  machine.normed = machine.next;
  machine.normed_rows = b.normed;
  add_routed(machine.stream(),
             {.mlp = b.shared,
              .y = b.y,
              .routing = b.routing,
              .top_k = layer.top_k,
              .scale = layer.routed_scale,
              .hidden = sizes.hidden,
              .residual = state.residual(),
              .tap = tap,
              .arrived = state.arrived()},
             norm, rows);
}

}  // namespace

int64_t ffn_bytes(const CudaState& state, const FfnLayer& layer) {
  return bytes_of(Sizes(state.shape().hidden, layer), state.shape().max_rows);
}

Result<void> collect_experts(Machine& machine, const FfnLayer& layer, int64_t hidden) {
  if (layer.experts.empty()) return {};
  const auto [known, added] = machine.experts.try_emplace(layer.experts.data());
  ExpertTable& table = known->second;
  if (added) table.ordinal = static_cast<int>(machine.experts.size()) - 1;
  // Another model's experts may have come to lie at the same place.
  const uint8_t* first = as_matrix(layer.experts[0].gate.get()).view().values;
  if (table.first == first) return {};
  table = ExpertTable{.ordinal = table.ordinal};
  table.inner = as_matrix(layer.experts[0].gate.get()).rows();
  std::vector<ExpertView> views;
  for (const SwiGlu& expert : layer.experts) {
    views.push_back({view_of(expert.gate.get(), table.inner, hidden),
                     view_of(expert.up.get(), table.inner, hidden),
                     view_of(expert.down.get(), hidden, table.inner)});
    if (views.back().gate.packing != views.back().up.packing) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("expert {} of a layer has gate_proj and up_proj in different formats, "
                      "which cannot run on a GPU: use --backend cpu",
                      views.size() - 1)};
    }
    table.gate_packings[static_cast<int>(views.back().gate.packing)] = true;
    table.down_packings[static_cast<int>(views.back().down.packing)] = true;
  }
  Device& device = machine.device;
  const auto bytes = static_cast<int64_t>(views.size() * sizeof(ExpertView));
  uint8_t* memory = device.tables.take(bytes);
  if (memory == nullptr) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("{} has too little memory for the addresses of {} experts: use a "
                             "smaller model, or --backend cpu",
                             device.name(), views.size())};
  }
  device.check(cudaMemcpyAsync(memory, views.data(), static_cast<size_t>(bytes),
                               cudaMemcpyHostToDevice, machine.stream()),
               "a table of experts");
  device.wait();
  if (const Error* failure = device.failure()) return *failure;
  table.views = reinterpret_cast<const ExpertView*>(memory);
  table.first = first;
  return {};
}

void ffn_half(Machine& machine, CudaState& state, const FfnLayer& layer) {
  const int64_t rows = state.rows();
  if (rows == 0 || machine.device.failed()) return;
  const Sizes sizes(state.shape().hidden, layer);
  CHECK(sizes.experts == 0 ||
        (layer.top_k > 0 && layer.top_k <= sizes.experts && sizes.experts <= kMostExperts));
  CHECK(rows * sizes.top_k * sizes.top_k < int64_t{1} << 32);  // deal.cuh: Divider
  if (const auto collected = collect_experts(machine, layer, sizes.hidden); !collected) {
    machine.device.fail(collected.error());
    return;
  }
  uint8_t* memory = machine.device.take_workspace(bytes_of(sizes, rows));
  if (memory == nullptr) return;
  Cutter cutter(memory);
  Buffers b(cutter, sizes, rows);
  norm_rows(machine.stream(),
            {.x = state.residual(),
             .x_stride = sizes.hidden,
             .weight = vector_of(layer.post_norm, sizes.hidden),
             .n = sizes.hidden,
             .epsilon = layer.norm_epsilon,
             .out = b.normed,
             .out_stride = padded(sizes.hidden),
             .zero_to = padded(sizes.hidden)},
            rows);
  const MatrixView& gate = view_of(layer.mlp.gate.get(), sizes.inner, sizes.hidden);
  const MatrixView& up = view_of(layer.mlp.up.get(), sizes.inner, sizes.hidden);
  const MatrixView& down = view_of(layer.mlp.down.get(), sizes.hidden, sizes.inner);
  CHECK(gate.packing == up.packing);
  float* tap = layer.tap >= 0 ? state.tap(layer.tap) : nullptr;
  if (sizes.experts > 0) {
    share_and_route(machine, state, layer, sizes, b,
                    {.gate = gate,
                     .up = up,
                     .down = down,
                     .router = view_of(layer.router.get(), sizes.experts, sizes.hidden),
                     .x = b.normed,
                     .h = b.h,
                     .y = b.shared});
    add_experts(machine, state, layer, sizes, b, tap);
    return;
  }
  activate(machine, gate, up, sizes, b, rows);
  const Product product = {
      .matrix = down, .y = state.residual(), .y_stride = sizes.hidden, .add = true, .copy = tap};
  multiply(machine.stream(), &product, 1, b.h, rows);
}

}  // namespace lagoon::kernels::cuda
