#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/operations.h"

namespace lagoon::kernels::ref {
namespace {

// c of kernels/ops.h for each row: [rows, hidden of the draft].
std::vector<float> fuse_taps(Machine& machine, const RefState& draft, const RefState& target,
                             const DraftContext& context, std::span<const ContextRow> rows) {
  const int64_t hidden = target.shape().hidden;
  const auto taps = static_cast<int64_t>(context.aux_norms.size());
  CHECK(taps > 0 && taps == target.shape().taps);
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<float> joined(count * taps * hidden);  // [rows, taps, hidden]
  for (int64_t t = 0; t < taps; ++t) {
    const std::vector<float> weight = read_vector(context.aux_norms[t], hidden);
    machine.workers.for_each(count, [&](int64_t r, Buffer&) {
      float* out = joined.data() + (r * taps + t) * hidden;
      rms_norm(target.tap(static_cast<int>(t), rows[r].row), weight.data(), hidden,
               context.norm_epsilon, out);
      round_activations(machine.activations, out, hidden);
    });
  }
  std::vector<float> fused(count * draft.shape().hidden);
  const Product fc[] = {make_product(context.fc.get(), draft.shape().hidden, taps * hidden, count,
                                     joined.data(), fused.data())};
  multiply(machine.workers, fc);
  norm_rows(machine, fused.data(), count, draft.shape().hidden, context.hidden_norm,
            context.norm_epsilon, fused.data());
  return fused;
}

// Keys and values of one layer from c.
void store_layer(Machine& machine, RefState& draft, const AttentionLayer& layer,
                 const std::vector<float>& fused, std::span<const ContextRow> rows) {
  // A full layer's pages are known during a step alone.
  CHECK(layer.window > 0);
  Cache& cache = draft.cache(layer.cache, layer.window);
  CHECK(cache.kv_heads() == layer.kv_heads && cache.head_dim() == layer.head_dim);
  CHECK(layer.rope != nullptr);
  const int64_t hidden = draft.shape().hidden;
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t kv = int64_t{layer.kv_heads} * layer.head_dim;
  std::vector<float> normed(count * hidden), k(count * kv), v(count * kv);
  norm_rows(machine, fused.data(), count, hidden, layer.input_norm, layer.norm_epsilon,
            normed.data());
  const Product products[] = {
      make_product(layer.k.get(), kv, hidden, count, normed.data(), k.data()),
      make_product(layer.v.get(), kv, hidden, count, normed.data(), v.data())};
  multiply(machine.workers, products);
  const std::vector<float> k_norm = read_vector(layer.k_norm, layer.head_dim);
  machine.workers.for_each(count, [&](int64_t r, Buffer&) {
    const ContextRow& row = rows[r];
    const Rotation rotation(*layer.rope, row.position);
    norm_and_rotate(k.data() + r * kv, layer.kv_heads, layer.head_dim, k_norm.data(),
                    layer.norm_epsilon, rotation, machine.activations);
    cache.put(draft.entry(cache, row.sequence, row.position), row.position, k.data() + r * kv,
              v.data() + r * kv, {layer.k_scale, layer.v_scale});
  });
}

}  // namespace

void draft_context(Machine& machine, RefState& draft, const RefState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows) {
  const std::span<const Row> computed = target.rows();
  for (const ContextRow& row : rows) {
    CHECK(row.row >= 0 && row.row < static_cast<int64_t>(computed.size()));
    CHECK(computed[row.row].position == row.position);
    CHECK(computed[row.row].sequence == row.sequence && row.sequence < draft.shape().sequences);
  }
  // In parts that a ring of the draft has room for.
  const auto most = static_cast<size_t>(draft.shape().max_rows);
  for (size_t first = 0; first < rows.size(); first += most) {
    const auto part = rows.subspan(first, std::min(most, rows.size() - first));
    const std::vector<float> fused = fuse_taps(machine, draft, target, context, part);
    for (const AttentionLayer& layer : layers) store_layer(machine, draft, layer, fused, part);
  }
}

}  // namespace lagoon::kernels::ref
