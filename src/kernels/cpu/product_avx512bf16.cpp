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

bool pairs_avx512bf16(const float* x, int64_t pairs, uint32_t* to) {
  // The upper halves of two vectors of FP32 numbers, in order.
  alignas(64) int16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = static_cast<int16_t>(2 * i + 1);
  const __m512i upper = _mm512_load_si512(order);
  __m512i all = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 16 <= pairs; i += 16) {
    const __m512i first = _mm512_loadu_si512(x + 2 * i);
    const __m512i second = _mm512_loadu_si512(x + 2 * i + 16);
    all = _mm512_or_si512(all, _mm512_or_si512(first, second));
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(first, upper, second));
  }
  if (i < pairs) {
    const int64_t left = 2 * (pairs - i);
    const auto mask = static_cast<uint32_t>((uint64_t{1} << left) - 1);
    const __m512i first = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), x + 2 * i);
    const __m512i second =
        _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask >> 16), x + 2 * i + 16);
    all = _mm512_or_si512(all, _mm512_or_si512(first, second));
    _mm512_mask_storeu_epi32(to + i, static_cast<__mmask16>((1u << (left / 2)) - 1),
                             _mm512_permutex2var_epi16(first, upper, second));
  }
  return _mm512_test_epi32_mask(all, _mm512_set1_epi32(0xffff)) == 0;
}

}  // namespace lagoon::kernels::cpu
