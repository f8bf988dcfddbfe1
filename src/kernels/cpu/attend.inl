// Attention of vectors.h, after vectors.inl.

namespace lagoon::kernels::cpu {
namespace {

constexpr int kBlockTiles = 4;
constexpr int64_t kBlockPositions = kBlockTiles * kTilePositions;

// Keys and values of a block of positions; tiles that no row sees are null.
struct Tiles {
  const std::byte* keys[kBlockTiles];
  const std::byte* values[kBlockTiles];
};

// q . k of kHeads heads and the positions of kTiles tiles, in one pass over the dimensions.
template <Element kElement, int kHeads, int kTiles>
LAGOON_INLINE void multiply_keys(const Attention& a, const float* q, const std::byte* const* keys,
                                 float* scores) {
  constexpr int kPack = pack_of(kElement);
  constexpr int kBytes = 4 * kLanes;
  Parts sums[kHeads][kTiles] = {};
  for (int64_t d = 0; d < a.dim; d += kPack) {
    Words words[kTiles][kVectors];
    for (int t = 0; t < kTiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        words[t][v] = load_words(keys[t] + (d / kPack * kVectors + v) * kBytes);
      }
    }
    const auto add_dimension = [&]<int kIndex>() __attribute__((always_inline)) {
      for (int t = 0; t < kTiles; ++t) {
        for (int v = 0; v < kVectors; ++v) {
          const Floats key = element_of<kElement, kIndex>(words[t][v]);
          for (int h = 0; h < kHeads; ++h) {
            const Floats value = broadcast(q[h * a.dim + d + kIndex]);
            sums[h][t].v[v] = multiply_add(key, value, sums[h][t].v[v]);
          }
        }
      }
    };
    add_dimension.template operator()<0>();
    if constexpr (kPack > 1) add_dimension.template operator()<1>();
    if constexpr (kPack > 2) {
      add_dimension.template operator()<2>();
      add_dimension.template operator()<3>();
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int t = 0; t < kTiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        store(scores + h * kBlockPositions + t * kTilePositions + v * kLanes,
              sums[h][t].v[v] * a.scale);
      }
    }
  }
}

// out_h = out_h * factors[h] + sum_p weights_hp v_p over positions [begin, end) of the block, in
// order, for kDims vectors of dimensions from `dim`.
template <Element kElement, int kHeads, int kDims>
LAGOON_INLINE void add_values(const Attention& a, const Tiles& tiles, int begin, int end,
                              const float* weights, const float* factors, int64_t dim, float* out) {
  constexpr int kPack = pack_of(kElement);
  Floats sums[kHeads][kDims];
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kDims; ++i) {
      sums[h][i] = load(out + h * a.dim + dim + i * kLanes) * factors[h];
    }
  }
  // Those of the positions that fill a word which are in [first, last).
  const auto add_group = [&](int group, int first, int last) __attribute__((always_inline)) {
    constexpr int kGroups = kTilePositions / kPack;  // of a tile
    const std::byte* values =
        tiles.values[group / kGroups] + ((group % kGroups) * a.dim + dim) * int64_t{4};
    const auto add_position = [&]<int kIndex>() __attribute__((always_inline)) {
      if (kIndex < first || kIndex >= last) return;
      Floats weight[kHeads];
      for (int h = 0; h < kHeads; ++h) {
        weight[h] = broadcast(weights[h * kBlockPositions + int64_t{group} * kPack + kIndex]);
      }
      for (int i = 0; i < kDims; ++i) {
        const Floats value =
            element_of<kElement, kIndex>(load_words(values + i * kLanes * 4));
        for (int h = 0; h < kHeads; ++h) sums[h][i] = multiply_add(value, weight[h], sums[h][i]);
      }
    };
    add_position.template operator()<0>();
    if constexpr (kPack > 1) add_position.template operator()<1>();
    if constexpr (kPack > 2) {
      add_position.template operator()<2>();
      add_position.template operator()<3>();
    }
  };
  int position = begin;
  if (position % kPack != 0) {
    const int group = position / kPack;
    const int last = end - group * kPack < kPack ? end - group * kPack : kPack;
    add_group(group, position % kPack, last);
    position = group * kPack + last;
  }
  for (; position + kPack <= end; position += kPack) add_group(position / kPack, 0, kPack);
  if (position < end) add_group(position / kPack, 0, end - position);
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kDims; ++i) store(out + h * a.dim + dim + i * kLanes, sums[h][i]);
  }
}

// What is kept of a row between blocks.
struct RowState {
  float largest[kMaxAttentionHeads];
  float sums[kMaxAttentionHeads][kParts];
};

// One row and the positions [begin, end) of a block, counted from its first.
template <Element kElement, int kHeads>
void attend_block(const Attention& a, const float* q, const Tiles& tiles, int begin, int end,
                  RowState& state, float* out) {
  alignas(64) float weights[kHeads * kBlockPositions];
  const int first_tile = begin / kTilePositions;
  const int end_tile = (end + kTilePositions - 1) / kTilePositions;
  constexpr int kTilesAtOnce = kHeads <= 2 ? 2 : 1;
  int tile = first_tile;
  for (; tile + kTilesAtOnce <= end_tile; tile += kTilesAtOnce) {
    multiply_keys<kElement, kHeads, kTilesAtOnce>(a, q, tiles.keys + tile,
                                                  weights + tile * kTilePositions);
  }
  for (; tile < end_tile; ++tile) {
    multiply_keys<kElement, kHeads, 1>(a, q, tiles.keys + tile, weights + tile * kTilePositions);
  }
  const int first = first_tile * kTilePositions;
  const int last = end_tile * kTilePositions;
  constexpr float kUnseen = -__builtin_inff();
  float differences[kMaxAttentionHeads < kLanes ? kLanes : kMaxAttentionHeads] = {};
  for (int h = 0; h < kHeads; ++h) {
    float* row = weights + h * kBlockPositions;
    for (int p = first; p < begin; ++p) row[p] = kUnseen;
    for (int p = end; p < last; ++p) row[p] = kUnseen;
    Floats largest = broadcast(kUnseen);
    for (int p = first; p < last; p += kLanes) largest = larger(largest, load(row + p));
    float lanes[kLanes];
    store(lanes, largest);
    float of_row = state.largest[h];
    for (const float lane : lanes) of_row = of_row > lane ? of_row : lane;
    differences[h] = state.largest[h] - of_row;
    state.largest[h] = of_row;
  }
  float factors[kLanes];
  store(factors, exponential(load(differences)));
  for (int h = 0; h < kHeads; ++h) {
    float* row = weights + h * kBlockPositions;
    Parts sums;
    for (int v = 0; v < kVectors; ++v) sums.v[v] = load(state.sums[h] + v * kLanes) * factors[h];
    for (int p = first; p < last; p += kTilePositions) {
      for (int v = 0; v < kVectors; ++v) {
        const Floats weight = exponential(load(row + p + v * kLanes) - state.largest[h]);
        store(row + p + v * kLanes, weight);
        sums.v[v] += weight;
      }
    }
    for (int v = 0; v < kVectors; ++v) store(state.sums[h] + v * kLanes, sums.v[v]);
  }
  constexpr int64_t kDims = kHeads <= 3 ? kDimVectors : kDimVectors / 2;
  int64_t dim = 0;
  for (; dim + kDims * kLanes <= a.dim; dim += kDims * kLanes) {
    add_values<kElement, kHeads, kDims>(a, tiles, begin, end, weights, factors, dim, out);
  }
  for (; dim < a.dim; dim += kLanes) {
    add_values<kElement, kHeads, 1>(a, tiles, begin, end, weights, factors, dim, out);
  }
}

template <Element kElement, int kHeads>
void attend_heads(const Attention& a, float* scratch) {
  auto* states = reinterpret_cast<RowState*>(scratch);
  for (int r = 0; r < a.rows; ++r) {
    for (int h = 0; h < kHeads; ++h) {
      states[r].largest[h] = -__builtin_inff();
      for (float& sum : states[r].sums[h]) sum = 0;
    }
    for (int64_t i = 0; i < kHeads * a.dim; ++i) a.out[r * a.row_stride + i] = 0;
  }
  const auto lowest_of = [&](int64_t position) {
    const int64_t lowest = a.window == 0 ? 0 : position - a.window + 1;
    return lowest < 0 ? int64_t{0} : lowest;
  };
  const int64_t end = a.position + a.rows;
  const int64_t lowest = lowest_of(a.position);
  const TileRun* run = a.runs;
  for (int64_t block = lowest / kBlockPositions * kBlockPositions; block < end;
       block += kBlockPositions) {
    Tiles tiles = {};
    for (int t = 0; t < kBlockTiles; ++t) {
      const int64_t position = block + t * kTilePositions;
      if (position + kTilePositions <= lowest || position >= end) continue;
      while (position >= run->position + run->tiles * kTilePositions) ++run;
      const int64_t index = run->index + (position - run->position) / kTilePositions;
      tiles.keys[t] = a.keys + index * a.tile_stride;
      tiles.values[t] = a.values + index * a.tile_stride;
    }
    for (int r = 0; r < a.rows; ++r) {
      const int64_t position = a.position + r;
      const int64_t seen = lowest_of(position);
      if (position < block || seen >= block + kBlockPositions) continue;
      const int64_t from = seen > block ? seen - block : 0;
      const int64_t to =
          position + 1 - block < kBlockPositions ? position + 1 - block : kBlockPositions;
      attend_block<kElement, kHeads>(a, a.q + r * a.row_stride, tiles, static_cast<int>(from),
                                     static_cast<int>(to), states[r], a.out + r * a.row_stride);
    }
  }
  for (int r = 0; r < a.rows; ++r) {
    for (int h = 0; h < kHeads; ++h) {
      Parts sums;
      for (int v = 0; v < kVectors; ++v) sums.v[v] = load(states[r].sums[h] + v * kLanes);
      float* out = a.out + r * a.row_stride + h * a.dim;
      scale(out, a.scale_out / sum_of(sums), a.dim, false);
    }
  }
}

template <Element kElement>
void attend_element(const Attention& a, float* scratch) {
  switch (a.heads) {
    case 1:
      return attend_heads<kElement, 1>(a, scratch);
    case 2:
      return attend_heads<kElement, 2>(a, scratch);
    case 3:
      return attend_heads<kElement, 3>(a, scratch);
    default:
      return attend_heads<kElement, 4>(a, scratch);
  }
}

void attend(const Attention& a, float* scratch) {
  switch (a.element) {
    case Element::kFloat32:
      return attend_element<Element::kFloat32>(a, scratch);
    case Element::kBFloat16:
      return attend_element<Element::kBFloat16>(a, scratch);
    case Element::kFP8:
      return attend_element<Element::kFP8>(a, scratch);
  }
}

}  // namespace

#define LAGOON_VECTORS                                                                       \
  {                                                                                          \
    .rms_norm = rms_norm, .norm_and_rotate = norm_and_rotate, .swiglu = swiglu,              \
    .softplus = softplus, .sigmoid = sigmoid, .scale = scale, .scale_each = scale_each,      \
    .add_scaled = add_scaled, .add = add, .argmax = argmax, .exponentials = exponentials,    \
    .attend = attend                                                                         \
  }

}  // namespace lagoon::kernels::cpu
