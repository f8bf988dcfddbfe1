// The primitives of products with NEON.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/layout.h"

namespace lagoon::kernels::cpu {
namespace {

// As in product_portable.cpp. The tables are those of layout.h.
struct Neon {
  static constexpr int64_t kLanes = 4;
  // 32 registers: 24 sums, four vectors of weights, one value of x.
  static constexpr int kFewRows = 6;
  static constexpr int kDecodedRows = 6;
  static constexpr int panels_with(Format /*format*/, int rows) {
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  }

  using Floats = float32x4_t;
  using Pairs = uint32x4_t;
  using Bytes = uint8x16_t;

  static Floats load(const float* from) { return vld1q_f32(from); }
  static void store(float* to, Floats from) { vst1q_f32(to, from); }
  static Floats broadcast(float x) { return vdupq_n_f32(x); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static Floats divide(Floats a, Floats b) { return vdivq_f32(a, b); }

  static Pairs load_pairs(const std::byte* from) { return vreinterpretq_u32_u8(load_bytes(from)); }
  static Floats low_halves(Pairs from) { return vreinterpretq_f32_u32(vshlq_n_u32(from, 16)); }
  static Floats high_halves(Pairs from) {
    return vreinterpretq_f32_u32(vandq_u32(from, vdupq_n_u32(0xffff0000u)));
  }

  static Bytes load_bytes(const std::byte* from) {
    return vld1q_u8(reinterpret_cast<const uint8_t*>(from));
  }
  static Bytes low_nibbles(Bytes from) { return vandq_u8(from, vdupq_n_u8(15)); }
  static Bytes high_nibbles(Bytes from) { return vshrq_n_u8(from, 4); }
  static Pairs interleave_low(Bytes low, Bytes high) {
    return vreinterpretq_u32_u8(vzip1q_u8(low, high));
  }
  static Pairs interleave_high(Bytes low, Bytes high) {
    return vreinterpretq_u32_u8(vzip2q_u8(low, high));
  }
  static void e2m1_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    upper = vqtbl1q_u8(vld1q_u8(kE2M1Upper), codes);
    lower = vqtbl1q_u8(vld1q_u8(kE2M1Lower), codes);
  }
  static void e4m3_bytes(Bytes codes, Bytes& upper, Bytes& lower) {
    const Bytes magnitude = vandq_u8(codes, vdupq_n_u8(0x7f));
    const Bytes subnormal = vcltq_u8(magnitude, vdupq_n_u8(8));
    const Bytes sign = vandq_u8(codes, vdupq_n_u8(0x80));
    const Bytes biased = vaddq_u8(vshrq_n_u8(magnitude, 4), vdupq_n_u8(kE4M3UpperBias));
    upper = vorrq_u8(
        sign, vbslq_u8(subnormal, vqtbl1q_u8(vld1q_u8(kE4M3SubnormalUpper), magnitude), biased));
    lower = vbslq_u8(subnormal, vqtbl1q_u8(vld1q_u8(kE4M3SubnormalLower), magnitude),
                     vshlq_n_u8(magnitude, 4));
  }
  static Floats scales(const std::byte* from) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(from);
    const uint32x4_t four = {bytes[0], bytes[1], bytes[2], bytes[3]};
    return vreinterpretq_f32_u32(vaddq_u32(vshlq_n_u32(four, 20), vdupq_n_u32(kScaleBits)));
  }
};

}  // namespace
}  // namespace lagoon::kernels::cpu
