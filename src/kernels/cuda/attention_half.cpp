#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

// Tiles of queries of a launch.
constexpr int kMostTiles = 65535;

// What a launch of the attention kernel needs to know of a group.
void add_group(const RowGroup& group, const AttentionLayer& layer, Attention& attention) {
  const auto queries = static_cast<int>(group.rows) * (layer.heads / layer.kv_heads);
  attention.query_tiles += (queries + kQueryTile - 1) / kQueryTile;
  attention.row_count += group.rows;
}

int64_t partial_size(const Attention& attention) {
  return attention.row_count * attention.heads * attention.most_chunks *
         (attention.cache.head_dim + 2);
}

// Cuts the groups of a step into parts: of a ring's rows at once, and of as many as the partial
// results of one launch have room for. A part's keys and values are stored before it attends.
std::vector<Attention> cut_into_parts(const CudaState& state, const AttentionLayer& layer,
                                      const Attention& common) {
  const std::span<const RowGroup> groups = state.host_groups();
  const int64_t most_rows =
      layer.window > 0 ? state.step().rows_at_once() : std::max<int64_t>(1, state.rows());
  if (state.rows() <= kMostGraphRows && state.rows() <= most_rows) {
    // There are more tiles than groups take only where a sequence has several rows, and then an
    // empty group stands behind the last one.
    Attention whole = common;
    whole.groups = state.groups();
    whole.row_count = state.rows();
    whole.query_tiles = static_cast<int>(
        most_query_tiles(state.rows(), layer.heads / layer.kv_heads, state.shape().sequences));
    if (partial_size(whole) <= kMostPartial) return {whole};
  }
  std::vector<Attention> parts;
  for (size_t g = 0; g < groups.size(); ++g) {
    Attention longer = parts.empty() ? common : parts.back();
    if (!parts.empty()) add_group(groups[g], layer, longer);
    if (parts.empty() || partial_size(longer) > kMostPartial || longer.query_tiles > kMostTiles ||
        longer.row_count > most_rows) {
      parts.push_back(common);
      parts.back().groups = state.groups() + g;
      parts.back().first_row = groups[g].first_row;
      add_group(groups[g], layer, parts.back());
    } else {
      parts.back() = longer;
    }
  }
  return parts;
}

struct Sizes {
  int64_t hidden, q, kv, gate;
  Sizes(const CudaState& state, const AttentionLayer& layer)
      : hidden(state.shape().hidden),
        q(int64_t{layer.heads} * layer.head_dim),
        kv(int64_t{layer.kv_heads} * layer.head_dim),
        gate(layer.gate == Gate::kPerHead ? layer.heads : q) {}
};

struct Buffers {
  Bits16* normed;
  float *q, *k, *v, *gate;
  Bits16 *q_bits, *out;
  float* partial;
  Buffers(Cutter& cutter, const Sizes& sizes, int64_t rows, int64_t partial_floats)
      : normed(take_normed(cutter, rows, sizes.hidden)),
        q(cutter.take<float>(rows * sizes.q)),
        k(cutter.take<float>(rows * sizes.kv)),
        v(cutter.take<float>(rows * sizes.kv)),
        gate(cutter.take<float>(rows * sizes.gate)),
        q_bits(cutter.take<Bits16>(rows * sizes.q)),
        out(cutter.take<Bits16>(rows * padded(sizes.q))),
        partial(cutter.take<float>(partial_floats)) {}
};

int64_t bytes_of(const Sizes& sizes, int64_t rows, int64_t partial_floats) {
  Cutter cutter;
  const Buffers buffers(cutter, sizes, rows, partial_floats);
  static_cast<void>(buffers);
  return cutter.used();
}

// Of some rows of the step.
Store part_of(Store all, const Attention& part, const Sizes& sizes) {
  all.q += part.first_row * sizes.q;
  all.k += part.first_row * sizes.kv;
  all.v += part.first_row * sizes.kv;
  all.q_out += part.first_row * sizes.q;
  all.rotations += part.first_row * all.pairs * 2;
  all.rows.positions += part.first_row;
  all.rows.sequences += part.first_row;
  all.rows.rows = part.row_count;
  return all;
}

}  // namespace

Norm norm_of(const CudaState& state, const AttentionLayer& layer, Bits16* normed) {
  const int64_t hidden = state.shape().hidden;
  return {.x = state.residual(),
          .x_stride = hidden,
          .weight = vector_of(layer.input_norm, hidden),
          .n = hidden,
          .epsilon = layer.norm_epsilon,
          .out = normed,
          .out_stride = padded(hidden),
          .zero_to = padded(hidden)};
}

int64_t attention_bytes(const CudaState& state, const AttentionLayer& layer, int64_t positions) {
  const int64_t rows = state.shape().max_rows;
  const int64_t chunks = most_chunks_seen(layer.window, static_cast<int>(positions));
  const int64_t of_row = layer.heads * chunks * (layer.head_dim + 2);
  // At least a group, at most what a launch takes.
  const int64_t partial = std::min(rows * of_row, std::max(kMostPartial, kQueryTile * of_row));
  return bytes_of(Sizes(state, layer), rows, partial);
}

void attention_half(Machine& machine, CudaState& state, const AttentionLayer& layer) {
  CHECK(layer.heads > 0 && layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0);
  CHECK(layer.rope != nullptr);
  CHECK(2 * layer.rope->inverse_frequencies.size() <= static_cast<size_t>(layer.head_dim));
  const CacheView cache = state.cache(layer);
  const int64_t rows = state.rows();
  if (rows == 0 || machine.device.failed()) return;
  const Sizes sizes(state, layer);
  Attention attention;
  attention.cache = cache;
  attention.rows = state.rows_view();
  attention.heads = layer.heads;
  attention.gate_per_head = layer.gate == Gate::kPerHead;
  attention.most_chunks = most_chunks_seen(layer.window, state.positions());
  attention.most_tile_chunks = most_tile_chunks_seen(layer.window, state.positions());
  std::vector<Attention> parts = cut_into_parts(state, layer, attention);
  int64_t partial = 0;
  for (const Attention& part : parts) partial = std::max(partial, partial_size(part));
  uint8_t* memory = machine.device.take_workspace(bytes_of(sizes, rows, partial));
  if (memory == nullptr) return;
  Cutter cutter(memory);
  const Buffers b(cutter, sizes, rows, partial);

  if (machine.normed != &layer || machine.normed_rows != b.normed) {
    norm_rows(machine.stream(), norm_of(state, layer, b.normed), rows);
  }
  machine.normed = nullptr;
  const auto product = [&](const Weight& weight, int64_t size, float* y) {
    return Product{.matrix = view_of(weight.get(), size, sizes.hidden), .y = y, .y_stride = size};
  };
  const Product products[] = {product(layer.q, sizes.q, b.q), product(layer.k, sizes.kv, b.k),
                              product(layer.v, sizes.kv, b.v),
                              product(layer.g, sizes.gate, b.gate)};
  multiply(machine.stream(), products, 4, b.normed, rows);
  const Store store = {.q = b.q,
                       .k = b.k,
                       .v = b.v,
                       .q_norm = vector_of(layer.q_norm, layer.head_dim),
                       .k_norm = vector_of(layer.k_norm, layer.head_dim),
                       .rotations = state.rotations(*layer.rope),
                       .heads = layer.heads,
                       .pairs = static_cast<int>(layer.rope->inverse_frequencies.size()),
                       .epsilon = layer.norm_epsilon,
                       .q_out = b.q_bits,
                       .cache = cache,
                       .rows = state.rows_view()};
  for (Attention& part : parts) {
    part.q = b.q_bits;
    part.gate = b.gate;
    part.out = b.out;
    part.partial = b.partial;
    part.arrived = state.arrived();
    rotate_and_store(machine.stream(), part_of(store, part, sizes));
    attend(machine.stream(), part);
  }
  const Product o = {.matrix = view_of(layer.o.get(), sizes.hidden, sizes.q),
                     .y = state.residual(),
                     .y_stride = sizes.hidden,
                     .add = true};
  multiply(machine.stream(), &o, 1, b.out, rows);
}

}  // namespace lagoon::kernels::cuda
