#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"

namespace lagoon::kernels::cuda {
namespace {

// Rows of a call that go through the kernels together.
constexpr int64_t kRowsOfPart = 512;

// Rows of the target and where their context goes, on the device.
struct Rows {
  const int32_t* ids = nullptr;
  RowsView view;
  int64_t count = 0;
};

// A part of the rows that were sent.
Rows part_of(const int32_t* sent, int64_t all, int64_t first, int64_t count) {
  return {sent + first,
          {.positions = sent + all + first, .sequences = sent + 2 * all + first, .rows = count},
          count};
}

struct Sizes {
  int64_t hidden, own, taps, kv = 0, pairs = 0;
  Sizes(const CudaState& draft, const CudaState& target, const DraftContext& context,
        std::span<const AttentionLayer> layers)
      : hidden(target.shape().hidden),
        own(draft.shape().hidden),
        taps(static_cast<int64_t>(context.aux_norms.size())) {
    for (const AttentionLayer& layer : layers) {
      kv = std::max(kv, int64_t{layer.kv_heads} * layer.head_dim);
      pairs = std::max(pairs, static_cast<int64_t>(layer.rope->inverse_frequencies.size()));
    }
  }
};

struct Buffers {
  Bits16* joined;    // normed taps of a row, one after the other
  float* fused;      // c of kernels/ops.h
  float* rotations;  // of one rope at a time
  Bits16* normed;    // these for one layer at a time
  float *k, *v;
  Buffers(Cutter& cutter, const Sizes& sizes, int64_t rows)
      : joined(cutter.take<Bits16>(rows * padded(sizes.taps * sizes.hidden))),
        fused(cutter.take<float>(rows * sizes.own)),
        rotations(cutter.take<float>(rows * sizes.pairs * 2)),
        normed(cutter.take<Bits16>(rows * padded(sizes.own))),
        k(cutter.take<float>(rows * sizes.kv)),
        v(cutter.take<float>(rows * sizes.kv)) {}
};

int64_t bytes_of(const Sizes& sizes, int64_t rows) {
  Cutter cutter;
  const Buffers buffers(cutter, sizes, rows);
  static_cast<void>(buffers);
  return cutter.used();
}

// No part may come around a ring: rows of one launch are stored in any order.
int64_t rows_of_part(const CudaState& draft, std::span<const AttentionLayer> layers) {
  int64_t most = kRowsOfPart;
  for (const AttentionLayer& layer : layers) {
    most = std::min(most, draft.step().ring_positions(layer.window));
  }
  return most;
}

void fuse_taps(Machine& machine, const CudaState& target, const DraftContext& context,
               const Sizes& sizes, const Rows& rows, const Buffers& b) {
  const int64_t hidden = sizes.hidden;
  const int64_t stride = padded(sizes.taps * hidden);
  for (int64_t t = 0; t < sizes.taps; ++t) {
    norm_rows(machine.stream(),
              {.x = target.tap(static_cast<int>(t)),
               .x_stride = hidden,
               .ids = rows.ids,
               .weight = vector_of(context.aux_norms[t], hidden),
               .n = hidden,
               .epsilon = context.norm_epsilon,
               .out = b.joined + t * hidden,
               .out_stride = stride,
               .zero_to = t + 1 < sizes.taps ? 0 : stride - t * hidden},
              rows.count);
  }
  const Product fc = {.matrix = view_of(context.fc.get(), sizes.own, sizes.taps * hidden),
                      .y = b.fused,
                      .y_stride = sizes.own};
  multiply(machine.stream(), &fc, 1, b.joined, rows.count);
  norm_rows(machine.stream(),
            {.x = b.fused,
             .x_stride = sizes.own,
             .weight = vector_of(context.hidden_norm, sizes.own),
             .n = sizes.own,
             .epsilon = context.norm_epsilon,
             .out_float = b.fused},
            rows.count);
}

// Keys and values of one layer from c.
void store_layer(Machine& machine, const CudaState& draft, const AttentionLayer& layer,
                 const Rows& rows, const Buffers& b) {
  const int64_t hidden = draft.shape().hidden;
  const int64_t kv = int64_t{layer.kv_heads} * layer.head_dim;
  norm_rows(machine.stream(),
            {.x = b.fused,
             .x_stride = hidden,
             .weight = vector_of(layer.input_norm, hidden),
             .n = hidden,
             .epsilon = layer.norm_epsilon,
             .out = b.normed,
             .out_stride = padded(hidden),
             .zero_to = padded(hidden)},
            rows.count);
  const Product products[] = {
      {.matrix = view_of(layer.k.get(), kv, hidden), .y = b.k, .y_stride = kv},
      {.matrix = view_of(layer.v.get(), kv, hidden), .y = b.v, .y_stride = kv}};
  multiply(machine.stream(), products, 2, b.normed, rows.count);
  rotate_and_store(machine.stream(),
                   {.k = b.k,
                    .v = b.v,
                    .k_norm = vector_of(layer.k_norm, layer.head_dim),
                    .rotations = b.rotations,
                    .pairs = static_cast<int>(layer.rope->inverse_frequencies.size()),
                    .epsilon = layer.norm_epsilon,
                    .cache = draft.cache(layer),
                    .rows = rows.view});
}

void store_part(Machine& machine, const CudaState& draft, const CudaState& target,
                const DraftContext& context, std::span<const AttentionLayer> layers,
                const Rows& rows) {
  const Sizes sizes(draft, target, context, layers);
  uint8_t* memory = machine.device.take_workspace(bytes_of(sizes, rows.count));
  if (memory == nullptr) return;
  Cutter cutter(memory);
  const Buffers b(cutter, sizes, rows.count);
  fuse_taps(machine, target, context, sizes, rows, b);
  const Rope* rope = nullptr;
  for (const AttentionLayer& layer : layers) {
    if (layer.rope != rope) {
      rope = layer.rope;
      rotations(machine.stream(), frequencies_of(*rope), rows.view.positions, rows.count,
                b.rotations);
    }
    store_layer(machine, draft, layer, rows, b);
  }
}

}  // namespace

int64_t context_bytes(const CudaState& draft, const CudaState& target, const DraftContext& context,
                      std::span<const AttentionLayer> layers) {
  const int64_t rows = std::min<int64_t>(rows_of_part(draft, layers), target.shape().max_rows);
  return bytes_of(Sizes(draft, target, context, layers), rows);
}

bool reserve_context(CudaState& draft, const CudaState& target) {
  return draft.context().reserve(int64_t{3} * 4 * target.shape().max_rows);
}

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
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0 || machine.device.failed()) return;
  auto* to = reinterpret_cast<int32_t*>(draft.context().open(3 * count * 4));
  if (to == nullptr) return;
  for (const ContextRow& row : rows) *to++ = row.row;
  for (const ContextRow& row : rows) *to++ = row.position;
  for (const ContextRow& row : rows) *to++ = row.sequence;
  draft.context().send(3 * count * 4);
  const auto* sent = reinterpret_cast<const int32_t*>(draft.context().mirror());
  const int64_t most = rows_of_part(draft, layers);
  if (count <= std::min(most, kMostGraphRows)) {
    uint64_t key = mix(mix(0x636f6e74, static_cast<uint64_t>(count)), &target);
    key = mix(mix(key, &context), sent);
    draft.graphs().run(key, [&] {
      store_part(machine, draft, target, context, layers, part_of(sent, count, 0, count));
    });
    return;
  }
  for (int64_t first = 0; first < count; first += most) {
    store_part(machine, draft, target, context, layers,
               part_of(sent, count, first, std::min(most, count - first)));
  }
}

}  // namespace lagoon::kernels::cuda
