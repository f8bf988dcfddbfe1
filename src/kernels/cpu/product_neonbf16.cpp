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

}  // namespace lagoon::kernels::cpu
