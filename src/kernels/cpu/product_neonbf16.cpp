// Products with the BF16 dot products of Armv8.6. As in product_avx2.cpp: nothing inline that other
// files use.
#include "kernels/cpu/neon.inl"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {
namespace {

struct NeonBf16 : Neon {
  // sums + (x_low * w_low + x_high * w_high).
  static Floats add_dot(Floats sums, Pairs weights, Pairs x) {
    return vbfdotq_f32(sums, vreinterpretq_bf16_u32(weights), vreinterpretq_bf16_u32(x));
  }
  static Pairs broadcast_pair(uint32_t pair) { return vdupq_n_u32(pair); }
  static void store_pairs(uint32_t* to, Pairs from) { vst1q_u32(to, from); }
};

}  // namespace

void product_neonbf16(const Product& product) {
  multiply_dots<NeonBf16>(product);
}

bool pairs_neonbf16(const float* x, int64_t pairs, uint32_t* to) {
  const auto* bits = reinterpret_cast<const uint32_t*>(x);
  uint32x4_t all = vdupq_n_u32(0);
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const uint32x4_t first = vld1q_u32(bits + 2 * i);
    const uint32x4_t second = vld1q_u32(bits + 2 * i + 4);
    all = vorrq_u32(all, vorrq_u32(first, second));
    vst1q_u32(to + i, vreinterpretq_u32_u16(
                          vuzp2q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(second))));
  }
  uint32_t rest = vmaxvq_u32(vandq_u32(all, vdupq_n_u32(0xffff)));
  for (; i < pairs; ++i) {
    rest |= (bits[2 * i] | bits[2 * i + 1]) & 0xffffu;
    to[i] = bits[2 * i] >> 16 | (bits[2 * i + 1] & 0xffff0000u);
  }
  return rest == 0;
}

}  // namespace lagoon::kernels::cpu
