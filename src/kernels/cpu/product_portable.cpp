// Products in plain C++, and what the primitives of product.inl do.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/product.inl"

namespace lagoon::kernels::cpu {
namespace {

struct Portable {
  static constexpr int64_t kLanes = 4;

  // multiply_few() keeps the sums of up to kFewRows rows in registers, and of panels_with(format,
  // rows) panels; multiply_decoded() of up to kDecodedRows rows.
  static constexpr int kFewRows = 2;
  static constexpr int kDecodedRows = 4;
  static constexpr int panels_with(Format /*format*/, int /*rows*/) { return 1; }

  struct Floats {
    float f[kLanes];
  };
  // Two BF16 numbers a lane.
  struct Pairs {
    uint32_t u[kLanes];
  };
  // Four bytes a lane: codes, or halves of BF16 numbers.
  struct Bytes {
    uint8_t b[4 * kLanes];
  };

  static Floats load(const float* from) {
    Floats to;
    std::memcpy(&to, from, sizeof to);
    return to;
  }
  static void store(float* to, const Floats& from) { std::memcpy(to, &from, sizeof from); }
  static Floats broadcast(float x) {
    Floats to;
    for (float& f : to.f) f = x;
    return to;
  }
  // a * b + c with one rounding.
  static Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
    Floats to;
    for (int i = 0; i < kLanes; ++i) to.f[i] = std::fma(a.f[i], b.f[i], c.f[i]);
    return to;
  }
  static Floats divide(const Floats& a, const Floats& b) {
    Floats to;
    for (int i = 0; i < kLanes; ++i) to.f[i] = a.f[i] / b.f[i];
    return to;
  }

  static Pairs load_pairs(const std::byte* from) {
    Pairs to;
    std::memcpy(&to, from, sizeof to);
    return to;
  }
  // The BF16 numbers in the low halves of the lanes, and in the high ones.
  static Floats low_halves(const Pairs& from) {
    Floats to;
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t bits = from.u[i] << 16;
      std::memcpy(&to.f[i], &bits, sizeof bits);
    }
    return to;
  }
  static Floats high_halves(const Pairs& from) {
    Floats to;
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t bits = from.u[i] & 0xffff0000u;
      std::memcpy(&to.f[i], &bits, sizeof bits);
    }
    return to;
  }

  static Bytes load_bytes(const std::byte* from) {
    Bytes to;
    std::memcpy(&to, from, sizeof to);
    return to;
  }
  static Bytes low_nibbles(const Bytes& from) {
    Bytes to;
    for (int i = 0; i < 4 * kLanes; ++i) to.b[i] = from.b[i] & 15u;
    return to;
  }
  static Bytes high_nibbles(const Bytes& from) {
    Bytes to;
    for (int i = 0; i < 4 * kLanes; ++i) to.b[i] = from.b[i] >> 4;
    return to;
  }
  // Bytes of every 16 as 16-bit numbers: low[0], high[0], low[1] ... of the first eight, then of
  // the others.
  static Pairs interleave_low(const Bytes& low, const Bytes& high) {
    return interleave(low, high, 0);
  }
  static Pairs interleave_high(const Bytes& low, const Bytes& high) {
    return interleave(low, high, 8);
  }
  // The halves of the BF16 numbers that codes 0..15 stand for.
  static void e2m1_bytes(const Bytes& codes, Bytes& upper, Bytes& lower) {
    for (int i = 0; i < 4 * kLanes; ++i) {
      upper.b[i] = kE2M1Upper[codes.b[i]];
      lower.b[i] = kE2M1Lower[codes.b[i]];
    }
  }
  static void e4m3_bytes(const Bytes& codes, Bytes& upper, Bytes& lower) {
    for (int i = 0; i < 4 * kLanes; ++i) {
      const unsigned magnitude = codes.b[i] & 0x7fu;
      const unsigned sign = codes.b[i] & 0x80u;
      if (magnitude < 8) {
        upper.b[i] = static_cast<uint8_t>(sign | kE4M3SubnormalUpper[magnitude]);
        lower.b[i] = kE4M3SubnormalLower[magnitude];
      } else {
        upper.b[i] = static_cast<uint8_t>(sign | (kE4M3UpperBias + (magnitude >> 4)));
        lower.b[i] = static_cast<uint8_t>(magnitude << 4);
      }
    }
  }
  // kLanes scales of NVFP4 as layout.h stores them.
  static Floats scales(const std::byte* from) {
    Floats to;
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t bits = (static_cast<uint32_t>(from[i]) << 20) + kScaleBits;
      std::memcpy(&to.f[i], &bits, sizeof bits);
    }
    return to;
  }

 private:
  static Pairs interleave(const Bytes& low, const Bytes& high, int first) {
    Pairs to;
    static_assert(kLanes == 4);
    for (int i = 0; i < kLanes; ++i) {
      const int j = first + 2 * i;
      to.u[i] = low.b[j] | uint32_t{high.b[j]} << 8 | uint32_t{low.b[j + 1]} << 16 |
                uint32_t{high.b[j + 1]} << 24;
    }
    return to;
  }
};

}  // namespace

void product_portable(const Product& product) {
  multiply_floats<Portable>(product);
}

}  // namespace lagoon::kernels::cpu
