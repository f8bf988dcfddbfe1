// Packs matrices as layout.h says, makes some of random numbers, and reads them again. A thread
// packs the 16 columns of a lane in one step of one row.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "numeric/random_numbers.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kPackThreads = 256;

__device__ uint32_t raw_value(const uint8_t* values, Packing packing, int64_t at) {
  return packing == Packing::kBFloat16 ? reinterpret_cast<const uint16_t*>(values)[at] : values[at];
}

__device__ void pack_values(const uint8_t* values, int64_t raw_row, int64_t row, int64_t column,
                            bool inside, const MatrixView& m, uint8_t* packed, int32_t* flag) {
  const int64_t units = units_of(m.columns);
  for (int i = 0; i < 16; ++i) {
    const bool real = inside && column + i < m.columns;
    const uint32_t value =
        real ? raw_value(values, m.packing, raw_row * m.columns + column + i) : 0;
    const int64_t at = value_offset(m.packing, place_of(row, column + i, units));
    if (m.packing == Packing::kBFloat16) {
      *reinterpret_cast<uint16_t*>(packed + at) = static_cast<uint16_t>(value);
    } else {
      if ((value & 0x7f) == 0x7f) *flag = 1;
      packed[at] = static_cast<uint8_t>(value);
    }
  }
}

__device__ void pack_codes(const uint8_t* values, const uint8_t* scales, int64_t raw_row,
                           int64_t row, int64_t column, bool inside, const MatrixView& m,
                           uint8_t* packed, uint8_t* packed_scales) {
  const bool real = inside && column < m.columns;  // columns are a multiple of 16
  const Place place = place_of(row, column, units_of(m.columns));
  const uint32_t scale = real ? scales[(raw_row * m.columns + column) / 16] & 0x7f : 0;
  uint32_t words[2] = {};
  for (int i = 0; i < 16 && scale != 0; ++i) {
    const uint8_t byte = values[(raw_row * m.columns + column + i) / 2];
    words[i / 8] |= spread_code(i % 2 == 0 ? byte & 15 : byte >> 4, i);
  }
  uint32_t* out = reinterpret_cast<uint32_t*>(packed) + code_word(place);
  out[0] = words[0];
  out[1] = words[1];
  packed_scales[scale_offset(place)] = static_cast<uint8_t>(encode_scale(scale));
}

__global__ void pack_kernel(const uint8_t* values, const uint8_t* scales, int64_t first_row,
                            int64_t rows, MatrixView m, uint8_t* packed, uint8_t* packed_scales,
                            int32_t* flag) {
  const int64_t groups = units_of(m.columns) * (kUnitColumns / 16);
  const int64_t count = tiles_of(rows) * kTileRows * groups;
  for (int64_t i = blockIdx.x * int64_t{kPackThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kPackThreads}) {
    const int64_t raw_row = i / groups;
    const int64_t column = i % groups * 16;
    const bool inside = raw_row < rows;
    if (m.packing == Packing::kNVFP4) {
      pack_codes(values, scales, raw_row, first_row + raw_row, column, inside, m, packed,
                 packed_scales);
    } else {
      pack_values(values, raw_row, first_row + raw_row, column, inside, m, packed, flag);
    }
  }
}

// Element i of a matrix is number first + i. A thread makes one BF16 number, or eight e2m1 codes.
__global__ void random_values_kernel(RandomView random, int64_t first, int64_t count,
                                     uint8_t* values) {
  const numeric::RandomNumbers numbers{random.values};
  const bool codes = random.packing == Packing::kNVFP4;
  for (int64_t i = blockIdx.x * int64_t{kPackThreads} + threadIdx.x;
       i < (codes ? count / 8 : count); i += gridDim.x * int64_t{kPackThreads}) {
    if (codes) {
      reinterpret_cast<uint32_t*>(values)[i] =
          numeric::random_e2m1_codes(numbers.word(static_cast<uint64_t>(first / 8 + i)));
    } else {
      reinterpret_cast<uint16_t*>(values)[i] = static_cast<uint16_t>(
          to_bits(random.scale * numbers.normal(static_cast<uint64_t>(first + i))));
    }
  }
}

__global__ void random_scales_kernel(uint64_t key, int64_t first, int64_t count, uint8_t* scales) {
  const numeric::RandomNumbers numbers{key};
  for (int64_t i = blockIdx.x * int64_t{kPackThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kPackThreads}) {
    scales[i] = numbers.block_scale(static_cast<uint64_t>(first + i));
  }
}

__global__ void random_cache_kernel(uint64_t key, bool fp8, int64_t count, uint8_t* out) {
  const numeric::RandomNumbers numbers{key};
  for (int64_t i = blockIdx.x * int64_t{kPackThreads} + threadIdx.x; i < count;
       i += gridDim.x * int64_t{kPackThreads}) {
    const auto index = static_cast<uint64_t>(i);
    if (fp8) {
      out[i] = numbers.cache_code(index);
    } else {
      reinterpret_cast<uint16_t*>(out)[i] = static_cast<uint16_t>(to_bits(numbers.normal(index)));
    }
  }
}

unsigned pack_blocks(int64_t count) {
  const int64_t blocks = ceil_divide(count, kPackThreads);
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
}

// One weight, as kernels/ref gives it.
__device__ float weight_at(const MatrixView& m, int64_t row, int64_t column) {
  const Place place = place_of(row, column, units_of(m.columns));
  switch (m.packing) {
    case Packing::kBFloat16:
      return from_bits(
          *reinterpret_cast<const uint16_t*>(m.values + value_offset(m.packing, place)));
    case Packing::kFP8: {
      const auto* scales = reinterpret_cast<const float*>(m.scales);
      return e4m3_value(m.values[value_offset(m.packing, place)]) *
             scales[row / 128 * units_of(m.columns) + column / 128];
    }
    default: {
      const uint32_t word = reinterpret_cast<const uint32_t*>(m.values)[code_word(place)];
      const uint32_t pair = code_pair(word, place.index % 8 / 2);
      const uint32_t scaled = multiply_pairs(pair, scale_pair(m.scales[scale_offset(place)]));
      const float value = from_bits(place.index % 2 == 0 ? scaled & 0xffff : scaled >> 16);
      return value * kCodeFactor / m.divisor;
    }
  }
}

__global__ void read_rows_kernel(MatrixView m, const int32_t* ids, float* out) {
  const int64_t row = blockIdx.x;
  for (int64_t k = threadIdx.x; k < m.columns; k += blockDim.x) {
    out[row * m.columns + k] = weight_at(m, ids[row], k);
  }
}

__global__ void resolve_kernel(const int32_t* proposals, int32_t* tokens, int64_t rows) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row < rows && tokens[row] < 0) tokens[row] = proposals[-1 - tokens[row]];
}

}  // namespace

int find_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, read_rows_kernel);
}

void pack(Stream stream, const uint8_t* values, const uint8_t* scales, int64_t first_row,
          int64_t rows, const MatrixView& matrix, uint8_t* packed, uint8_t* packed_scales,
          int32_t* flag) {
  const int64_t count = tiles_of(rows) * kTileRows * units_of(matrix.columns) * 8;
  pack_kernel<<<pack_blocks(count), kPackThreads, 0, stream>>>(values, scales, first_row, rows,
                                                               matrix, packed, packed_scales, flag);
}

void make_random(Stream stream, const RandomView& random, int64_t first_row, int64_t rows,
                 uint8_t* values, uint8_t* scales) {
  const int64_t first = first_row * random.columns;
  const int64_t count = rows * random.columns;
  random_values_kernel<<<pack_blocks(count), kPackThreads, 0, stream>>>(random, first, count,
                                                                        values);
  if (random.packing != Packing::kNVFP4) return;
  random_scales_kernel<<<pack_blocks(count / 16), kPackThreads, 0, stream>>>(
      random.scales, first / 16, count / 16, scales);
}

void random_cache(Stream stream, uint64_t key, bool fp8, int64_t count, uint8_t* out) {
  random_cache_kernel<<<pack_blocks(count), kPackThreads, 0, stream>>>(key, fp8, count, out);
}

void read_rows(Stream stream, const MatrixView& matrix, const int32_t* ids, int64_t rows,
               float* out) {
  read_rows_kernel<<<static_cast<unsigned>(rows), 256, 0, stream>>>(matrix, ids, out);
}

void resolve_proposals(Stream stream, const int32_t* proposals, int32_t* tokens, int64_t rows) {
  constexpr int kResolveThreads = 256;
  const auto blocks = static_cast<unsigned>(ceil_divide(rows, kResolveThreads));
  resolve_kernel<<<blocks, kResolveThreads, 0, stream>>>(proposals, tokens, rows);
}

}  // namespace lagoon::kernels::cuda
