#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"

namespace lagoon::kernels::cuda {
namespace {

// Rows of the target and where their context goes, on the device.
struct Rows {
  const int32_t* ids = nullptr;
  RowsView view;
  int64_t count = 0;
};

Rows send_rows(Machine& machine, std::span<const ContextRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  auto* to = reinterpret_cast<int32_t*>(machine.context.open(3 * count * 4));
  for (const ContextRow& row : rows) *to++ = row.row;
  for (const ContextRow& row : rows) *to++ = row.position;
  for (const ContextRow& row : rows) *to++ = row.sequence;
  const auto* mirror =
      reinterpret_cast<const int32_t*>(machine.context.send(machine.stream(), 3 * count * 4));
  return {
      mirror, {.positions = mirror + count, .sequences = mirror + 2 * count, .rows = count}, count};
}

// c of kernels/ops.h, [rows, hidden of the draft].
float* fuse_taps(Machine& machine, const CudaState& draft, const CudaState& target,
                 const DraftContext& context, const Rows& rows) {
  const int64_t hidden = target.shape().hidden;
  const int64_t own = draft.shape().hidden;
  const auto taps = static_cast<int64_t>(context.aux_norms.size());
  const int64_t stride = padded(taps * hidden);
  Device& device = machine.device;
  auto* joined = device.scratch_of<Bits16>(rows.count * stride);
  for (int64_t t = 0; t < taps; ++t) {
    norm_rows(machine.stream(),
              {.x = target.tap(static_cast<int>(t)),
               .x_stride = hidden,
               .ids = rows.ids,
               .weight = vector_of(context.aux_norms[t], hidden),
               .n = hidden,
               .epsilon = context.norm_epsilon,
               .out = joined + t * hidden,
               .out_stride = stride,
               .zero_to = t + 1 < taps ? 0 : stride - t * hidden},
              rows.count);
  }
  auto* fused = device.scratch_of<float>(rows.count * own);
  const Product fc = {
      .matrix = view_of(context.fc.get(), own, taps * hidden), .y = fused, .y_stride = own};
  multiply(machine.stream(), &fc, 1, joined, rows.count);
  norm_rows(machine.stream(),
            {.x = fused,
             .x_stride = own,
             .weight = vector_of(context.hidden_norm, own),
             .n = own,
             .epsilon = context.norm_epsilon,
             .out_float = fused},
            rows.count);
  return fused;
}

// Keys and values of one layer from c.
void store_layer(Machine& machine, const CudaState& draft, const AttentionLayer& layer,
                 const float* fused, const float* rotations, const Rows& rows) {
  const int64_t hidden = draft.shape().hidden;
  const int64_t kv = int64_t{layer.kv_heads} * layer.head_dim;
  Device& device = machine.device;
  auto* normed = device.scratch_of<Bits16>(rows.count * padded(hidden));
  auto* k = device.scratch_of<float>(rows.count * kv);
  auto* v = device.scratch_of<float>(rows.count * kv);
  norm_rows(machine.stream(),
            {.x = fused,
             .x_stride = hidden,
             .weight = vector_of(layer.input_norm, hidden),
             .n = hidden,
             .epsilon = layer.norm_epsilon,
             .out = normed,
             .out_stride = padded(hidden),
             .zero_to = padded(hidden)},
            rows.count);
  const Product products[] = {
      {.matrix = view_of(layer.k.get(), kv, hidden), .y = k, .y_stride = kv},
      {.matrix = view_of(layer.v.get(), kv, hidden), .y = v, .y_stride = kv}};
  multiply(machine.stream(), products, 2, normed, rows.count);
  rotate_and_store(machine.stream(),
                   {.k = k,
                    .v = v,
                    .k_norm = vector_of(layer.k_norm, layer.head_dim),
                    .rotations = rotations,
                    .pairs = static_cast<int>(layer.rope->inverse_frequencies.size()),
                    .epsilon = layer.norm_epsilon,
                    .cache = draft.cache(layer),
                    .rows = rows.view});
}

void store_part(Machine& machine, const CudaState& draft, const CudaState& target,
                const DraftContext& context, std::span<const AttentionLayer> layers,
                std::span<const ContextRow> part) {
  machine.device.scratch.clear();
  const Rows rows = send_rows(machine, part);
  const float* fused = fuse_taps(machine, draft, target, context, rows);
  const Rope* rope = nullptr;
  float* rotations = nullptr;
  for (const AttentionLayer& layer : layers) {
    if (layer.rope != rope) {
      rope = layer.rope;
      const Frequencies frequencies = frequencies_of(*rope);
      rotations = machine.device.scratch_of<float>(rows.count * frequencies.pairs * 2);
      cuda::rotations(machine.stream(), frequencies, rows.view.positions, rows.count, rotations);
    }
    store_layer(machine, draft, layer, fused, rotations, rows);
  }
}

}  // namespace

void draft_context(Machine& machine, CudaState& draft, const CudaState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows) {
  const std::span<const Row> computed = target.step().rows();
  for (const ContextRow& row : rows) {
    CHECK(row.row >= 0 && row.row < static_cast<int64_t>(computed.size()));
    CHECK(computed[row.row].position == row.position);
    CHECK(computed[row.row].sequence == row.sequence && row.sequence < draft.shape().sequences);
  }
  const auto taps = static_cast<int>(context.aux_norms.size());
  CHECK(taps > 0 && taps == target.shape().taps);
  for (const AttentionLayer& layer : layers) {
    CHECK(layer.window > 0 && layer.rope != nullptr);  // a full layer's pages: during a step alone
  }
  // In parts that a ring of the draft has room for.
  const auto most = static_cast<size_t>(draft.shape().max_rows);
  for (size_t first = 0; first < rows.size(); first += most) {
    store_part(machine, draft, target, context, layers,
               rows.subspan(first, std::min(most, rows.size() - first)));
  }
}

}  // namespace lagoon::kernels::cuda
