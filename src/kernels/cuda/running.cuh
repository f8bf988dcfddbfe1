// The running softmax of a warp over blocks of 16 keys (attend.cuh), for one or two sets of eight
// queries. Set by set the arithmetic is the same, so that a query's bits do not depend on whether
// there are two.
//
// kOnce: where a warp has a block or two, each instruction runs once or twice, and takes as long as
// it takes to come. Then what can be is a loop, and nothing is done to sums that are zeros.
#pragma once

#include <cstdint>

#include "kernels/cuda/attend.cuh"

namespace lagoon::kernels::cuda {

// Queries 2 t and 2 t + 1 of each set: of scores keys g and g + 8, of sums a lane's own keys, of
// `out` dimensions as a lane reads values.
template <int D, bool kFP8, int kSets, bool kOnce = false>
class Running {
  using Memory = AttendMemory<D, kFP8>;
  static constexpr int kParts = kFP8 ? 2 : 3;  // of a probability
  static constexpr bool kKeepQueries = kSets == 1 && !kOnce;

 public:
  // `scales`: of the scores of a block's queries, to powers of two.
  __device__ Running(const uint2* queries, const float* scales) : queries_(queries) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        scale_[set][q] = scales[query(set, q)];
        minus_base_[set][q] = INFINITY;
      }
    }
    if constexpr (kKeepQueries) {
#pragma unroll
      for (int j = 0; j < D / 16; ++j) kept_[j] = queries_[j * kLanes + lane()];
    }
  }

  // Scores of a block of keys, in two sums of every other product, which do not wait for each
  // other.
  __device__ void multiply_keys(uint32_t keys) {
    float odd[kSets][4] = {};
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (float& score : scores_[set]) score = 0;
    }
    constexpr int kProducts = Memory::kKeyPiece / Memory::kElement / 4;  // of a piece
#pragma unroll(kOnce ? 1 : Memory::kKeyPieces)
    for (int piece = 0; piece < Memory::kKeyPieces; ++piece) {
      uint32_t words[2][Memory::kKeyPiece / 4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        load_piece<Memory::kKeyPiece>(
            keys + ((piece * 2 + half) * kLanes + lane()) * Memory::kKeyPiece, words[half]);
      }
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        const int j = piece * kProducts + p;
        uint32_t a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (kFP8) {
            const uint32_t codes = words[i % 2][p];
            a[i] = i / 2 == 0 ? decode_half<false>(codes) : decode_half<true>(codes);
          } else {
            a[i] = words[i % 2][2 * p + i / 2];
          }
        }
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          const uint2 b =
              kKeepQueries ? kept_[j] : queries_[(set * (D / 16) + j) * kLanes + lane()];
          multiply_add<kFP8>(j % 2 == 0 ? scores_[set] : odd[set], a, b.x, b.y);
        }
      }
    }
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[set][i] += odd[set][i];
    }
  }

  // Makes probabilities of them. Position of query q: positions[q]; what it does not see counts
  // for nothing. `whole`: all queries see all keys.
  __device__ void weigh(int first_key, bool whole, const int* positions, int window) {
    hidden_ = 0;
    // Of a query that is not there, -1 - key is no smaller than any window.
    const unsigned most = window == 0 ? 0x7fffffffu : static_cast<unsigned>(window);
    if (!whole) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + lane() / 4 + i / 2 * 8;
          const int position = positions[query(set, i % 2)];
          const bool seen = static_cast<unsigned>(position - key) < most;
          hidden_ |= seen ? 0u : 1u << (set * 4 + i);
        }
      }
    }
    float powers[kSets][4];
    bool high = false;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        powers[set][i] = power(set, i, minus_base_[set][i % 2]);
        high = high || powers[set][i] > kHighest;
      }
    }
    if (__any_sync(0xffffffffu, high)) move_bases(powers);
    begun_ = true;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      float weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[i] = power_of_two(powers[set][i]);
#pragma unroll
      for (int q = 0; q < 2; ++q) sum_[set][q] += weights[q] + weights[2 + q];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float low = weights[2 * half];
        float high_one = weights[2 * half + 1];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const uint32_t pair = pair_of<kFP8>(low, high_one);
          parts_[set][part][half] = transpose(pair);
          const float2 values = values_of<kFP8>(pair);
          low -= values.x;
          high_one -= values.y;
        }
      }
    }
  }

  // Adds the values, the largest parts of the probabilities first.
  __device__ void multiply_values(uint32_t values) {
    constexpr int kProducts = Memory::kValueDims / 2;  // of a piece
    constexpr int kWords = Memory::kValuePiece < 4 ? 1 : Memory::kValuePiece / 4;
#pragma unroll
    for (int piece = 0; piece < Memory::kValuePieces; ++piece) {
      uint32_t words[4][kWords];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_piece<Memory::kValuePiece>(
            values + ((i * Memory::kValuePieces + piece) * kLanes + lane()) * Memory::kValuePiece,
            words[i]);
      }
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        uint32_t a[4];  // two dimensions of keys 2 t and 2 t + 1, then of 2 t + 8 and 2 t + 9
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          if constexpr (kFP8) {
            const uint32_t codes = __byte_perm(words[2 * pair][p / 2], words[2 * pair + 1][p / 2],
                                               p % 2 == 0 ? 0x5140 : 0x7362);
            a[2 * pair] = decode_half<false>(codes);
            a[2 * pair + 1] = decode_half<true>(codes);
          } else {
            a[2 * pair] = __byte_perm(words[2 * pair][p], words[2 * pair + 1][p], 0x5410);
            a[2 * pair + 1] = __byte_perm(words[2 * pair][p], words[2 * pair + 1][p], 0x7632);
          }
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int set = 0; set < kSets; ++set) {
            multiply_add<kFP8>(out_[set][piece * kProducts + p], a, parts_[set][part][0],
                               parts_[set][part][1]);
          }
        }
      }
    }
  }

  // Leaves what a warp has of its queries in its shared memory, from set `first_set` on.
  __device__ void keep(uint8_t* memory, int first_set = 0) {
    auto* outs = reinterpret_cast<float*>(memory);
    auto* stats = reinterpret_cast<float2*>(memory + Memory::kOfWarp - kQueryTile * 8);
    constexpr int kPairs = Memory::kValueDims / 2;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        float* row = outs + query(first_set + set, q) * Memory::kOutRow;
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
          const int dim = (i / kPairs * 8 + lane() / 4) * Memory::kValueDims + i % kPairs * 2;
          *reinterpret_cast<float2*>(row + Memory::place(dim)) =
              make_float2(out_[set][i][q], out_[set][i][q + 2]);
        }
        float sum = sum_[set][q];
        for (int distance = 4; distance <= 16; distance *= 2) {
          sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        }
        if (lane() < 4) {
          const float minus = minus_base_[set][q];
          stats[query(first_set + set, q)] =
              make_float2(minus == INFINITY ? -INFINITY : -minus, sum);
        }
      }
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % kLanes); }
  static __device__ int query(int set, int q) { return set * kSet + lane() % 4 * 2 + q; }

  __device__ float power(int set, int i, float minus_base) const {
    const float power = fmaf(scores_[set][i], scale_[set][i % 2], minus_base);
    return (hidden_ >> (set * 4 + i) & 1) != 0 ? -INFINITY : power;
  }

  // Moves the bases of queries that have none yet, or a score far above it. Of others nothing
  // changes: they are multiplied by 1.
  __device__ void move_bases(float (&powers)[kSets][4]) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      float shrinks[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        float& minus_base = minus_base_[set][q];
        const bool none = minus_base == INFINITY;
        const float old = none ? 0 : minus_base;
        float largest = fmaxf(power(set, q, old), power(set, 2 + q, old));
        for (int distance = 4; distance <= 16; distance *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        }
        shrinks[q] = 1;
        if (largest > (none ? -INFINITY : kHighest)) {
          const float up = floorf(largest) - kStart;
          minus_base = old - up;
          // 2^-up, exactly.
          const auto exponent = 127 - static_cast<int>(fminf(up, 127));
          shrinks[q] = none ? 0 : __uint_as_float(static_cast<uint32_t>(exponent) << 23);
        }
        sum_[set][q] *= shrinks[q];
      }
      if (!kOnce || begun_) {
#pragma unroll
        for (auto& out : out_[set]) {
#pragma unroll
          for (int i = 0; i < 4; ++i) out[i] *= shrinks[i % 2];
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) powers[set][i] = power(set, i, minus_base_[set][i % 2]);
    }
  }

  const uint2* queries_;
  uint2 kept_[kKeepQueries ? D / 16 : 1];
  float scale_[kSets][2];
  float minus_base_[kSets][2];  // infinity: nothing was seen yet
  float sum_[kSets][2] = {};
  float out_[kSets][D / 16][4] = {};
  float scores_[kSets][4];
  uint32_t hidden_ = 0;  // bits of scores
  bool begun_ = false;   // whether `out` may be other than zeros
  uint32_t parts_[kSets][kParts][2];
};

}  // namespace lagoon::kernels::cuda
