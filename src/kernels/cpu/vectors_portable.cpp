// The functions of vectors.h in plain C++.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vectors.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kLanes = 4;
using Floats = float __attribute__((vector_size(4 * kLanes)));
// Vectors of dimensions whose sums attention keeps in registers for up to three heads.
constexpr int kDimVectors = 2;

inline Floats multiply_add(Floats a, Floats b, Floats c) {
  Floats sum;
  for (int i = 0; i < kLanes; ++i) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return sum;
}

}  // namespace
}  // namespace lagoon::kernels::cpu

// clang-format off: in this order
#include "kernels/cpu/vectors.inl"
#include "kernels/cpu/attend.inl"
// clang-format on

namespace lagoon::kernels::cpu {

const Vectors kPortableVectors = LAGOON_VECTORS;

}  // namespace lagoon::kernels::cpu
