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

// Rows that are taken together: keys and values are read and decoded once for them. A query is a
// head of a row; query i is head i % kHeads of row i / kHeads.
template <int kHeads>
constexpr int kRowsTogether = kHeads <= 2 || kLanes == 16 ? 2 : 1;

// A query's place in q and out.
template <int kHeads>
LAGOON_INLINE int64_t place_of(const Attention& a, int query) {
  return query / kHeads * a.row_stride + query % kHeads * a.dim;
}

// q . k of kRows * kHeads queries and the positions of kTiles tiles, in one pass over the
// dimensions.
template <Element kElement, int kHeads, int kRows, int kTiles>
LAGOON_INLINE void multiply_keys(const Attention& a, const float* q, const std::byte* const* keys,
                                 float* scores) {
  constexpr int kQueries = kRows * kHeads;
  constexpr int kPack = pack_of(kElement);
  constexpr int kBytes = 4 * kLanes;
  Parts sums[kQueries][kTiles] = {};
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
          for (int i = 0; i < kQueries; ++i) {
            const Floats value = broadcast(q[place_of<kHeads>(a, i) + d + kIndex]);
            sums[i][t].v[v] = multiply_add(key, value, sums[i][t].v[v]);
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
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        store(scores + i * kBlockPositions + t * kTilePositions + v * kLanes,
              sums[i][t].v[v] * a.scale);
      }
    }
  }
}

// out_i = out_i * factors[i] + sum_p weights_ip v_p over positions [begin, end) of the block, in
// order, for kDims vectors of dimensions from `dim` and kRows * kHeads queries i.
template <Element kElement, int kHeads, int kRows, int kDims>
LAGOON_INLINE void add_values(const Attention& a, const Tiles& tiles, int begin, int end,
                              const float* weights, const float* factors, int64_t dim, float* out) {
  constexpr int kQueries = kRows * kHeads;
  constexpr int kPack = pack_of(kElement);
  Floats sums[kQueries][kDims];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kDims; ++i) {
      sums[q][i] = load(out + place_of<kHeads>(a, q) + dim + i * kLanes) * factors[q];
    }
  }
  // Those of the positions that fill a word which are in [first, last).
  const auto add_group = [&](int group, int first, int last) __attribute__((always_inline)) {
    constexpr int kGroups = kTilePositions / kPack;  // of a tile
    const std::byte* values =
        tiles.values[group / kGroups] + ((group % kGroups) * a.dim + dim) * int64_t{4};
    const auto add_position = [&]<int kIndex>() __attribute__((always_inline)) {
      if (kIndex < first || kIndex >= last) return;
      Floats weight[kQueries];
      for (int q = 0; q < kQueries; ++q) {
        weight[q] = broadcast(weights[q * kBlockPositions + int64_t{group} * kPack + kIndex]);
      }
      for (int i = 0; i < kDims; ++i) {
        const Floats value = element_of<kElement, kIndex>(load_words(values + i * kLanes * 4));
        for (int q = 0; q < kQueries; ++q) {
          sums[q][i] = multiply_add(value, weight[q], sums[q][i]);
        }
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
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kDims; ++i) {
      store(out + place_of<kHeads>(a, q) + dim + i * kLanes, sums[q][i]);
    }
  }
}

// What is kept of a row between blocks.
struct RowState {
  float largest[kMaxAttentionHeads];
  float sums[kMaxAttentionHeads][kParts];
};

// Positions [begin, end) of a block, counted from its first.
struct Positions {
  int begin = 0;
  int end = 0;
};

// The same for all dimensions.
template <Element kElement, int kHeads, int kRows>
LAGOON_INLINE void add_all_values(const Attention& a, const Tiles& tiles, Positions seen,
                                  const float* weights, const float* factors, float* out) {
  if (seen.begin >= seen.end) return;
  constexpr int kInRegisters = kLanes == 16 ? 4 : 3;  // queries with all dimension vectors
  constexpr int64_t kDims = kHeads * kRows <= kInRegisters ? kDimVectors : kDimVectors / 2;
  int64_t dim = 0;
  for (; dim + kDims * kLanes <= a.dim; dim += kDims * kLanes) {
    add_values<kElement, kHeads, kRows, kDims>(a, tiles, seen.begin, seen.end, weights, factors,
                                               dim, out);
  }
  for (; dim < a.dim; dim += kLanes) {
    add_values<kElement, kHeads, kRows, 1>(a, tiles, seen.begin, seen.end, weights, factors, dim,
                                           out);
  }
}

// Scores of a row's heads become weights, e to the power of their difference to the largest so far;
// `factors` is what that makes of what was summed before.
template <int kHeads>
LAGOON_INLINE void weigh(Positions seen, float* weights, RowState& state, float* factors) {
  const int first = seen.begin / kTilePositions * kTilePositions;
  const int last = (seen.end + kTilePositions - 1) / kTilePositions * kTilePositions;
  constexpr float kUnseen = -__builtin_inff();
  float differences[kMaxAttentionHeads < kLanes ? kLanes : kMaxAttentionHeads] = {};
  for (int h = 0; h < kHeads; ++h) {
    float* row = weights + h * kBlockPositions;
    for (int p = first; p < seen.begin; ++p) row[p] = kUnseen;
    for (int p = seen.end; p < last; ++p) row[p] = kUnseen;
    Floats largest = broadcast(kUnseen);
    for (int p = first; p < last; p += kLanes) largest = larger(largest, load(row + p));
    float lanes[kLanes];
    store(lanes, largest);
    float of_row = state.largest[h];
    for (const float lane : lanes) of_row = of_row > lane ? of_row : lane;
    differences[h] = state.largest[h] - of_row;
    state.largest[h] = of_row;
  }
  float all[kLanes];
  store(all, exponential(load(differences)));
  for (int h = 0; h < kHeads; ++h) {
    factors[h] = all[h];
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
}

// kRows rows that follow each other and the positions of a block that each sees, at least one.
template <Element kElement, int kHeads, int kRows>
void attend_block(const Attention& a, const float* q, const Tiles& tiles, const Positions* seen,
                  RowState* states, float* out) {
  alignas(64) float weights[int64_t{kRows} * kHeads * kBlockPositions];
  float factors[kRows * kHeads];
  // A window begins and ends one position later for every row.
  const int first_tile = seen[0].begin / kTilePositions;
  const int end_tile = (seen[kRows - 1].end + kTilePositions - 1) / kTilePositions;
  constexpr int kTilesAtOnce = kLanes == 16 || kHeads * kRows <= 2 ? 2 : 1;
  int tile = first_tile;
  for (; tile + kTilesAtOnce <= end_tile; tile += kTilesAtOnce) {
    multiply_keys<kElement, kHeads, kRows, kTilesAtOnce>(a, q, tiles.keys + tile,
                                                         weights + tile * kTilePositions);
  }
  for (; tile < end_tile; ++tile) {
    multiply_keys<kElement, kHeads, kRows, 1>(a, q, tiles.keys + tile,
                                              weights + tile * kTilePositions);
  }
  for (int r = 0; r < kRows; ++r) {
    weigh<kHeads>(seen[r], weights + int64_t{r} * kHeads * kBlockPositions, states[r],
                  factors + r * kHeads);
  }
  if constexpr (kRows == 1) {
    add_all_values<kElement, kHeads, 1>(a, tiles, seen[0], weights, factors, out);
  } else {
    static_assert(kRows == 2);
    // What the first row alone sees, what both see, what the second alone sees: in order of
    // position for each of them.
    const Positions both = {seen[1].begin, seen[0].end};
    const float* second_weights = weights + kHeads * kBlockPositions;
    if (both.begin >= both.end) {
      add_all_values<kElement, kHeads, 1>(a, tiles, seen[0], weights, factors, out);
      add_all_values<kElement, kHeads, 1>(a, tiles, seen[1], second_weights, factors + kHeads,
                                          out + a.row_stride);
      return;
    }
    if (seen[0].begin < both.begin) {
      add_all_values<kElement, kHeads, 1>(a, tiles, {seen[0].begin, both.begin}, weights, factors,
                                          out);
      for (int h = 0; h < kHeads; ++h) factors[h] = 1;
    }
    add_all_values<kElement, kHeads, 2>(a, tiles, both, weights, factors, out);
    for (int h = 0; h < kHeads; ++h) factors[kHeads + h] = 1;
    add_all_values<kElement, kHeads, 1>(a, tiles, {both.end, seen[1].end}, second_weights,
                                        factors + kHeads, out + a.row_stride);
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
    const auto seen_by = [&](int r) -> Positions {
      const int64_t position = a.position + r;
      const int64_t from = lowest_of(position) - block;
      const int64_t to = position + 1 - block;
      return {static_cast<int>(from < 0                 ? 0
                               : from < kBlockPositions ? from
                                                        : kBlockPositions),
              static_cast<int>(to < 0                 ? 0
                               : to < kBlockPositions ? to
                                                      : kBlockPositions)};
    };
    for (int r = 0; r < a.rows;) {
      const Positions seen[] = {seen_by(r), seen_by(r + 1)};
      const float* q = a.q + r * a.row_stride;
      float* out = a.out + r * a.row_stride;
      const auto any = [&](int i) { return seen[i].begin < seen[i].end; };
      if constexpr (kRowsTogether<kHeads> == 2) {
        if (r + 1 < a.rows && any(0) && any(1)) {
          attend_block<kElement, kHeads, 2>(a, q, tiles, seen, states + r, out);
          r += 2;
          continue;
        }
      }
      if (any(0)) attend_block<kElement, kHeads, 1>(a, q, tiles, seen, states + r, out);
      ++r;
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

#define LAGOON_VECTORS                 \
  {.rms_norm = rms_norm,               \
   .norm_and_rotate = norm_and_rotate, \
   .swiglu = swiglu,                   \
   .softplus = softplus,               \
   .sigmoid = sigmoid,                 \
   .scale = scale,                     \
   .scale_each = scale_each,           \
   .add_scaled = add_scaled,           \
   .add = add,                         \
   .argmax = argmax,                   \
   .exponentials = exponentials,       \
   .attend = attend}

}  // namespace lagoon::kernels::cpu
