// The running softmax of a warp over blocks of 16 keys (attend.cuh), for one or two sets of eight
// queries. Set by set the arithmetic is the same, so that a query's bits do not depend on whether
// there are two.
//
// kOnce: for a warp that has one block or two, where each instruction runs about once and takes as
// long as it takes to come, and where registers are few. Then what can be is a loop, and values
// come when all probabilities are there: sums of values that move with a base move later.
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
    if constexpr (kOnce) shrinks_[0] = shrinks_[1] = 1;
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

  // kOnce: a lane's probabilities of a block, and back.
  __device__ void keep_parts(uint32_t to) const {
    static_assert(kSets == 1 && kParts == 2);
    const auto& parts = parts_[0];
    store_shared(to, make_uint4(parts[0][0], parts[0][1], parts[1][0], parts[1][1]));
  }
  __device__ void load_parts(uint32_t from) {
    const uint4 v = load_shared(from);
    auto& parts = parts_[0];
    parts[0][0] = v.x, parts[0][1] = v.y, parts[1][0] = v.z, parts[1][1] = v.w;
  }
  // Between values of the first block and of the second.
  __device__ void move_values() {
    if (__any_sync(0xffffffffu, shrinks_[0] != 1 || shrinks_[1] != 1)) shrink_values(0, shrinks_);
  }

  // What keep() does, in two parts. Bases and sums, behind the last weigh():
  __device__ void keep_stats(uint32_t stats) {
#pragma unroll
    for (int distance = 4; distance <= 16; distance *= 2) {
      sum_[0][0] += __shfl_xor_sync(0xffffffffu, sum_[0][0], distance);
      sum_[0][1] += __shfl_xor_sync(0xffffffffu, sum_[0][1], distance);
    }
    if (lane() >= 4) return;
    store_shared(stats + lane() * 16,
                 make_uint4(__float_as_uint(base_of(0)), __float_as_uint(sum_[0][0]),
                            __float_as_uint(base_of(1)), __float_as_uint(sum_[0][1])));
  }
  // The sums of values, in quads, as products leave them.
  __device__ void keep_quads(uint32_t quads) {
    static_assert(kSets == 1 && D / 16 == kQuads);
    quads += quad_of(lane() % 4, lane() / 4, 0) * 16;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float(&out)[4] = out_[0][i];
      store_shared(quads ^ i * 16, make_uint4(__float_as_uint(out[0]), __float_as_uint(out[1]),
                                              __float_as_uint(out[2]), __float_as_uint(out[3])));
    }
  }
  // Where they stand: dimensions 2 (8 group + i) and the next one of queries 2 t and 2 t + 1, in
  // the order of the first dimension's two queries, then the second's. Lanes that write a quad, or
  // those that read the eight of a group, do not meet in a bank.
  static constexpr int kQuads = 8;
  static __device__ int quad_of(int t, int group, int i) {
    return (t * kQuads + group) * kQuads + (i ^ (t * 2 + group % 2));
  }

  // Leaves what a warp has of its queries in its shared memory.
  __device__ void keep(uint8_t* memory) {
    auto* outs = reinterpret_cast<float*>(memory);
    auto* stats = reinterpret_cast<float2*>(memory + Memory::kOfWarp - kQueryTile * 8);
    constexpr int kPairs = Memory::kValueDims / 2;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        float* row = outs + query(set, q) * Memory::kOutRow;
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
          stats[query(set, q)] = make_float2(minus == INFINITY ? -INFINITY : -minus, sum);
        }
      }
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % kLanes); }
  __device__ float base_of(int q) const {
    return minus_base_[0][q] == INFINITY ? -INFINITY : -minus_base_[0][q];
  }
  __device__ void shrink_values(int set, const float (&shrinks)[2]) {
#pragma unroll
    for (auto& out : out_[set]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] *= shrinks[i % 2];
    }
  }
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
        const bool moves = largest > (none ? -INFINITY : kHighest);
        const float up = floorf(largest) - kStart;
        if (moves) minus_base = old - up;
        // 2^-up, exactly.
        const auto exponent = 127 - static_cast<int>(fmaxf(fminf(up, 127), -127));
        const float shrink = none ? 0 : __uint_as_float(static_cast<uint32_t>(exponent) << 23);
        shrinks[q] = moves ? shrink : 1;
        sum_[set][q] *= shrinks[q];
      }
      if constexpr (kOnce) {
        shrinks_[0] = shrinks[0];
        shrinks_[1] = shrinks[1];
      } else {
        shrink_values(set, shrinks);
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
  uint32_t parts_[kSets][kParts][2];
  float shrinks_[2];  // kOnce: of the last weigh()
};

}  // namespace lagoon::kernels::cuda
