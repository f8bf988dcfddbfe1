// Products with the BF16 dot products of AVX-512. As in product_avx2.cpp: nothing inline that other
// files use.
#include "kernels/cpu/avx512.inl"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {
namespace {

struct Avx512Bf16 : Avx512 {
  // sums + x_low * w_low + x_high * w_high; BF16 subnormals count as zeros.
  static Floats add_dot(Floats sums, Pairs weights, Pairs x) {
    return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(weights),
                            reinterpret_cast<__m512bh>(x));
  }
  static Pairs broadcast_pair(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
  static void store_pairs(uint32_t* to, Pairs from) { _mm512_storeu_si512(to, from); }
};

}  // namespace

void product_avx512bf16(const Product& product) {
  multiply_dots<Avx512Bf16>(product);
}

}  // namespace lagoon::kernels::cpu
