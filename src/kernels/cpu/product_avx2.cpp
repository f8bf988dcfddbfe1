// Products with AVX2 and FMA. This file is compiled for them: nothing inline that other files use
// may come into it, or the linker could choose its copy for all processors.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {
namespace {

// As in product_portable.cpp. The tables are those of layout.h.
struct Avx2 {
  static constexpr int64_t kLanes = 8;
  // 16 registers: 12 sums, two vectors of weights, one value of x. The chains of kNVFP4 are short,
  // so that there are several under way, and its tables take registers.
  static constexpr int kFewRows = 6;
  static constexpr int kDecodedRows = 6;
  static constexpr int panels_with(Format /*format*/, int rows) {
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  }

  using Floats = __m256;
  using Pairs = __m256i;
  using Bytes = __m256i;

  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats from) { _mm256_storeu_ps(to, from); }
  static Floats broadcast(float x) { return _mm256_set1_ps(x); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }

  static Pairs load_pairs(const std::byte* from) { return load_bytes(from); }
  static Floats low_halves(Pairs from) { return _mm256_castsi256_ps(_mm256_slli_epi32(from, 16)); }
  static Floats high_halves(Pairs from) {
    return _mm256_castsi256_ps(_mm256_and_si256(from, _mm256_set1_epi32(-65536)));
  }

  static Bytes load_bytes(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Bytes low_nibbles(Bytes from) { return _mm256_and_si256(from, _mm256_set1_epi8(15)); }
  static Bytes high_nibbles(Bytes from) { return low_nibbles(_mm256_srli_epi16(from, 4)); }
  static Pairs interleave_low(Bytes low, Bytes high) { return _mm256_unpacklo_epi8(low, high); }
  static Pairs interleave_high(Bytes low, Bytes high) { return _mm256_unpackhi_epi8(low, high); }
  static void e2m1_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    upper = _mm256_shuffle_epi8(table(kE2M1Upper), codes);
    lower = _mm256_shuffle_epi8(table(kE2M1Lower), codes);
  }
  static void e4m3_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    const Bytes magnitude = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    const Bytes subnormal = _mm256_cmpgt_epi8(_mm256_set1_epi8(8), magnitude);
    const Bytes biased = _mm256_add_epi8(high_nibbles(magnitude), _mm256_set1_epi8(kE4M3UpperBias));
    const Bytes shifted =
        _mm256_andnot_si256(_mm256_set1_epi8(15), _mm256_slli_epi16(magnitude, 4));
    const Bytes sign = _mm256_andnot_si256(_mm256_set1_epi8(0x7f), codes);
    upper = _mm256_or_si256(
        sign, _mm256_blendv_epi8(biased, _mm256_shuffle_epi8(table(kE4M3SubnormalUpper), magnitude),
                                 subnormal));
    lower = _mm256_blendv_epi8(shifted, _mm256_shuffle_epi8(table(kE4M3SubnormalLower), magnitude),
                               subnormal);
  }
  static Floats scales(const std::byte* from) {
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(bytes, 20),
                                                _mm256_set1_epi32(static_cast<int>(kScaleBits))));
  }

 private:
  static Bytes table(const uint8_t (&bytes)[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
};

}  // namespace

void product_avx2(const Product& product) {
  multiply_floats<Avx2>(product);
}

}  // namespace lagoon::kernels::cpu
