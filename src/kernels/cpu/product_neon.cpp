// Products with NEON, which every aarch64 processor has.
#include "kernels/cpu/neon.inl"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {

void product_neon(const Product& product) {
  multiply_floats<Neon>(product);
}

}  // namespace lagoon::kernels::cpu
