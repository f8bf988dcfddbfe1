// How vLLM 0.25 sizes the keys and values of a hybrid model (v1/core/kv_cache_utils.py): layers of
// one kind form groups of equal size, and a block of 16 positions is taken for a whole group.
// Lagoon needs less; the figures are for scripts, dashboards and recipes that go by vLLM's.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/config.h"
#include "kernels/ops.h"

namespace lagoon::plan {

inline constexpr int64_t kVllmBatchedTokens = 2048;  // its --max-num-batched-tokens unless given

class VllmKv {
 public:
  // `draft` may be null. Its sliding layers count as full ones, which is the one split that gives
  // the published figures. `batched_tokens`: --max-num-batched-tokens.
  VllmKv(const checkpoint::TargetConfig& target, const checkpoint::DraftConfig* draft,
         kernels::CacheType cache_type, int64_t batched_tokens);

  int64_t block_bytes() const { return block_bytes_; }
  int64_t blocks(int64_t pool_bytes) const { return pool_bytes / block_bytes_; }
  // Blocks, and bytes, that one request of that many positions takes.
  int64_t blocks_of(int64_t length) const;
  int64_t bytes_of(int64_t length) const { return blocks_of(length) * block_bytes_; }
  double concurrency(int64_t pool_bytes, int64_t length) const;
  int64_t tokens(int64_t pool_bytes, int64_t length) const;
  // The longest request that the pool holds; 0: none.
  int64_t longest(int64_t pool_bytes) const;

 private:
  int64_t block_bytes_ = 0;
  int64_t full_groups_ = 0;
  int64_t sliding_blocks_ = 0;  // of one request, all groups together
};

// "327,717 tokens, Maximum concurrency for 262,144 tokens per request: 1.25x"
std::string vllm_kv_text(const VllmKv& vllm, int64_t pool_bytes, int64_t length);

// 16384 as "16,384".
std::string grouped(int64_t number);

// Where the pool cannot hold one request of `length`: vLLM's sentence, of which scripts read the
// figures, up to the remedy. Sizes have two decimals at most.
std::string vllm_too_small(int64_t length, int64_t needed_bytes, int64_t pool_bytes,
                           int64_t longest);

}  // namespace lagoon::plan
