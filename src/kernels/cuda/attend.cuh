// What a warp of attention does with blocks of 16 keys: it copies them to a ring of its own in
// shared memory, multiplies them with queries, and weighs the values.
//
// Keys, later dimensions of values, stand on the 16-row side of mma.m16n8k16, eight queries on the
// other, so that few queries cost little; a second set of eight shares what was read and decoded.
// FP8 is decoded to F16, which holds every code. A query becomes F16 times a power of two of its
// own (its largest number just below 2^15, so that what is lost is less than 2^-39 of that), and a
// probability the sum of two F16 numbers. A BF16 cache meets queries as they are and the sum of
// three BF16 numbers. Both are all 24 bits of a probability, up to a rounding as FP32's own.
//
// The softmax is online (Dao, "FlashAttention-2", 2023), but its base, a whole power of two, moves
// only where a score is far above it. Whether it does is a matter of a query's own scores.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {

inline constexpr int kAttendWarps = 8;
inline constexpr int kKeyStep = kAttendWarps * kKeyBlock;  // from a block of a warp to its next
inline constexpr int kSet = 8;                             // queries of a product
// Probabilities are relative to a base 2^kStart below the largest one, to the next power of two,
// when it is set. It is moved before one exceeds 2^kHighest, which F16 can hold.
inline constexpr float kStart = 7;
inline constexpr float kHighest = 15;

// What lies where in shared memory.
template <int D, bool kFP8>
struct AttendMemory {
  static constexpr int kElement = kFP8 ? 1 : 2;
  static constexpr int kRow = D * kElement;  // bytes of a key
  static constexpr int kBlock = kKeyBlock * kRow;
  // A lane copies and reads pieces: of keys g and g + 8, and of values 2 t, 2 t + 1, 2 t + 8 and
  // 2 t + 9. Lanes take pieces of a key in turn, so that whole sectors of memory are asked for.
  static constexpr int kKeyPiece = kRow / 4 < 16 ? kRow / 4 : 16;
  static constexpr int kKeyPieces = kRow / 4 / kKeyPiece;
  static constexpr int kValuePiece = kRow / 8 < 16 ? kRow / 8 : 16;
  static constexpr int kValuePieces = kRow / 8 / kValuePiece;
  static constexpr int kValueDims = kValuePiece / kElement;
  // Blocks of keys, and of values, that are under way.
  static constexpr int kStages = kFP8 ? 2 : 1;
  static constexpr int kGroups = 2 * kStages;

  // Afterwards, the sums of a warp in the same place: each query's dimensions with two floats
  // behind those of a lane, and rows such that lanes do not meet in a bank. Then base and sum.
  static constexpr int kSpread = D + 2 * (D / kValueDims);
  static constexpr int kOutRow = (kSpread + 11) / 16 * 16 + 4;
  static constexpr int kOuts = kQueryTile * kOutRow * 4;
  static constexpr int kRing = kStages * 2 * kBlock;
  static constexpr int kOfWarp = (kRing > kOuts ? kRing : kOuts) + kQueryTile * 8;
  static __device__ int place(int dim) { return dim + dim / kValueDims * 2; }

  static constexpr int kQueries = kAttendWarps * kOfWarp;  // where they lie, in order of products
  static constexpr int kBytes = kQueries + kQueryTile * D * 2;
  static_assert(kBytes + 1024 <= 99 * 1024);  // of a block on GPUs of 8.6, 8.9 and 12
};

// ---- Numbers

// c += a b: a [16, 16], b [16, 8], c [16, 8] FP32; F16, or BF16.
template <bool kHalf>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (kHalf) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    mma(c, a[0], a[1], a[2], a[3], b0, b1);
  }
}

template <bool kHalf>
__device__ inline uint32_t pair_of(float low, float high) {
  if constexpr (!kHalf) return to_pair(low, high);
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <bool kHalf>
__device__ inline float2 values_of(uint32_t pair) {
  if constexpr (!kHalf) return {from_bits(pair & 0xffff), from_bits(pair >> 16)};
  float2 values;
  asm("{.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.f32.f16 %0, low;\n"
      "cvt.f32.f16 %1, high;}"
      : "=f"(values.x), "=f"(values.y)
      : "r"(pair));
  return values;
}

// The e4m3 codes of the lower or upper half of a word, as F16.
template <bool kUpper>
__device__ inline uint32_t decode_half(uint32_t codes) {
  uint32_t pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if constexpr (kUpper) {
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, high;}"
        : "=r"(pair)
        : "r"(codes));
  } else {
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;}"
        : "=r"(pair)
        : "r"(codes));
  }
#else
  // The codes in the upper bytes of the halves, times 2^8.
  const uint32_t spread = __byte_perm(codes, 0, kUpper ? 0x3424 : 0x1404);
  const uint32_t number = (spread & 0x80008000u) | (spread >> 1 & 0x3F803F80u);
  asm("fma.rn.f16x2 %0, %1, %2, %3;"
      : "=r"(pair)
      : "r"(number), "r"(0x5C005C00u), "r"(0x80008000u));
#endif
  return pair;
}

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of an 8 x 8 matrix of 16-bit numbers, two of a row in each lane.
__device__ inline uint32_t transpose(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// ---- Pieces

// Zeros where it is not valid; `from` is an address of the cache all the same.
template <int kBytes>
__device__ inline void copy_piece(uint32_t to, const uint8_t* from, bool valid) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
  } else if constexpr (kBytes >= 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(valid ? kBytes : 0)
                 : "memory");
  } else {  // two bytes, which no such copy takes
    const uint16_t codes = valid ? *reinterpret_cast<const uint16_t*>(from) : uint16_t{0};
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(codes) : "memory");
  }
}

template <int kBytes>
__device__ inline void load_piece(uint32_t from, uint32_t (&words)[kBytes < 4 ? 1 : kBytes / 4]) {
  if constexpr (kBytes == 16) {
    const uint4 v = load_shared(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if constexpr (kBytes >= 4) {
    for (int i = 0; i < kBytes / 4; ++i) words[i] = load_shared_word(from + i * 4);
  } else {
    uint16_t codes;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(codes) : "r"(from) : "memory");
    words[0] = codes;
  }
}

__device__ inline void store_shared(uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- Keys on their way

// The blocks of keys that a warp takes from a chunk, in order.
template <int D, bool kFP8>
class KeySource {
  using Memory = AttendMemory<D, kFP8>;

 public:
  // `pages` null: the block of the cache is `block`, a ring. `key` is the first of the warp's first
  // block, `end` lies behind the last key.
  __device__ KeySource(const CacheView& cache, const int32_t* pages, int block, int kv_head,
                       int key, int end, int lowest, int highest)
      : cache_(cache),
        pages_(pages),
        head_(kv_head * cache.block_tokens),
        key_(key),
        end_(end),
        lowest_(lowest),
        highest_(highest),
        index_(key / cache.block_tokens),
        offset_(key - index_ * cache.block_tokens),
        block_(block) {
    find_page();
  }

  // Brings what the ring will take first near. Nothing is read, so that it may be written yet.
  __device__ void prefetch_first() {
    if (key_ >= end_) return;
    const int64_t at = place();
    for (int i = threadIdx.x % kLanes * 128; i < 2 * Memory::kBlock; i += kLanes * 128) {
      prefetch(i < Memory::kBlock ? cache_.keys + at + i : cache_.values + at + i - Memory::kBlock);
    }
  }

  // Groups of copies, with nothing in them behind the end.
  __device__ void copy_keys(uint32_t to) {
    if (key_ < end_) {
      const int lane = threadIdx.x % kLanes;
      at_ = place();
      const uint8_t* from =
          cache_.keys + at_ + lane / 4 * Memory::kRow + lane % 4 * Memory::kKeyPiece;
#pragma unroll
      for (int i = 0; i < 2 * Memory::kKeyPieces; ++i) {
        // Keys that nobody sees count for nothing, whatever they are.
        copy_piece<Memory::kKeyPiece>(
            to + (i * kLanes + lane) * Memory::kKeyPiece,
            from + i % 2 * 8 * Memory::kRow + i / 2 * 4 * Memory::kKeyPiece, true);
      }
    }
    commit_copies();
  }
  __device__ void copy_values(uint32_t to) {
    if (key_ < end_) {
      const int lane = threadIdx.x % kLanes;
      const int first = lane % 4 * 2;
      const uint8_t* from =
          cache_.values + at_ + first * Memory::kRow + lane / 4 * Memory::kValuePiece;
      const bool whole = key_ >= lowest_ && key_ + kKeyBlock - 1 <= highest_;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = i % 2 + i / 2 * 8;
        const int position = key_ + first + key;
        const bool valid = whole || (position >= lowest_ && position <= highest_);
#pragma unroll
        for (int piece = 0; piece < Memory::kValuePieces; ++piece) {
          copy_piece<Memory::kValuePiece>(
              to + ((i * Memory::kValuePieces + piece) * kLanes + lane) * Memory::kValuePiece,
              from + key * Memory::kRow + piece * 8 * Memory::kValuePiece, valid);
        }
      }
      advance();
    }
    commit_copies();
  }

 private:
  __device__ int64_t place() const {
    return (int64_t{block_} * (cache_.kv_heads * cache_.block_tokens) + (head_ + offset_)) *
           Memory::kRow;
  }
  __device__ void find_page() {
    if (pages_ != nullptr && key_ < end_) block_ = __ldcg(pages_ + index_);
  }
  __device__ void advance() {
    key_ += kKeyStep;
    offset_ += kKeyStep;
    while (offset_ >= cache_.block_tokens) {
      offset_ -= cache_.block_tokens;
      ++index_;
    }
    find_page();
  }

  const CacheView& cache_;
  const int32_t* pages_;
  int head_;
  int key_, end_, lowest_, highest_;
  int index_, offset_;  // of page, and in it
  int block_;
  int64_t at_ = 0;
};

// ---- Queries

// A block's queries in shared memory as products take them: of set n, product j, lane: two words.
template <int D, bool kFP8>
__device__ inline int query_word(int query, int dim) {
  using Memory = AttendMemory<D, kFP8>;
  constexpr int kDims = Memory::kKeyPiece / Memory::kElement;
  const int piece = dim / (4 * kDims);
  const int t = dim / kDims % 4;
  const int pair = piece * (kDims / 2) + dim % kDims / 2;
  const int lane = query % kSet * 4 + t;
  return ((query / kSet * (D / 16) + pair / 2) * kLanes + lane) * 2 + pair % 2;
}

// What one of sixteen lanes has of a query.
template <int D>
struct QueryPart {
  static constexpr int kPairs = D / 32 < 1 ? 1 : D / 32;
  uint32_t pairs[kPairs] = {};

  static __device__ int first() { return static_cast<int>(threadIdx.x % 16) * kPairs; }
  // `from` null: one that is not there.
  __device__ void load(const Bits16* from) {
    if (from == nullptr || first() >= D / 2) return;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      pairs[i] = reinterpret_cast<const uint32_t*>(from)[first() + i];
    }
  }
};

// Sixteen lanes bring a query there. Returns what a score has to be multiplied by.
template <int D, bool kFP8>
__device__ inline float store_query(uint32_t* queries, int query, QueryPart<D> part) {
  auto& pairs = part.pairs;
  float inverse = 1;
  if constexpr (kFP8) {
    uint32_t largest = 0;
#pragma unroll
    for (const uint32_t pair : pairs) {
      largest = max(largest, max(pair & 0x7fff, pair >> 16 & 0x7fff));
    }
    for (int distance = 8; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    // 2^(14 - exponent); a query that is next to nothing stays small.
    const uint32_t exponent = 268 - max(largest >> 7, 15u);
    const float factor = __uint_as_float(exponent << 23);
    inverse = __uint_as_float((254 - exponent) << 23);
#pragma unroll
    for (uint32_t& pair : pairs) {
      pair = pair_of<true>(from_bits(pair & 0xffff) * factor, from_bits(pair >> 16) * factor);
    }
  }
  if (part.first() < D / 2) {
#pragma unroll
    for (int i = 0; i < part.kPairs; ++i) {
      queries[query_word<D, kFP8>(query, 2 * (part.first() + i))] = pairs[i];
    }
  }
  return inverse;
}

}  // namespace lagoon::kernels::cuda
