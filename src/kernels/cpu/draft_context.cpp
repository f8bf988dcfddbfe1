#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/operations.h"

namespace lagoon::kernels::cpu {
namespace {

void check_layer(CpuState& draft, const AttentionLayer& layer) {
  CHECK(layer.window > 0);  // a full layer's pages are known during a step alone
  const Cache& cache = draft.cache(layer.cache, layer.window);
  CHECK(cache.kv_heads() == layer.kv_heads && cache.head_dim() == layer.head_dim);
  CHECK(layer.rope != nullptr);
}

// What the steps share, for rows that a ring of the draft has room for.
struct Context {
  Machine& machine;
  CpuState& draft;
  const DraftContext& context;
  std::span<const AttentionLayer> layers;
  std::span<const ContextRow> rows;
  std::vector<const Rotation*> rotations;  // of each layer
  Taps tapped;
  int64_t taps, hidden, target_hidden;
  std::vector<int64_t> kv_sizes;  // of each layer
  float* joined;                  // [rows, taps, target_hidden]
  float* fused;                   // [rows, hidden]
  float* normed;                  // [layers, rows, hidden]
  std::vector<float*> k, v;       // of each layer, [rows, kv_size]

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
};

void norm_taps(const Context& c, int part) {
  const Range items = share(c.count() * c.taps, part, c.machine.parts());
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t tap = item % c.taps;
    vectors().rms_norm(c.tapped.at(tap, c.rows[item / c.taps].row),
                       vector_of(c.context.aux_norms[tap], c.target_hidden), c.target_hidden,
                       c.context.norm_epsilon, c.machine.rounds(),
                       c.joined + item * c.target_hidden);
  }
}

// c of kernels/ops.h, and its norms for each layer.
void norm_fused(const Context& c, int part) {
  norm_share(c.machine, c.fused, c.count(), c.hidden, vector_of(c.context.hidden_norm, c.hidden),
             c.context.norm_epsilon, c.fused, part);
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const AttentionLayer& layer = c.layers[l];
    norm_share(c.machine, c.fused, c.count(), c.hidden, vector_of(layer.input_norm, c.hidden),
               layer.norm_epsilon, c.normed + static_cast<int64_t>(l) * c.count() * c.hidden, part);
  }
}

void project(const Context& c, int part) {
  int64_t total = 0;
  for (size_t l = 0; l < c.layers.size(); ++l) {
    for (const Weight* weight : {&c.layers[l].k, &c.layers[l].v}) {
      total += matrix_of(weight->get(), c.kv_sizes[l], c.hidden).panels();
    }
  }
  Panels panels(part, c.machine.parts(), total);
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const float* x = c.normed + static_cast<int64_t>(l) * c.count() * c.hidden;
    const std::pair<const Weight*, float*> products[] = {{&c.layers[l].k, c.k[l]},
                                                         {&c.layers[l].v, c.v[l]}};
    for (const auto& [weight, y] : products) {
      const Matrix& matrix = matrix_of(weight->get());
      const Range range = panels.next(matrix.panels(), 1);
      multiply(matrix, x, c.hidden, static_cast<int>(c.count()), y, c.kv_sizes[l], range.begin,
               range.end);
    }
  }
}

void store(const Context& c, int part) {
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const AttentionLayer& layer = c.layers[l];
    Cache& cache = c.draft.cache(layer.cache, layer.window);
    const KeyValue into = {&layer, &cache, c.rotations[l]};
    float* scratch = c.machine.scratch[part].floats.floats(layer.head_dim);
    const Range items = share(c.count() * layer.kv_heads, part, c.machine.parts());
    for (int64_t item = items.begin; item < items.end; ++item) {
      const int64_t r = item / layer.kv_heads;
      const ContextRow& row = c.rows[r];
      store_key_value(c.machine, into, r,
                      c.draft.step().entry(layer.window, row.sequence, row.position),
                      static_cast<int>(item % layer.kv_heads), c.k[l] + item * layer.head_dim,
                      c.v[l] + item * layer.head_dim, scratch);
    }
  }
}

void extend(Machine& machine, CpuState& draft, const Taps& taps, const DraftContext& context,
            std::span<const AttentionLayer> layers, std::span<const ContextRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  Context c = {.machine = machine,
               .draft = draft,
               .context = context,
               .layers = layers,
               .rows = rows,
               .rotations = {},
               .tapped = taps,
               .taps = static_cast<int64_t>(context.aux_norms.size()),
               .hidden = draft.shape().hidden,
               .target_hidden = taps.hidden,
               .kv_sizes = {},
               .joined = nullptr,
               .fused = nullptr,
               .normed = nullptr,
               .k = {},
               .v = {}};
  auto& buffers = machine.buffers;
  c.joined = buffers[0].floats(count * c.taps * c.target_hidden);
  c.fused = buffers[1].floats(count * c.hidden);
  c.normed = buffers[2].floats(count * c.hidden * static_cast<int64_t>(layers.size()));
  int64_t all = 0;
  for (const AttentionLayer& layer : layers) {
    c.rotations.push_back(&draft.rotations().get(*layer.rope, machine.pool));
    c.kv_sizes.push_back(int64_t{layer.kv_heads} * layer.head_dim);
    all += c.kv_sizes.back();
  }
  float* next = buffers[3].floats(2 * count * all);
  for (const int64_t size : c.kv_sizes) {
    c.k.push_back(next);
    c.v.push_back(next + count * size);
    next += 2 * count * size;
  }
  const Output fc[] = {{&matrix_of(context.fc.get(), c.hidden, c.taps * c.target_hidden), c.fused}};
  machine.pool.run([&](int part) {
    norm_taps(c, part);
    machine.pool.barrier();
    multiply_share(fc, c.joined, c.taps * c.target_hidden, count, part, machine.parts());
    machine.pool.barrier();
    norm_fused(c, part);
    machine.pool.barrier();
    project(c, part);
    machine.pool.barrier();
    store(c, part);
  });
}

// In parts that a ring of the draft has room for.
void extend_in_parts(Machine& machine, CpuState& draft, const Taps& taps,
                     const DraftContext& context, std::span<const AttentionLayer> layers,
                     std::span<const ContextRow> rows) {
  const auto most = static_cast<size_t>(draft.shape().max_rows);
  std::vector<int32_t> positions;
  for (size_t first = 0; first < rows.size(); first += most) {
    const auto part = rows.subspan(first, std::min(most, rows.size() - first));
    positions.clear();
    for (const ContextRow& row : part) positions.push_back(row.position);
    draft.rotations().begin(positions);
    extend(machine, draft, taps, context, layers, part);
  }
}

}  // namespace

void finish_context(Machine& machine, CpuState& draft) {
  std::optional<PendingContext>& pending = draft.pending();
  if (!pending) return;
  extend_in_parts(machine, draft, pending->copies(), pending->context(), pending->layers(),
                  pending->rows());
  pending->clear();
}

void draft_context(Machine& machine, CpuState& draft, const CpuState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows) {
  const std::span<const Row> computed = target.rows();
  for (const ContextRow& row : rows) {
    CHECK(row.row >= 0 && row.row < static_cast<int64_t>(computed.size()));
    CHECK(computed[row.row].position == row.position);
    CHECK(computed[row.row].sequence == row.sequence && row.sequence < draft.shape().sequences);
  }
  CHECK(!context.aux_norms.empty() &&
        static_cast<int>(context.aux_norms.size()) == target.shape().taps);
  for (const AttentionLayer& layer : layers) check_layer(draft, layer);
  const Taps taps = target.taps();
  std::optional<PendingContext>& pending = draft.pending();
  if (pending && (&pending->context() != &context || pending->layers().data() != layers.data())) {
    finish_context(machine, draft);
    pending.reset();
  }
  if (!pending) pending.emplace(context, layers, draft.shape().sequences, taps);
  if (!pending->has_room_for(rows.size())) {
    finish_context(machine, draft);
    extend_in_parts(machine, draft, taps, context, layers, rows);
    return;
  }
  for (const ContextRow& row : rows) {
    if (pending->add(taps, row)) continue;
    finish_context(machine, draft);
    CHECK(pending->add(taps, row));
  }
}

}  // namespace lagoon::kernels::cpu
