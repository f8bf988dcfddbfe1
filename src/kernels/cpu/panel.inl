// What the products (product.inl) are made of: vectors of a panel's outputs, the weights of a chunk
// decoded in order of columns, and a step of a sum with FP32 or with BF16 activations. Written in
// the primitives of an instruction set, which product_portable.cpp explains.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/product.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kChunkColumns = 8;  // decoded at a time

// A panel's outputs as vectors: of floats, of pairs of BF16 weights.
template <typename Isa>
struct PanelVectors {
  static constexpr int64_t kVectors = kPanelRows / Isa::kLanes;
  typename Isa::Floats v[kVectors];
};
template <typename Isa>
struct PanelPairs {
  static constexpr int64_t kVectors = kPanelRows / Isa::kLanes;
  typename Isa::Pairs v[kVectors];
};

template <typename Isa>
LAGOON_INLINE PanelVectors<Isa> all(float x) {
  PanelVectors<Isa> to;
  for (int v = 0; v < to.kVectors; ++v) to.v[v] = Isa::broadcast(x);
  return to;
}

template <typename Isa>
LAGOON_INLINE PanelVectors<Isa> load_panel(const float* from) {
  PanelVectors<Isa> to;
  for (int v = 0; v < to.kVectors; ++v) to.v[v] = Isa::load(from + v * Isa::kLanes);
  return to;
}

template <typename Isa>
LAGOON_INLINE void store_panel(float* to, const PanelVectors<Isa>& from) {
  for (int v = 0; v < from.kVectors; ++v) Isa::store(to + v * Isa::kLanes, from.v[v]);
}

// to = fma(a, b, to).
template <typename Isa>
LAGOON_INLINE void multiply_add(const PanelVectors<Isa>& a, const PanelVectors<Isa>& b,
                                PanelVectors<Isa>& to) {
  for (int v = 0; v < to.kVectors; ++v) to.v[v] = Isa::multiply_add(a.v[v], b.v[v], to.v[v]);
}

// A block of columns, as the loops over a panel meet it.
struct Block {
  int64_t index = 0;
  int64_t first = 0;    // column
  int64_t columns = 0;  // padded
  int64_t offset = 0;   // bytes from the start of the panel
};

template <Format kFormat, typename Visit>
LAGOON_INLINE void for_each_block(const Product& product, const Visit& visit) {
  Block block;
  for (; block.first < product.columns; ++block.index) {
    const int64_t rest = product.columns - block.first;
    block.columns = rest >= kBlockColumns ? kBlockColumns : round_up(rest, kGroupColumns);
    visit(block);
    block.first += kBlockColumns;
    block.offset += block_bytes(kFormat, kBlockColumns);
  }
}

// How a pair of columns is multiplied with FP32 activations: in two steps, one fused multiply-add
// each.
template <typename Isa>
struct FloatSteps {
  using X = float;  // what a step takes of a row
  static constexpr int64_t kSteps = 2;
  using Weights = PanelVectors<Isa>;  // of a step

  static LAGOON_INLINE Weights of(const PanelPairs<Isa>& pairs, int step) {
    Weights to;
    for (int v = 0; v < pairs.kVectors; ++v) {
      to.v[v] = step == 0 ? Isa::low_halves(pairs.v[v]) : Isa::high_halves(pairs.v[v]);
    }
    return to;
  }
  static LAGOON_INLINE Weights load(const float* from) { return load_panel<Isa>(from); }
  static LAGOON_INLINE void store(float* to, const Weights& from) { store_panel<Isa>(to, from); }
  static LAGOON_INLINE void add(const Weights& w, float x, PanelVectors<Isa>& sums) {
    multiply_add<Isa>(w, all<Isa>(x), sums);
  }
  // The columns of a block in row r of x.
  static LAGOON_INLINE const float* row(const Product& product, int64_t r, const Block& block) {
    if (product.x_tail != nullptr && block.first + block.columns > product.columns) {
      return product.x_tail + r * kBlockColumns;
    }
    return product.x + r * product.x_stride + block.first;
  }
};

// With BF16 activations: in one, a dot product of pairs.
template <typename Isa>
struct DotSteps {
  using X = uint32_t;
  static constexpr int64_t kSteps = 1;
  using Weights = PanelPairs<Isa>;

  static LAGOON_INLINE Weights of(const PanelPairs<Isa>& pairs, int /*step*/) { return pairs; }
  static LAGOON_INLINE Weights load(const uint32_t* from) {
    Weights to;
    for (int v = 0; v < to.kVectors; ++v) {
      to.v[v] = Isa::load_pairs(reinterpret_cast<const std::byte*>(from + v * Isa::kLanes));
    }
    return to;
  }
  static LAGOON_INLINE void store(uint32_t* to, const Weights& from) {
    for (int v = 0; v < from.kVectors; ++v) Isa::store_pairs(to + v * Isa::kLanes, from.v[v]);
  }
  static LAGOON_INLINE void add(const Weights& w, uint32_t x, PanelVectors<Isa>& sums) {
    for (int v = 0; v < w.kVectors; ++v) {
      sums.v[v] = Isa::add_dot(sums.v[v], w.v[v], Isa::broadcast_pair(x));
    }
  }
  static LAGOON_INLINE const uint32_t* row(const Product& product, int64_t r, const Block& block) {
    return product.x_pairs + r * product.pairs_stride + block.first / 2;
  }
};

// use(i, pairs) for the two pairs of columns whose BF16 numbers have these halves.
template <typename Isa, typename Use>
LAGOON_INLINE void use_halves(const typename Isa::Bytes* upper, const typename Isa::Bytes* lower,
                              int i, const Use& use) {
  PanelPairs<Isa> pairs;
  for (int v = 0; v < pairs.kVectors; ++v) pairs.v[v] = Isa::interleave_low(lower[v], upper[v]);
  use(i, pairs);
  for (int v = 0; v < pairs.kVectors; ++v) pairs.v[v] = Isa::interleave_high(lower[v], upper[v]);
  use(i + 1, pairs);
}

// use(i, BF16 weights of columns 2i and 2i + 1) for the 8 columns at `codes`, in order; of kFP8 and
// kNVFP4 the codes without their scales.
template <typename Isa, Format kFormat, typename Use>
LAGOON_INLINE void use_pairs(const std::byte* codes, const Use& use) {
  constexpr int64_t kVectors = PanelPairs<Isa>::kVectors;
  constexpr int64_t kBytes = 4 * Isa::kLanes;  // of a vector
  typename Isa::Bytes upper[kVectors];
  typename Isa::Bytes lower[kVectors];
  if constexpr (kFormat == Format::kBFloat16) {
    PanelPairs<Isa> pairs;
    for (int i = 0; i < kChunkColumns / 2; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        pairs.v[v] = Isa::load_pairs(codes + (i * kVectors + v) * kBytes);
      }
      use(i, pairs);
    }
  } else if constexpr (kFormat == Format::kFP8) {
    for (int i = 0; i < kChunkColumns / 2; i += 2) {
      for (int v = 0; v < kVectors; ++v) {
        Isa::e4m3_bytes(Isa::load_bytes(codes + (i / 2 * kVectors + v) * kBytes), upper[v],
                        lower[v]);
      }
      use_halves<Isa>(upper, lower, i, use);
    }
  } else {
    static_assert(kFormat == Format::kNVFP4);
    typename Isa::Bytes bytes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      bytes[v] = Isa::load_bytes(codes + v * kBytes);
      Isa::e2m1_bytes(Isa::low_nibbles(bytes[v]), upper[v], lower[v]);
    }
    use_halves<Isa>(upper, lower, 0, use);
    for (int v = 0; v < kVectors; ++v) {
      Isa::e2m1_bytes(Isa::high_nibbles(bytes[v]), upper[v], lower[v]);
    }
    use_halves<Isa>(upper, lower, 2, use);
  }
}

// use(i, weights of step i) for the steps of 8 columns.
template <typename Isa, typename Steps, Format kFormat, typename Use>
LAGOON_INLINE void use_chunk(const std::byte* codes, const Use& use) {
  if constexpr (kFormat == Format::kFloat32) {
    for (int k = 0; k < kChunkColumns; ++k) {
      use(k, Steps::load(reinterpret_cast<const float*>(codes) + k * kPanelRows));
    }
  } else {
    use_pairs<Isa, kFormat>(
        codes, [&](int i, const PanelPairs<Isa>& pairs) __attribute__((always_inline)) {
          for (int step = 0; step < Steps::kSteps; ++step) {
            use(i * Steps::kSteps + step, Steps::of(pairs, step));
          }
        });
  }
}

// The scales of a group of kNVFP4.
template <typename Isa>
LAGOON_INLINE PanelVectors<Isa> group_scales(const std::byte* from) {
  PanelVectors<Isa> scales;
  for (int v = 0; v < scales.kVectors; ++v) scales.v[v] = Isa::scales(from + v * Isa::kLanes);
  return scales;
}

}  // namespace
}  // namespace lagoon::kernels::cpu
