#include <map>
#include <vector>

#include "base/check.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/elementwise.h"
#include "kernels/ref/operations.h"

namespace lagoon::kernels::ref {
namespace {

// Rows of a sequence that one loop over its keys serves. A row's result does not depend on it.
constexpr int64_t kGroupRows = 8;

struct Sizes {
  int64_t rows = 0;
  int64_t hidden = 0;
  int64_t q = 0;     // heads * head_dim
  int64_t kv = 0;    // kv_heads * head_dim
  int64_t gate = 0;  // gates of a row
};

Sizes sizes_of(const RefState& state, const AttentionLayer& layer, const Cache& cache) {
  CHECK(layer.heads > 0 && layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0);
  CHECK(cache.kv_heads() == layer.kv_heads && cache.head_dim() == layer.head_dim);
  CHECK(layer.rope != nullptr);
  CHECK(2 * layer.rope->inverse_frequencies.size() <= static_cast<size_t>(layer.head_dim));
  const int64_t q = int64_t{layer.heads} * layer.head_dim;
  return {.rows = static_cast<int64_t>(state.rows().size()),
          .hidden = state.shape().hidden,
          .q = q,
          .kv = int64_t{layer.kv_heads} * layer.head_dim,
          .gate = layer.gate == Gate::kPerHead ? layer.heads : q};
}

struct Projections {
  std::vector<float> q;     // [rows, heads, head_dim]
  std::vector<float> k, v;  // [rows, kv_heads, head_dim]
  std::vector<float> gate;  // [rows, heads] or [rows, heads, head_dim]
};

Projections project(Machine& machine, RefState& state, const AttentionLayer& layer,
                    const Sizes& sizes) {
  std::vector<float> normed(sizes.rows * sizes.hidden);
  norm_rows(machine, state.residual(0), sizes.rows, sizes.hidden, layer.input_norm,
            layer.norm_epsilon, normed.data());
  Projections out;
  const auto product = [&](const Weight& weight, int64_t n, std::vector<float>& y) {
    y.resize(sizes.rows * n);
    return make_product(weight.get(), n, sizes.hidden, sizes.rows, normed.data(), y.data());
  };
  const Product products[] = {product(layer.q, sizes.q, out.q), product(layer.k, sizes.kv, out.k),
                              product(layer.v, sizes.kv, out.v),
                              product(layer.g, sizes.gate, out.gate)};
  multiply(machine.workers, products);
  return out;
}

// Norms and rotates q and k, and puts keys and values into the cache.
void rotate_and_store(Machine& machine, const RefState& state, const AttentionLayer& layer,
                      const Sizes& sizes, Projections& p, Cache& cache) {
  const std::vector<float> q_norm = read_vector(layer.q_norm, layer.head_dim);
  const std::vector<float> k_norm = read_vector(layer.k_norm, layer.head_dim);
  machine.workers.for_each(sizes.rows, [&](int64_t r, Buffer&) {
    const Row& row = state.rows()[r];
    const Rotation rotation(*layer.rope, row.position);
    float* q = p.q.data() + r * sizes.q;
    float* k = p.k.data() + r * sizes.kv;
    norm_and_rotate(q, layer.heads, layer.head_dim, q_norm.data(), layer.norm_epsilon, rotation,
                    machine.activations);
    norm_and_rotate(k, layer.kv_heads, layer.head_dim, k_norm.data(), layer.norm_epsilon, rotation,
                    machine.activations);
    cache.put(state.entry(cache, row.sequence, row.position), row.position, k,
              p.v.data() + r * sizes.kv, {layer.k_scale, layer.v_scale});
  });
}

// The gated attention output, [rows, heads, head_dim].
std::vector<float> attend_gated(Machine& machine, const RefState& state,
                                const AttentionLayer& layer, const Sizes& sizes,
                                const Projections& p, const Cache& cache) {
  std::vector<float> attended(sizes.rows * sizes.q);
  // By sequence, for the groups of its rows.
  std::map<int32_t, Visible> visible;
  for (const RowGroup& run : group_rows(state.rows(), sizes.rows)) {
    visible[run.sequence] =
        find_visible(state, cache, run.sequence, run.first_position, run.first_position + run.rows);
  }
  const std::vector<RowGroup> groups = group_rows(state.rows(), kGroupRows);
  const int64_t items = static_cast<int64_t>(groups.size()) * layer.heads;
  const int group_size = layer.heads / layer.kv_heads;  // heads that share a kv head
  machine.workers.for_each(items, [&](int64_t item, Buffer& scratch) {
    const RowGroup& group = groups[item / layer.heads];
    const int head = static_cast<int>(item % layer.heads);
    const int64_t first = group.first_row * sizes.q + int64_t{head} * layer.head_dim;
    attend(cache, visible.at(group.sequence), group, head / group_size,
           {layer.k_scale, layer.v_scale}, p.q.data() + first, attended.data() + first, sizes.q,
           scratch);
    for (int64_t i = 0; i < group.rows; ++i) {
      float* out = attended.data() + first + i * sizes.q;
      const float* gates = p.gate.data() + (group.first_row + i) * sizes.gate;
      if (layer.gate == Gate::kPerHead) {
        scale_by_softplus(gates[head], out, layer.head_dim);
      } else {
        multiply_by_softplus(gates + int64_t{head} * layer.head_dim, out, layer.head_dim);
      }
      round_activations(machine.activations, out, layer.head_dim);
    }
  });
  return attended;
}

}  // namespace

void attention_half(Machine& machine, RefState& state, const AttentionLayer& layer) {
  Cache& cache = state.cache(layer.cache, layer.window);
  const Sizes sizes = sizes_of(state, layer, cache);
  Projections projections = project(machine, state, layer, sizes);
  // All keys and values of the step are in the cache before any row attends.
  rotate_and_store(machine, state, layer, sizes, projections, cache);
  const std::vector<float> attended =
      attend_gated(machine, state, layer, sizes, projections, cache);

  std::vector<float> out(sizes.rows * sizes.hidden);
  const Product o[] = {
      make_product(layer.o.get(), sizes.hidden, sizes.q, sizes.rows, attended.data(), out.data())};
  multiply(machine.workers, o);
  float* residual = state.residual(0);
  for (int64_t i = 0; i < sizes.rows * sizes.hidden; ++i) residual[i] += out[i];
}

}  // namespace lagoon::kernels::ref
