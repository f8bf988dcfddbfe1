// How the CPU backend lays a matrix W [rows, columns] out. The same for every instruction set.
//
// A panel holds 16 consecutive outputs (rows of W); rows beyond the last one are zeros. It is cut
// into blocks of 128 columns; the last block has what is left, with zeros up to a multiple of 16.
// Panels and blocks start at multiples of 64 bytes. A block of c columns:
//
//   kFloat32   c x 16 floats: column k of output n at [k][n]
//   kBFloat16  c/2 x 16 pairs: columns 2i (low half) and 2i + 1 (high half) of output n at [i][n],
//              so that a 32-bit lane holds two weights of one output
//   kFP8       c/4 chunks of 64 bytes, each 4 columns of 16 outputs: output n, column 4i + j at
//              chunk i, byte 16 * (n / 4) + 8 * (j / 2) + 2 * (n % 4) + j % 2. Two bytes of a chunk
//              widen to a pair, and the halves of each 16 bytes to pairs of the same lanes.
//   kNVFP4     the scales, c/16 x 16 bytes: group g of output n at [g][n], zeros up to a multiple
//   of
//              64 bytes; then c/8 chunks like those of kFP8 with two codes a byte: columns 8i + j
//              in the low nibbles, 8i + 4 + j in the high ones.
//
// An NVFP4 scale is stored without sign and subnormals, as 5 bits of exponent (bias 9) and 3 of
// mantissa: its FP32 bits are (byte << 20) + kScaleBits. What that cannot say is said by the codes:
// under a negative scale their signs are turned, under a zero they are zeros.
//
// FP8 scales per [128, 128] lie apart, one float per panel and block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

// Always inline: files that are compiled for an instruction set must leave no copy of a function
// that other files call, or the linker could choose it for all processors.
#define LAGOON_INLINE inline __attribute__((always_inline))

namespace lagoon::kernels::cpu {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 128;
inline constexpr int64_t kGroupColumns =
    16;  // padding of columns, and the columns of an NVFP4 scale
inline constexpr uint32_t kScaleBits = uint32_t{127 - 9} << 23;

LAGOON_INLINE constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Bytes before the codes of a block of `columns`.
LAGOON_INLINE constexpr int64_t scale_bytes(Format format, int64_t columns) {
  return format == Format::kNVFP4 ? round_up(columns / kGroupColumns * kPanelRows, 64) : 0;
}

// Bytes of `columns` columns of a panel without scales.
LAGOON_INLINE constexpr int64_t code_bytes(Format format, int64_t columns) {
  switch (format) {
    case Format::kFloat32:
      return columns * kPanelRows * 4;
    case Format::kBFloat16:
      return columns * kPanelRows * 2;
    case Format::kFP8:
      return columns * kPanelRows;
    case Format::kNVFP4:
      return columns * kPanelRows / 2;
  }
  return 0;
}

LAGOON_INLINE constexpr int64_t block_bytes(Format format, int64_t columns) {
  return scale_bytes(format, columns) + code_bytes(format, columns);
}

// `columns` of the matrix, not padded.
LAGOON_INLINE constexpr int64_t panel_bytes(Format format, int64_t columns) {
  const int64_t rest = round_up(columns % kBlockColumns, kGroupColumns);
  return columns / kBlockColumns * block_bytes(format, kBlockColumns) + block_bytes(format, rest);
}

// Both halves of the BF16 numbers that E2M1 codes stand for (0 .5 1 1.5 2 3 4 6, then negative),
// and that the eight smallest magnitudes of E4M3 stand for (multiples of 2^-9). A larger magnitude
// of E4M3 is a BF16 number after adding the difference of the biases: (byte << 4) + (kE4M3UpperBias
// << 8).
inline constexpr uint8_t kE2M1Upper[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                           0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
inline constexpr uint8_t kE2M1Lower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                           0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
inline constexpr uint8_t kE4M3SubnormalUpper[16] = {0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
inline constexpr uint8_t kE4M3SubnormalLower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60};
inline constexpr uint8_t kE4M3UpperBias = 0x3c;

}  // namespace lagoon::kernels::cpu
