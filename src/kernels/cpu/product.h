// What the dispatcher (matrix.cpp) hands to the kernels, of which each instruction set has one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// Y = X W^T for panels [panel_begin, panel_end), as multiply() in matrix.h says.
struct Product {
  Format format = Format::kBFloat16;
  const std::byte* data = nullptr;  // [panels, panel_bytes], kernels/cpu/layout.h
  int64_t panel_bytes = 0;
  const float* block_scales = nullptr;  // [panels, blocks of columns], or all are 1
  float divisor = 1;
  int64_t rows = 0;     // outputs; those of the last panel may be fewer than 16
  int64_t columns = 0;  // of W and X
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int m = 0;
  // The rows' columns from the start of the last block, [m, kBlockColumns], with zeros behind;
  // where columns is not a multiple of 16.
  const float* x_tail = nullptr;
  // BF16 kernels: rows of x as pairs, [m, pairs_stride], with zeros up to a multiple of 16 columns.
  const uint32_t* x_pairs = nullptr;
  int64_t pairs_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

using ProductKernel = void (*)(const Product& product);

// `to` = the BF16 numbers of 2 * pairs values of x, two in 32 bits; false if BF16 cannot hold one.
using PairsKernel = bool (*)(const float* x, int64_t pairs, uint32_t* to);

void product_portable(const Product& product);
#if defined(__x86_64__)
void product_avx2(const Product& product);
void product_avx512(const Product& product);
void product_avx512bf16(const Product& product);
bool pairs_avx512bf16(const float* x, int64_t pairs, uint32_t* to);
#elif defined(__aarch64__)
void product_neon(const Product& product);
void product_neonbf16(const Product& product);
bool pairs_neonbf16(const float* x, int64_t pairs, uint32_t* to);
#endif

}  // namespace lagoon::kernels::cpu
