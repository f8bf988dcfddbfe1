// How matrices lie in device memory, for the kernels that read them and for host tests.
//
// A matrix [rows, columns] is cut into tiles of 16 rows, a tile into units of 128 columns; both are
// padded with zero weights. A unit is two steps of 64 columns, and a step feeds four products
// mma.m16n8k16 whose 16-row operand are weights. Lane l of a warp stands for rows g and g + 8 of
// the tile, g = l / 4, and for columns 16 t ... 16 t + 15 of a step, t = l % 4: product j takes
// columns 16 t + 4 j ... + 3 of every t. Since weights and activations are permuted alike, the
// product is that of the matrix; and a lane meets one NVFP4 scale for each row in a step.
//
//   BF16   a step is four loads of 16 bytes a lane, one a product: the fragment of the instruction.
//   FP8    a step is two loads of 16 bytes a lane, codes ordered so that two masks and a shift make
//          two BF16 numbers of them. Scales stay as they are, one for each unit: FP32
//          [ceil(rows / 128), ceil(columns / 128)].
//   NVFP4  a step is one load of 16 bytes a lane: codes of row g, then of row g + 8, eight a word,
//          their bits spread so that masks and shifts make BF16 numbers of them. Scales lie apart:
//          four bytes a lane and unit, (step 0, row g), (step 0, row g + 8), (step 1, row g), ...
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LAGOON_DEVICE __host__ __device__
#else
#define LAGOON_DEVICE
#endif

namespace lagoon::kernels::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kStepColumns = 64;
inline constexpr int kUnitColumns = 128;
inline constexpr int kLanes = 32;

enum class Packing : int32_t { kBFloat16, kFP8, kNVFP4 };

LAGOON_DEVICE constexpr int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
LAGOON_DEVICE constexpr int64_t tiles_of(int64_t rows) {
  return ceil_divide(rows, kTileRows);
}
LAGOON_DEVICE constexpr int64_t units_of(int64_t columns) {
  return ceil_divide(columns, kUnitColumns);
}
// The distance of rows of activations that a matrix of so many columns is multiplied with.
LAGOON_DEVICE constexpr int64_t padded(int64_t columns) {
  return units_of(columns) * kUnitColumns;
}

LAGOON_DEVICE constexpr int64_t unit_bytes(Packing packing) {
  return packing == Packing::kBFloat16 ? 4096 : packing == Packing::kFP8 ? 2048 : 1024;
}
inline constexpr int64_t kUnitScaleBytes = 128;  // of NVFP4

// Of packed values, without scales.
LAGOON_DEVICE constexpr int64_t packed_bytes(Packing packing, int64_t rows, int64_t columns) {
  return tiles_of(rows) * units_of(columns) * unit_bytes(packing);
}

// Where a weight lies.
struct Place {
  int64_t unit = 0;  // among all units of the matrix
  int lane = 0;
  int step = 0;   // of the unit
  int upper = 0;  // 1 for row g + 8
  int index = 0;  // among the 16 columns of the lane in the step
};
LAGOON_DEVICE constexpr Place place_of(int64_t row, int64_t column, int64_t units) {
  const int64_t tile = row / kTileRows;
  const int in_tile = static_cast<int>(row % kTileRows);
  const int in_unit = static_cast<int>(column % kUnitColumns);
  const int in_step = in_unit % kStepColumns;
  return {tile * units + column / kUnitColumns, in_tile % 8 * 4 + in_step / 16,
          in_unit / kStepColumns, in_tile / 8, in_step % 16};
}

// The byte of a BF16 or FP8 weight in the packed values.
LAGOON_DEVICE constexpr int64_t value_offset(Packing packing, const Place& p) {
  const int product = p.index / 4;
  const int within = p.index % 4;  // of the four columns of a product
  if (packing == Packing::kBFloat16) {
    const int element = within / 2 * 4 + p.upper * 2 + within % 2;
    const int in_unit = ((p.step * 4 + product) * kLanes + p.lane) * 16 + element * 2;
    return p.unit * 4096 + in_unit;
  }
  // Bytes of a word: columns 2, 0, 3, 1.
  const int byte = within == 0 ? 1 : within == 1 ? 3 : within == 2 ? 0 : 2;
  const int in_unit =
      ((p.step * 2 + product / 2) * kLanes + p.lane) * 16 + product % 2 * 8 + p.upper * 4 + byte;
  return p.unit * 2048 + in_unit;
}

// NVFP4: the 32-bit word that holds a code, and the place of the code's bits in it.
LAGOON_DEVICE constexpr int64_t code_word(const Place& p) {
  const int in_unit = (p.step * kLanes + p.lane) * 4 + p.upper * 2 + p.index / 8;
  return p.unit * 256 + in_unit;
}
// Where the bits of a code lie in its word: those of the magnitude, then the sign. Two codes whose
// columns follow each other lie alike in the two halves of the word. Of eight codes, three pairs
// have the shape that they have in a BF16 number, so that one shift brings all of a pair to its
// place; the fourth has what bits are left, such that a multiplication does (code_pair()).
LAGOON_DEVICE constexpr int code_bit(int index, int bit) {
  const int pair = index % 8 / 2;
  const int half = index % 2 * 16;
  if (pair == 3) return half + (bit == 0 ? 13 : bit == 1 ? 14 : bit == 2 ? 10 : 11);
  return half + (bit == 3 ? 15 : 6 + bit) - 3 * pair;
}
LAGOON_DEVICE constexpr uint32_t spread_code(uint32_t code, int index) {
  uint32_t word = 0;
  for (int bit = 0; bit < 4; ++bit) word |= (code >> bit & 1) << code_bit(index, bit);
  return word;
}
LAGOON_DEVICE constexpr uint32_t gather_code(uint32_t word, int index) {
  uint32_t code = 0;
  for (int bit = 0; bit < 4; ++bit) code |= (word >> code_bit(index, bit) & 1) << bit;
  return code;
}
LAGOON_DEVICE constexpr int64_t scale_offset(const Place& p) {
  const int in_unit = p.lane * 4 + p.step * 2 + p.upper;
  return p.unit * kUnitScaleBytes + in_unit;
}

// A positive e4m3 scale as the byte from which scale * 2^119 in BF16 is byte * 16 + kScaleBase:
// five bits of exponent, three of mantissa, no subnormals. Zero becomes 0, and its codes must be
// zero.
inline constexpr uint32_t kScaleBase = 0x7680;
LAGOON_DEVICE constexpr uint32_t encode_scale(uint32_t e4m3) {
  const uint32_t exponent = e4m3 >> 3 & 15;
  const uint32_t mantissa = e4m3 & 7;
  if (exponent > 0) return (exponent + 2) << 3 | mantissa;  // 2^(exponent - 7) * 1.mantissa
  // mantissa * 2^-9
  if (mantissa >= 4) return 2 << 3 | (mantissa - 4) * 2;
  if (mantissa >= 2) return 1 << 3 | (mantissa - 2) * 4;
  return 0;
}

// Both BF16 halves of a word of codes: products 0 and 1 of a step take pairs 0..3 of the first word
// of a row, products 2 and 3 those of the second. The numbers are code * 2^-126.
LAGOON_DEVICE constexpr uint32_t code_pair(uint32_t word, int pair) {
  constexpr uint32_t kMask = 0x81C081C0u;
  switch (pair) {
    case 0:
      return word & kMask;
    case 1:
      return word << 3 & kMask;
    case 2:
      return word << 6 & kMask;
    default:
      // Bits 10, 11, 13 and 14 of a half become 3, 4, 6 and 7; moved by 0, 5 and 11 they meet no
      // other, and the two low bits of the magnitude, its high bit and the sign are in their place.
      return (word >> 7 & 0x00D800D8u) * 0x0821u & kMask;
  }
}
// code * scale * 2^-7 is code_pair * scale_pair; the rest is a factor of the sum.
inline constexpr float kCodeFactor = 128;
LAGOON_DEVICE constexpr uint32_t scale_pair(uint32_t byte) {
  return byte * 0x00100010u + kScaleBase * 0x00010001u;
}

// The factors of row g, or g + 8, in both steps of a unit, from the four bytes of a lane: BF16,
// that of the first step in the lower half.
LAGOON_DEVICE constexpr uint32_t unit_scales(uint32_t bytes, int upper) {
  return ((upper == 0 ? bytes << 4 : bytes >> 4) & 0x0FF00FF0u) + kScaleBase * 0x00010001u;
}

// Two BF16 numbers of a word of FP8 codes: code * 2^-120, columns 0 and 1, or 2 and 3.
LAGOON_DEVICE constexpr uint32_t fp8_pair(uint32_t word, int pair) {
  return pair == 0 ? (word & 0x80008000u) | (word >> 4 & 0x07F007F0u)
                   : (word << 8 & 0x80008000u) | (word << 4 & 0x07F007F0u);
}
inline constexpr uint32_t kFP8Factor = 0x7B807B80u;  // 2^120, twice

}  // namespace lagoon::kernels::cuda
