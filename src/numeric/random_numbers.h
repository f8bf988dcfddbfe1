// Random numbers as functions of (key, index): any of them can be had without those before it, and
// they are the same bits on every processor and on a GPU. What random weights are made of.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LAGOON_EVERYWHERE __host__ __device__
#else
#define LAGOON_EVERYWHERE
#endif

namespace lagoon::numeric {

// SplitMix64's output function: Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014.
LAGOON_EVERYWHERE constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct RandomNumbers {
  uint64_t key = 0;

  LAGOON_EVERYWHERE constexpr uint64_t word(uint64_t index) const {
    return mix_bits(key + index * 0x9e3779b97f4a7c15u);
  }
  // About N(0, 1), within +-3.47: four uniform numbers added (Irwin-Hall), without a library
  // function whose rounding differs from machine to machine.
  LAGOON_EVERYWHERE constexpr float normal(uint64_t index) const {
    const uint64_t x = word(index);
    const auto sum =
        static_cast<int32_t>((x & 0xffffu) + (x >> 16 & 0xffffu) + (x >> 32 & 0xffffu) + (x >> 48));
    constexpr float kScale = 2.6428991e-5F;  // sqrt(3) / 65536
    return static_cast<float>(sum - 131070) * kScale;
  }
  LAGOON_EVERYWHERE constexpr float uniform(uint64_t index) const {  // [0, 1)
    return static_cast<float>(word(index) >> 40) * 0x1p-24F;
  }
  // The e4m3 code of a scale of a block, from 96 (0x6c) to 352 (0x7b).
  LAGOON_EVERYWHERE constexpr uint8_t block_scale(uint64_t index) const {
    return static_cast<uint8_t>(0x6cu + word(index) % 16);
  }
  // An e4m3 code of either sign for 16 to 240: what keys and values of a few units are with a scale
  // of 1/64.
  LAGOON_EVERYWHERE constexpr uint8_t cache_code(uint64_t index) const {
    const uint64_t x = word(index);
    return static_cast<uint8_t>((0x58u + x % 32) | (x >> 63) << 7);
  }
};

// An e2m1 code for 8 random bits. Of 128 magnitudes 10 20 19 17 21 20 15 6 are 0 .5 1 1.5 2 3 4 6:
// what rounding N(0, 2.5^2) gives, about the spread of a block of 16 whose largest becomes 6.
LAGOON_EVERYWHERE constexpr uint32_t random_e2m1(uint32_t bits) {
  const uint32_t magnitude = bits >> 1 & 0x7fu;
  const uint32_t code = uint32_t{magnitude >= 10} + uint32_t{magnitude >= 30} +
                        uint32_t{magnitude >= 49} + uint32_t{magnitude >= 66} +
                        uint32_t{magnitude >= 87} + uint32_t{magnitude >= 107} +
                        uint32_t{magnitude >= 122};
  return code | (bits & 1u) << 3;
}

// Eight codes, two a byte, for a word of random bits.
LAGOON_EVERYWHERE constexpr uint32_t random_e2m1_codes(uint64_t bits) {
  uint32_t codes = 0;
  for (int i = 0; i < 8; ++i) {
    codes |= random_e2m1(static_cast<uint32_t>(bits >> (8 * i)) & 0xffu) << (4 * i);
  }
  return codes;
}

}  // namespace lagoon::numeric
