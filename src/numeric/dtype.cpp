#include "numeric/dtype.h"

#include "base/check.h"

namespace lagoon::numeric {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  size_t size;
};

// In the order of the enum, so that a DType is an index.
constexpr std::array<DTypeFacts, 12> kDTypes = {{
    {DType::kBF16, "BF16", 2},
    {DType::kF16, "F16", 2},
    {DType::kF32, "F32", 4},
    {DType::kF64, "F64", 8},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kU8, "U8", 1},
    {DType::kI8, "I8", 1},
    {DType::kI16, "I16", 2},
    {DType::kI32, "I32", 4},
    {DType::kI64, "I64", 8},
    {DType::kBool, "BOOL", 1},
}};

constexpr bool in_order_of_the_enum() {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].dtype != static_cast<DType>(i)) return false;
  return true;
}
static_assert(in_order_of_the_enum());

const DTypeFacts& facts(DType dtype) {
  const size_t i = static_cast<size_t>(dtype);
  CHECK(i < kDTypes.size());
  return kDTypes[i];
}

// 1 sign, 4 exponent (bias 7) and 3 mantissa bits; exponent 0 is subnormal: mantissa * 2^-9.
constexpr float e4m3_value(unsigned bits) {
  const unsigned exponent = (bits >> 3) & 15u;
  const unsigned mantissa = bits & 7u;
  const uint32_t sign = (bits & 0x80u) << 24;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7fc00000u | sign);
  float value = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8) / 512.0F;
  for (unsigned e = 1; e < exponent; ++e) value *= 2.0F;
  return sign != 0 ? -value : value;
}

constexpr std::array<float, 256> all_e4m3_values() {
  std::array<float, 256> values{};
  for (unsigned bits = 0; bits < values.size(); ++bits) values[bits] = e4m3_value(bits);
  return values;
}

}  // namespace

constexpr std::array<float, 256> kE4M3Values = all_e4m3_values();
constexpr std::array<float, 16> kE2M1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                               4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                               -2.0F, -3.0F, -4.0F, -6.0F};

size_t dtype_size(DType dtype) {
  return facts(dtype).size;
}

std::string_view dtype_name(DType dtype) {
  return facts(dtype).name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeFacts& fact : kDTypes)
    if (fact.name == name) return fact.dtype;
  return std::nullopt;
}

uint8_t float_to_e4m3(float x) {
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr float kLargest = 448.0F;
  constexpr float kSmallestNormal = 0.015625F;  // 2^-6

  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return static_cast<uint8_t>(sign | 0x7fu);
  const float absolute = std::bit_cast<float>(magnitude);
  if (absolute >= kLargest) return static_cast<uint8_t>(sign | 0x7eu);
  if (absolute < kSmallestNormal) {
    // In [2^14, 2^15) neighbouring floats are 2^-9 apart, the distance of e4m3 subnormals: the
    // addition rounds to it, ties to even, and leaves the code in the low bits.
    constexpr float kShift = 16384.0F;
    const uint32_t code =
        std::bit_cast<uint32_t>(absolute + kShift) - std::bit_cast<uint32_t>(kShift);
    return static_cast<uint8_t>(sign | code);
  }
  // 20 of the 23 mantissa bits go, ties to even; the exponent's bias falls from 127 to 7.
  const uint32_t rounded = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - ((127u - 7u) << 3)));
}

}  // namespace lagoon::numeric
