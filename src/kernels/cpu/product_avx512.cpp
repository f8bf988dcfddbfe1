// Products with AVX-512. As in product_avx2.cpp: nothing inline that other files use.
#include "kernels/cpu/avx512.inl"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {

void product_avx512(const Product& product) {
  multiply_floats<Avx512>(product);
}

}  // namespace lagoon::kernels::cpu
