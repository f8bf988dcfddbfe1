// Products of matrices with rows, and the dense or shared feed-forward. Up to eight rows stream the
// weights (weights.cuh); more take tiles of rows that share a reading of a matrix. Both have the
// same order of sums.
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/tiles.cuh"

namespace lagoon::kernels::cuda {
namespace {

// What a lane loads of a unit.
template <Packing P>
struct Unit {
  static constexpr int kLoads = static_cast<int>(unit_bytes(P)) / (kLanes * 16);
  uint4 loads[kLoads];
  uint32_t scale = 0;  // NVFP4: four bytes; FP8: an FP32

  __device__ void load(const MatrixView& m, int64_t tile, int units, int unit, int lane) {
    const int64_t at = tile * units + unit;
    const uint8_t* from = m.values + at * unit_bytes(P) + lane * 16;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) loads[i] = load_once(from + i * (kLanes * 16));
    if constexpr (P == Packing::kNVFP4) {
      scale = load_word_once(m.scales + at * kUnitScaleBytes + lane * 4);
    } else if constexpr (P == Packing::kFP8) {
      scale = reinterpret_cast<const uint32_t*>(m.scales)[tile / 8 * units + unit];
    }
  }

  // Product j of a step.
  __device__ void fragment(int step, int j, Fragment& a) const {
    if constexpr (P == Packing::kBFloat16) {
      bf16_fragment(loads[step * 4 + j], a);
    } else if constexpr (P == Packing::kFP8) {
      fp8_fragment(loads[step * 2 + j / 2], j % 2 == 1, a);
    } else {
      nvfp4_fragment(loads[step], scale, step, j, a);
    }
  }
};

// sums += a unit times eight rows of x for each of N row tiles; x points at the lane's columns of
// the first unit of the matrix, or is null where there is no such row.
template <Packing P, int N>
__device__ void multiply_unit(const Unit<P>& weights, const Bits16* const (&x)[N], int64_t column,
                              float (&sums)[N][4]) {
  float own[N][4] = {};  // FP8: before the scale
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    uint4 b[N][2];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      b[n][0] = b[n][1] = make_uint4(0, 0, 0, 0);
      if (x[n] != nullptr) {
        const auto* from = reinterpret_cast<const uint4*>(x[n] + column + step * kStepColumns);
        // Not as constants: the kernel before may still have been writing when this one began.
        b[n][0] = from[0];
        b[n][1] = from[1];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      Fragment a;
      weights.fragment(step, j, a);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const uint4& v = b[n][j / 2];
        float(&into)[4] = P == Packing::kFP8 ? own[n] : sums[n];
        mma(into, a[0], a[1], a[2], a[3], j % 2 == 0 ? v.x : v.z, j % 2 == 0 ? v.y : v.w);
      }
    }
  }
  if constexpr (P == Packing::kFP8) {
    const float scale = __uint_as_float(weights.scale);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = fmaf(own[n][i], scale, sums[n][i]);
    }
  }
}

// Units of a matrix that are loaded together, so that enough bytes are on their way.
template <Packing P, int N>
inline constexpr int kTogether = N == 8                    ? 1
                                 : P == Packing::kBFloat16 ? (N < 4 ? 2 : 1)
                                 : P == Packing::kFP8      ? 2
                                                           : (N < 4 ? 3 : 2);

// The sums of a slice of a tile. Order: unit after unit.
template <Packing P, int N>
__device__ void multiply_slice(const MatrixView& matrix, int64_t tile, const Part& part,
                               const Bits16* const (&x)[N], float (&sums)[N][4]) {
  constexpr int kMany = kTogether<P, N>;
  for (int unit = part.first; unit < part.end; unit += kMany) {
    Unit<P> loaded[kMany];
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      if (unit + i < part.end) loaded[i].load(matrix, tile, part.units, unit + i, part.lane);
    }
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      if (unit + i < part.end) {
        multiply_unit<P, N>(loaded[i], x, (unit + i) * int64_t{kUnitColumns}, sums);
      }
    }
  }
}

template <Packing P, int N>
__global__ void __launch_bounds__(kThreads) multiply_kernel(const __grid_constant__ Products args) {
  __shared__ float slices[kWarps * 8 * N * kTileRows];
  const Product& product = args.of(static_cast<int>(blockIdx.x));
  const MatrixView m = product.matrix;
  const Part part(m.columns);
  const int64_t tile =
      args.tiles_before(static_cast<int>(blockIdx.x), part.cut.tiles()) + part.in_block;
  const int64_t first_row = blockIdx.y * int64_t{8 * N};
  const bool real = tile < tiles_of(m.rows);
  float sums[N][4] = {};
  if (!args.settles) let_others_start();
  wait_for_others();
  if (args.settles) let_others_start();
  if (real) {
    const Bits16* x[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int64_t row = first_row + n * 8 + part.lane / 4;
      x[n] = row < args.rows ? args.x + row * padded(m.columns) + part.lane % 4 * 16 : nullptr;
    }
    multiply_slice<P, N>(m, tile, part, x, sums);
  }
  float* own = slices + part.in_block * part.cut.slices * (8 * N * kTileRows);
  keep_sums<N>(sums, part.lane, own + part.slice * (8 * N * kTileRows));
  __syncthreads();
  if (!real) return;
  for (int i = part.thread(); i < 8 * N * kTileRows; i += part.threads()) {
    const int64_t row = first_row + i / kTileRows;
    const int64_t n = tile * kTileRows + i % kTileRows;
    if (row >= args.rows || n >= m.rows) continue;
    put_product(product, row, n, before_product(product, row, n),
                finish<P>(m, sum_slices<N>(own, part.cut.slices, i)));
  }
}

__global__ void swiglu_kernel(const float* gate, const float* up, int64_t inner, Bits16* h) {
  let_others_start();
  wait_for_others();
  const int64_t n = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t stride = padded(inner);
  if (n >= stride) return;
  const int64_t at = blockIdx.y * inner + n;
  h[blockIdx.y * stride + n] =
      static_cast<Bits16>(n < inner ? to_bits(swiglu(gate[at], up[at])) : 0);
}

template <Packing P>
void multiply_many(Stream stream, const Products& args) {
  const int tiles = row_tiles_of(args.rows);
  const dim3 grid(static_cast<unsigned>(args.blocks()),
                  static_cast<unsigned>(ceil_divide(args.rows, 8 * tiles)));
  if (tiles <= 2) {
    start(stream, multiply_kernel<P, 2>, grid, kThreads, 0, args);
  } else if (tiles == 4) {
    start(stream, multiply_kernel<P, 4>, grid, kThreads, 0, args);
  } else {
    start(stream, multiply_kernel<P, 8>, grid, kThreads, 0, args);
  }
}

}  // namespace

void multiply(Stream stream, const Product* products, int count, const Bits16* x, int64_t rows,
              bool settles) {
  // A launch for each packing that is there.
  for (const Packing packing : {Packing::kBFloat16, Packing::kFP8, Packing::kNVFP4}) {
    Products args;
    args.x = x;
    args.rows = rows;
    args.settles = settles;
    for (int p = 0; p < count; ++p) {
      if (products[p].matrix.packing == packing) args.add(products[p]);
    }
    if (args.count == 0) continue;
    if (rows <= kStreamedRows) {
      multiply_few(stream, packing, args);
    } else if (packing == Packing::kBFloat16) {
      multiply_many<Packing::kBFloat16>(stream, args);
    } else if (packing == Packing::kFP8) {
      multiply_many<Packing::kFP8>(stream, args);
    } else {
      multiply_many<Packing::kNVFP4>(stream, args);
    }
  }
}

void swiglu_rows(Stream stream, const float* gate, const float* up, int64_t rows, int64_t inner,
                 Bits16* h) {
  constexpr int kSwigluThreads = 256;
  const dim3 grid(static_cast<unsigned>(ceil_divide(padded(inner), kSwigluThreads)),
                  static_cast<unsigned>(rows));
  start(stream, swiglu_kernel, grid, kSwigluThreads, 0, gate, up, inner, h);
}

}  // namespace lagoon::kernels::cuda
