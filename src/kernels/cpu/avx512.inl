// The primitives of products with AVX-512, for the files that are compiled for
// it.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"

namespace lagoon::kernels::cpu {
namespace {

// As in product_portable.cpp. The tables are those of layout.h.
struct Avx512 {
  static constexpr int64_t kLanes = 16;
  // 32 registers, but only 16 for addresses: more rows would have theirs in
  // memory.
  static constexpr int kFewRows = 8;
  static constexpr int kDecodedRows = 12;
  // About eight chains under way; where there are more, compilers keep some in
  // memory.
  static constexpr int panels_with(Format format, int rows) {
    if (format == Format::kNVFP4) return rows <= 2 ? 4 : rows == 3 ? 2 : 1;
    if (rows == 1 && format != Format::kFP8) return 8;
    if (rows <= 4 && format == Format::kBFloat16) return 4;
    return rows <= 2 ? 4 : rows <= 5 ? 2 : 1;
  }

  using Floats = __m512;
  using Pairs = __m512i;
  using Bytes = __m512i;

  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats from) { _mm512_storeu_ps(to, from); }
  static Floats broadcast(float x) { return _mm512_set1_ps(x); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }

  static Pairs load_pairs(const std::byte* from) { return load_bytes(from); }
  static Floats low_halves(Pairs from) { return _mm512_castsi512_ps(_mm512_slli_epi32(from, 16)); }
  static Floats high_halves(Pairs from) {
    return _mm512_castsi512_ps(_mm512_and_si512(from, _mm512_set1_epi32(-65536)));
  }

  static Bytes load_bytes(const std::byte* from) { return _mm512_loadu_si512(from); }
  static Bytes low_nibbles(Bytes from) { return _mm512_and_si512(from, _mm512_set1_epi8(15)); }
  static Bytes high_nibbles(Bytes from) { return low_nibbles(_mm512_srli_epi16(from, 4)); }
  static Pairs interleave_low(Bytes low, Bytes high) { return _mm512_unpacklo_epi8(low, high); }
  static Pairs interleave_high(Bytes low, Bytes high) { return _mm512_unpackhi_epi8(low, high); }
  static void e2m1_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    upper = _mm512_shuffle_epi8(table(kE2M1Upper), codes);
    lower = _mm512_shuffle_epi8(table(kE2M1Lower), codes);
  }
  static void e4m3_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    const Bytes magnitude = _mm512_and_si512(codes, _mm512_set1_epi8(0x7f));
    const __mmask64 subnormal = _mm512_cmplt_epi8_mask(magnitude, _mm512_set1_epi8(8));
    const Bytes biased = _mm512_add_epi8(high_nibbles(magnitude), _mm512_set1_epi8(kE4M3UpperBias));
    const Bytes shifted =
        _mm512_andnot_si512(_mm512_set1_epi8(15), _mm512_slli_epi16(magnitude, 4));
    const Bytes sign = _mm512_andnot_si512(_mm512_set1_epi8(0x7f), codes);
    upper = _mm512_or_si512(
        sign, _mm512_mask_shuffle_epi8(biased, subnormal, table(kE4M3SubnormalUpper), magnitude));
    lower = _mm512_mask_shuffle_epi8(shifted, subnormal, table(kE4M3SubnormalLower), magnitude);
  }
  static Floats scales(const std::byte* from) {
    const __m512i bytes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(bytes, 20),
                                                _mm512_set1_epi32(static_cast<int>(kScaleBits))));
  }

 private:
  static Bytes table(const uint8_t (&bytes)[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
};

}  // namespace
}  // namespace lagoon::kernels::cpu
