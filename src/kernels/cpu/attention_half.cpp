#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/operations.h"

namespace lagoon::kernels::cpu {
namespace {

// What the steps of one half share. Sizes in floats.
struct Half {
  Machine& machine;
  CpuState& state;
  const AttentionLayer& layer;
  Cache& cache;
  const Vectors& v;
  const Rotation& rotation;
  const std::vector<RowTiles>& groups;
  int64_t rows, hidden;
  int64_t q_size, kv_size, gate_size;  // of a row
  int64_t padded_size;                 // of a row's heads, each padded to cache.dim()
  int chunk_heads, chunks;             // of the heads that share a kv head
  float *normed, *q, *k, *value, *gate, *padded_q, *padded_out, *out;
};

// Norms and rotates heads of q, and puts keys and values into the cache. Item: a head of a row.
void rotate_and_store(const Half& h, int part) {
  const AttentionLayer& layer = h.layer;
  const int64_t heads = layer.heads + layer.kv_heads;
  const float* q_norm = vector_of(layer.q_norm, layer.head_dim);
  float* scratch = h.machine.scratch[part].floats.floats(layer.head_dim);
  const KeyValue into = {&layer, &h.cache, &h.rotation};
  const Range items = share(h.rows * heads, part, h.machine.parts());
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t r = item / heads;
    const int64_t head = item % heads;
    if (head < layer.heads) {
      float* out = h.padded_q + r * h.padded_size + head * h.cache.dim();
      h.v.norm_and_rotate(h.q + r * h.q_size + head * layer.head_dim, q_norm, layer.head_dim,
                          layer.norm_epsilon, h.rotation.cosines(r), h.rotation.sines(r),
                          h.rotation.pairs, h.machine.rounds(), out);
      std::fill(out + layer.head_dim, out + h.cache.dim(), 0.0f);
      continue;
    }
    const int64_t kv_head = head - layer.heads;
    const Row& row = h.state.rows()[r];
    const int64_t at = r * h.kv_size + kv_head * layer.head_dim;
    store_key_value(h.machine, into, r,
                    h.state.step().entry(layer.window, row.sequence, row.position),
                    static_cast<int>(kv_head), h.k + at, h.value + at, scratch);
  }
}

// The gated output of a head of a row, into h.q.
void gate_head(const Half& h, int64_t r, int64_t head) {
  const int64_t dim = h.layer.head_dim;
  float* out = h.q + r * h.q_size + head * dim;
  std::copy_n(h.padded_out + r * h.padded_size + head * h.cache.dim(), dim, out);
  const float* gates = h.gate + r * h.gate_size;
  if (h.layer.gate == Gate::kPerHead) {
    h.v.scale(out, gates[head], dim, h.machine.rounds());
  } else {
    h.v.scale_each(out, gates + head * dim, dim, h.machine.rounds());
  }
}

// Item: a group of rows and some heads that share a kv head.
void attend_and_gate(const Half& h, int part) {
  const AttentionLayer& layer = h.layer;
  const int group_heads = layer.heads / layer.kv_heads;
  const int64_t per_group = int64_t{layer.kv_heads} * h.chunks;
  const auto items = static_cast<int64_t>(h.groups.size()) * per_group;
  // In turn, since work grows with the position.
  for (int64_t item = part; item < items; item += h.machine.parts()) {
    const RowTiles& group = h.groups[item / per_group];
    const auto kv_head = static_cast<int>(item % per_group / h.chunks);
    const auto chunk = static_cast<int>(item % h.chunks);
    const int first_head = kv_head * group_heads + chunk * h.chunk_heads;
    const int heads = std::min(h.chunk_heads, (kv_head + 1) * group_heads - first_head);
    Attention attention;
    h.cache.describe(kv_head, attention);
    attention.runs = group.tiles.data();
    attention.position = group.rows.first_position;
    attention.rows = static_cast<int>(group.rows.rows);
    attention.heads = heads;
    attention.scale = 1.0f / std::sqrt(static_cast<float>(layer.head_dim));
    if (attention.element == Element::kFP8) {
      attention.scale *= layer.k_scale;
      attention.scale_out = layer.v_scale;
    }
    const int64_t at = group.rows.first_row * h.padded_size + first_head * h.cache.dim();
    attention.q = h.padded_q + at;
    attention.out = h.padded_out + at;
    attention.row_stride = h.padded_size;
    h.v.attend(attention, h.machine.scratch[part].floats.floats(attention_scratch(attention.rows)));
    for (int64_t r = 0; r < group.rows.rows; ++r) {
      for (int head = first_head; head < first_head + heads; ++head) {
        gate_head(h, group.rows.first_row + r, head);
      }
    }
  }
}

// residual += o(...) for the part's columns.
void project_out(const Half& h, int part) {
  const Matrix& o = matrix_of(h.layer.o.get(), h.hidden, h.q_size);
  const Range panels = share(o.panels(), part, h.machine.parts());
  multiply(o, h.q, h.q_size, static_cast<int>(h.rows), h.out, h.hidden, panels.begin, panels.end);
  const int64_t first = panels.begin * Matrix::panel_rows();
  const int64_t count = std::min(panels.end * Matrix::panel_rows(), h.hidden) - first;
  if (count <= 0) return;
  for (int64_t r = 0; r < h.rows; ++r) {
    h.v.add(h.state.residual(r) + first, h.out + r * h.hidden + first, count);
  }
}

}  // namespace

void attention_half(Machine& machine, CpuState& state, const AttentionLayer& layer) {
  Cache& cache = state.cache(layer.cache, layer.window);
  CHECK(layer.heads > 0 && layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0);
  CHECK(cache.kv_heads() == layer.kv_heads && cache.head_dim() == layer.head_dim);
  CHECK(layer.rope != nullptr);
  CHECK(2 * layer.rope->inverse_frequencies.size() <= static_cast<size_t>(layer.head_dim));
  const auto rows = static_cast<int64_t>(state.rows().size());
  if (rows == 0) return;
  const int64_t hidden = state.shape().hidden;
  const int64_t q_size = int64_t{layer.heads} * layer.head_dim;
  const int64_t kv_size = int64_t{layer.kv_heads} * layer.head_dim;
  const int64_t gate_size = layer.gate == Gate::kPerHead ? layer.heads : q_size;
  const int64_t padded_size = layer.heads * cache.dim();
  const int group_heads = layer.heads / layer.kv_heads;
  const int chunks = (group_heads + kMaxAttentionHeads - 1) / kMaxAttentionHeads;
  auto& buffers = machine.buffers;
  const Half half = {.machine = machine,
                     .state = state,
                     .layer = layer,
                     .cache = cache,
                     .v = vectors(),
                     .rotation = state.rotations().get(*layer.rope, machine.pool),
                     .groups = state.row_tiles(layer.window),
                     .rows = rows,
                     .hidden = hidden,
                     .q_size = q_size,
                     .kv_size = kv_size,
                     .gate_size = gate_size,
                     .padded_size = padded_size,
                     .chunk_heads = (group_heads + chunks - 1) / chunks,
                     .chunks = chunks,
                     .normed = buffers[0].floats(rows * hidden),
                     .q = buffers[1].floats(rows * q_size),
                     .k = buffers[2].floats(rows * kv_size),
                     .value = buffers[3].floats(rows * kv_size),
                     .gate = buffers[4].floats(rows * gate_size),
                     .padded_q = buffers[5].floats(rows * padded_size),
                     .padded_out = buffers[6].floats(rows * padded_size),
                     .out = buffers[7].floats(rows * hidden)};
  const float* input_norm = vector_of(layer.input_norm, hidden);
  const Output outputs[] = {{&matrix_of(layer.q.get(), q_size, hidden), half.q},
                            {&matrix_of(layer.k.get(), kv_size, hidden), half.k},
                            {&matrix_of(layer.v.get(), kv_size, hidden), half.value},
                            {&matrix_of(layer.g.get(), gate_size, hidden), half.gate}};
  machine.pool.run([&](int part) {
    norm_share(machine, state.residual(0), rows, hidden, input_norm, layer.norm_epsilon,
               half.normed, part);
    machine.pool.barrier();
    multiply_share(outputs, half.normed, hidden, rows, part, machine.parts());
    machine.pool.barrier();
    const Range gates = share(rows * gate_size, part, machine.parts());
    half.v.softplus(half.gate + gates.begin, gates.end - gates.begin, half.gate + gates.begin);
    rotate_and_store(half, part);
    // All keys and values of the step are in the cache before any row attends.
    machine.pool.barrier();
    attend_and_gate(half, part);
    machine.pool.barrier();
    project_out(half, part);
  });
}

}  // namespace lagoon::kernels::cpu
