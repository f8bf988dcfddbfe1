// The functions of vectors.h with AVX-512.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vectors.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(4 * kLanes)));
// Vectors of dimensions whose sums attention keeps in registers for up to three heads.
constexpr int kDimVectors = 4;

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}

}  // namespace
}  // namespace lagoon::kernels::cpu

// clang-format off: in this order
#include "kernels/cpu/vectors.inl"
#include "kernels/cpu/attend.inl"
// clang-format on

namespace lagoon::kernels::cpu {

const Vectors kAvx512Vectors = LAGOON_VECTORS;

}  // namespace lagoon::kernels::cpu
