#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

// Partial results of a launch; longer prompts take several.
constexpr int64_t kMostPartial = int64_t{128} << 20;  // floats
// Blocks of a launch in its second and third dimension.
constexpr int kMostTiles = 65535;

// What a launch of the attention kernel needs to know of a group's positions.
void add_group(const RowGroup& group, const AttentionLayer& layer, Attention& attention) {
  const int per_key_head = layer.heads / layer.kv_heads;
  const int window = layer.window;
  const auto queries = static_cast<int>(group.rows) * per_key_head;
  attention.query_tiles += (queries + kQueryTile - 1) / kQueryTile;
  attention.row_count += group.rows;
  for (int row = 0; row < group.rows; ++row) {
    attention.most_chunks =
        std::max(attention.most_chunks, chunks_seen(window, group.first_position + row));
  }
  for (int first = 0; first < queries; first += kQueryTile) {
    const int last = std::min(first + kQueryTile, queries) - 1;
    const int lowest = lowest_position(window, group.first_position + first / per_key_head);
    const int chunks =
        chunk_of(window, group.first_position + last / per_key_head) - chunk_of(window, lowest) + 1;
    attention.most_tile_chunks = std::max(attention.most_tile_chunks, chunks);
  }
}

int64_t partial_size(const Attention& attention) {
  return attention.row_count * attention.heads * attention.most_chunks *
         (attention.cache.head_dim + 2);
}

// Launches for as many groups at a time as the partial results have room.
void attend_in_parts(Machine& machine, const CudaState& state, const AttentionLayer& layer,
                     const Attention& common) {
  const std::span<const RowGroup> groups = state.host_groups();
  std::vector<Attention> parts;
  int64_t most = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    Attention longer = parts.empty() ? common : parts.back();
    if (!parts.empty()) add_group(groups[g], layer, longer);
    if (parts.empty() || partial_size(longer) > kMostPartial || longer.query_tiles > kMostTiles) {
      parts.push_back(common);
      parts.back().groups = state.groups() + g;
      parts.back().first_row = groups[g].first_row;
      add_group(groups[g], layer, parts.back());
    } else {
      parts.back() = longer;
    }
    most = std::max(most, partial_size(parts.back()));
  }
  auto* partial = machine.device.scratch_of<float>(most);
  for (Attention& part : parts) {
    part.partial = partial;
    attend(machine.stream(), part);
  }
}

}  // namespace

void attention_half(Machine& machine, CudaState& state, const AttentionLayer& layer) {
  CHECK(layer.heads > 0 && layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0);
  CHECK(layer.rope != nullptr);
  CHECK(2 * layer.rope->inverse_frequencies.size() <= static_cast<size_t>(layer.head_dim));
  const CacheView cache = state.cache(layer);
  const int64_t rows = state.rows();
  if (rows == 0) return;
  const int64_t hidden = state.shape().hidden;
  const int64_t q_size = int64_t{layer.heads} * layer.head_dim;
  const int64_t kv_size = int64_t{layer.kv_heads} * layer.head_dim;
  const int64_t gate_size = layer.gate == Gate::kPerHead ? layer.heads : q_size;
  Device& device = machine.device;
  device.scratch.clear();
  auto* normed = device.scratch_of<Bits16>(rows * padded(hidden));
  auto* q = device.scratch_of<float>(rows * q_size);
  auto* k = device.scratch_of<float>(rows * kv_size);
  auto* v = device.scratch_of<float>(rows * kv_size);
  auto* gate = device.scratch_of<float>(rows * gate_size);
  auto* q_bits = device.scratch_of<Bits16>(rows * q_size);
  auto* out = device.scratch_of<Bits16>(rows * padded(q_size));

  norm_rows(machine.stream(),
            {.x = state.residual(),
             .x_stride = hidden,
             .weight = vector_of(layer.input_norm, hidden),
             .n = hidden,
             .epsilon = layer.norm_epsilon,
             .out = normed,
             .out_stride = padded(hidden),
             .zero_to = padded(hidden)},
            rows);
  const Product products[] = {
      {.matrix = view_of(layer.q.get(), q_size, hidden), .y = q, .y_stride = q_size},
      {.matrix = view_of(layer.k.get(), kv_size, hidden), .y = k, .y_stride = kv_size},
      {.matrix = view_of(layer.v.get(), kv_size, hidden), .y = v, .y_stride = kv_size},
      {.matrix = view_of(layer.g.get(), gate_size, hidden), .y = gate, .y_stride = gate_size}};
  multiply(machine.stream(), products, 4, normed, rows);
  rotate_and_store(machine.stream(),
                   {.q = q,
                    .k = k,
                    .v = v,
                    .q_norm = vector_of(layer.q_norm, layer.head_dim),
                    .k_norm = vector_of(layer.k_norm, layer.head_dim),
                    .rotations = state.rotations(*layer.rope),
                    .heads = layer.heads,
                    .pairs = static_cast<int>(layer.rope->inverse_frequencies.size()),
                    .epsilon = layer.norm_epsilon,
                    .q_out = q_bits,
                    .cache = cache,
                    .rows = state.rows_view()});
  Attention attention;
  attention.q = q_bits;
  attention.cache = cache;
  attention.rows = state.rows_view();
  attention.heads = layer.heads;
  attention.gate = gate;
  attention.gate_per_head = layer.gate == Gate::kPerHead;
  attention.out = out;
  attend_in_parts(machine, state, layer, attention);
  const Product o = {.matrix = view_of(layer.o.get(), hidden, q_size),
                     .y = state.residual(),
                     .y_stride = hidden,
                     .add = true};
  multiply(machine.stream(), &o, 1, out, rows);
}

}  // namespace lagoon::kernels::cuda
