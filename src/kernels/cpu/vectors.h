// What the CPU backend does besides products, written once (vectors.inl, attend.inl) and compiled
// for every instruction set. All sets give the same bits: sums have an order that does not depend
// on the width of a register, and every multiply-add rounds once.
//
// e^x is within 2 units in the last place of FP32, 0 below -87.33 and largest at 88.37; a NaN stays
// a NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// How keys and values lie in a cache: in tiles of 16 consecutive positions, the first a multiple of
// 16, per kv head. `pack` elements that are read together fill 32 bits (FP8: 4, BF16: 2, FP32: 1).
//   keys    [dim / pack][16 positions][pack]
//   values  [16 positions / pack][dim][pack]
// so that a vector holds the same dimensions of several positions, or several dimensions of the
// same positions. `dim` is head_dim rounded up to 16; what is beyond is zero.
inline constexpr int64_t kTilePositions = 16;
inline constexpr int64_t kDimMultiple = 16;

enum class Element { kFloat32, kBFloat16, kFP8 };
constexpr int pack_of(Element element) {
  return element == Element::kFP8 ? 4 : element == Element::kBFloat16 ? 2 : 1;
}
constexpr int64_t bytes_of(Element element) {
  return 4 / pack_of(element);
}

// Tiles that follow each other in a cache.
struct TileRun {
  int64_t position = 0;  // the first, a multiple of kTilePositions
  int64_t tiles = 0;
  int64_t index = 0;  // of the first tile in the cache
};

// Attention of some heads, which share a kv head, for rows at consecutive positions of a sequence.
// For each row and head:
//   out = scale_out * sum_p e_p v_p / sum_p e_p,  e_p = exp(s_p - max s),  s_p = scale * q . k_p
// over positions max(0, p - window + 1) .. p (window 0: all up to p). The positions are taken in
// blocks of 64, the first a multiple of 64, with a running maximum: within a block, q . k is one
// chain of multiply-adds by dimension; the sum of e is kept in 16 parts by position; each dimension
// of out is one chain by position.
struct Attention {
  Element element = Element::kBFloat16;
  int64_t dim = 0;                  // padded
  const std::byte* keys = nullptr;  // of tile 0 and the kv head
  const std::byte* values = nullptr;
  int64_t tile_stride = 0;        // bytes between tiles of a kv head
  const TileRun* runs = nullptr;  // in order of position; they cover what the rows see
  int window = 0;
  int64_t position = 0;  // of the first row
  int rows = 0;
  int heads = 0;  // at most kMaxAttentionHeads
  float scale = 1;
  float scale_out = 1;
  const float* q = nullptr;  // row r, head h at r * row_stride + h * dim, padded with zeros
  float* out = nullptr;      // the same
  int64_t row_stride = 0;
};
inline constexpr int kMaxAttentionHeads = 4;

struct Vectors {
  // As the functions of ref/elementwise.h; `round` to BF16.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float epsilon, bool round,
                   float* out);
  // cosines and sines [pairs], attention_factor included.
  void (*norm_and_rotate)(const float* head, const float* weight, int64_t n, float epsilon,
                          const float* cosines, const float* sines, int64_t pairs, bool round,
                          float* out);
  void (*swiglu)(float* gate_and_out, const float* up, int64_t n, bool round);
  void (*softplus)(const float* x, int64_t n, float* out);
  void (*sigmoid)(const float* x, int64_t n, float* out);
  // x_i *= factor, x_i *= factors_i.
  void (*scale)(float* x, float factor, int64_t n, bool round);
  void (*scale_each)(float* x, const float* factors, int64_t n, bool round);
  // out_i = fma(factor, x_i, out_i); out_i += x_i.
  void (*add_scaled)(float* out, float factor, const float* x, int64_t n);
  void (*add)(float* out, const float* x, int64_t n);
  // The first of the largest; a NaN counts as -infinity, and all -infinity gives 0.
  int64_t (*argmax)(const float* x, int64_t n);
  void (*exponentials)(const float* x, int64_t n, float* out);  // for tests
  // Scratch: attention_scratch() floats.
  void (*attend)(const Attention& attention, float* scratch);
};

// Those of the selected instruction set (kernels/cpu/instruction_set.h).
const Vectors& vectors();

// Floats that attend() needs.
int64_t attention_scratch(int rows);

extern const Vectors kPortableVectors;
#if defined(__x86_64__)
extern const Vectors kAvx2Vectors;
extern const Vectors kAvx512Vectors;
#elif defined(__aarch64__)
extern const Vectors kNeonVectors;
#endif

}  // namespace lagoon::kernels::cpu
