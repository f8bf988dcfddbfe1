// Small pieces that all kernels use. PTX as in NVIDIA's "Parallel Thread Execution ISA" manual.
#pragma once

#include <cstdint>

namespace lagoon::kernels::cuda {

__device__ inline float from_bits(uint32_t bf16) {
  return __uint_as_float(bf16 << 16);
}
// Round to nearest, ties to even; a NaN stays a NaN (numeric/dtype.h).
__device__ inline uint32_t to_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
// BF16 of both, `low` in the lower half.
__device__ inline uint32_t to_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Products of pairs of BF16, subnormals kept. An fma with -0, since sm_80 has no packed product.
__device__ inline uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(0x80008000u));
  return out;
}

// Both numbers of a times one of b: the lower one, or the upper. An instruction picks it by itself,
// if it is put in this way.
__device__ inline uint32_t multiply_by_one(uint32_t a, uint32_t b, bool upper) {
  uint32_t out;
  if (upper) {
    asm("{ .reg .b16 low, high; .reg .b32 both;\n\t"
        "mov.b32 {low, high}, %2; mov.b32 both, {high, high};\n\t"
        "fma.rn.bf16x2 %0, %1, both, %3; }"
        : "=r"(out)
        : "r"(a), "r"(b), "r"(0x80008000u));
  } else {
    asm("{ .reg .b16 low, high; .reg .b32 both;\n\t"
        "mov.b32 {low, high}, %2; mov.b32 both, {low, low};\n\t"
        "fma.rn.bf16x2 %0, %1, both, %3; }"
        : "=r"(out)
        : "r"(a), "r"(b), "r"(0x80008000u));
  }
  return out;
}

// c += a b: a [16, 16], b [16, 8] BF16, c [16, 8] FP32.
__device__ inline void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A load of weights: read once, so it should not push out what is read again.
__device__ inline uint4 load_once(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}
__device__ inline uint32_t load_word_once(const void* address) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}

// Brings what is behind an address into the second-level cache.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// For what is read once: it is the first to leave the second-level cache, where code, activations
// and small tables have to stay while gigabytes of weights go through.
__device__ inline uint64_t read_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Copies from global to shared memory that run by themselves, in groups that end in order.
template <int kBytes>
__device__ inline void copy_async(uint32_t to, const void* from, uint64_t policy) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from), "n"(kBytes), "l"(policy)
                 : "memory");
  }
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most so many groups are under way.
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ inline void load_shared_words(uint32_t address, uint32_t (&words)[1]) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(address) : "memory");
}
__device__ inline void load_shared_words(uint32_t address, uint32_t (&words)[2]) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address)
               : "memory");
}

__device__ inline uint32_t load_shared_word(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// The sum over a warp, the same in all lanes: halves are added, five times.
__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

__device__ inline float e4m3_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7f;
  if (magnitude == 0x7f) return __uint_as_float(0x7fc00000u);
  const float value = __uint_as_float(magnitude << 20) * 0x1p120f;
  return (code & 0x80) != 0 ? -value : value;
}

// To the nearest e4m3, ties to even, saturating at +-448; a NaN stays a NaN (numeric/dtype.h).
__device__ inline uint32_t to_e4m3(float x) {
  const uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
  const float magnitude = fabsf(x);
  if (isnan(x)) return sign | 0x7f;
  if (magnitude >= 448) return sign | 0x7e;
  if (magnitude < 0x1p-6f) {  // subnormals: multiples of 2^-9; rounds up to 2^-6 by itself
    return sign | static_cast<uint32_t>(__float2int_rn(magnitude * 512));
  }
  const uint32_t bits = __float_as_uint(magnitude);
  const uint32_t rounded = (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
  return sign | min(rounded - (120u << 3), 0x7eu);
}

// A number as an integer of the same order; a NaN as -infinity, -0 as 0.
__device__ inline uint32_t key_of(float x) {
  if (isnan(x)) x = -INFINITY;
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float logit_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
// Larger comes first.
__device__ inline uint64_t rank_of(uint32_t key, int id) {
  return static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(~id);
}
__device__ inline int id_of(uint64_t rank) {
  return static_cast<int>(~static_cast<uint32_t>(rank));
}

}  // namespace lagoon::kernels::cuda
