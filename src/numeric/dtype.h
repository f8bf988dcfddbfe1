// Element types of checkpoints and their conversions to FP32. BF16, E4M3 and E2M1 follow the OCP
// "8-bit Floating Point" and "Microscaling Formats (MX)" specifications; E4M3 is the finite variant
// (e4m3fn: no infinities, 0x7f and 0xff are NaN, largest value 448).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lagoon::numeric {

enum class DType : uint8_t {
  kBF16,
  kF16,
  kF32,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kBool
};

// Bytes of one element.
size_t dtype_size(DType dtype);
// The name safetensors gives it: "BF16", "F8_E4M3" ...
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// BF16 is the upper half of an FP32.
struct BFloat16 {
  uint16_t bits = 0;
};

inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

// Round to nearest, ties to even; a NaN stays a NaN.
inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// x rounded to BF16 and back.
inline float round_to_bfloat16(float x) {
  return to_float(to_bfloat16(x));
}

// The values of all e4m3fn bytes and E2M1 codes, for kernels that index them directly.
extern const std::array<float, 256> kE4M3Values;
extern const std::array<float, 16> kE2M1Values;

// The value of an e4m3fn byte; NaN for 0x7f and 0xff.
inline float e4m3_to_float(uint8_t bits) {
  return kE4M3Values[bits];
}
// Round to nearest even, saturating at +-448 (infinities too); a NaN stays a NaN.
uint8_t float_to_e4m3(float x);

// The value of an E2M1 code (0..15: bit 3 sign; magnitudes 0 .5 1 1.5 2 3 4 6). Bits above are
// ignored.
inline float e2m1_to_float(uint8_t code) {
  return kE2M1Values[code & 15u];
}

}  // namespace lagoon::numeric
