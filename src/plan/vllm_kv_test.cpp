#include "plan/vllm_kv.h"

#include <gtest/gtest.h>

#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

VllmKv vllm(int64_t batched_tokens, bool draft = true) {
  static const Published kPublished = full_size();
  return {kPublished.target, draft ? &kPublished.draft : nullptr, kernels::CacheType::kFP8,
          batched_tokens};
}

// What vLLM printed, by the published recipe and two public benches.
TEST(VllmKv, PublishedFigures) {
  EXPECT_EQ(vllm(8192).block_bytes(), 589824);
  EXPECT_EQ(vllm(8192).blocks(12 * kGiB), 21845);
  EXPECT_EQ(vllm(8192).blocks_of(262144), 17474);
  EXPECT_EQ(vllm_kv_text(vllm(8192), 12 * kGiB, 262144),
            "327,717 tokens, Maximum concurrency for 262,144 tokens per request: 1.25x");
  EXPECT_NEAR(static_cast<double>(vllm(8192).bytes_of(262144)) / kGiB, 9.599, 5e-4);
  EXPECT_EQ(vllm(8192).longest(5 * kGiB), 128192);
  EXPECT_EQ(vllm(2048).tokens(59056 * int64_t{589824}, 262144), 926683);
  EXPECT_EQ(vllm(8192).tokens(16 * kGiB, 262144), 436961);
  EXPECT_EQ(vllm(8192).tokens(24 * kGiB, 262144), 655435);
  EXPECT_EQ(vllm(8192).blocks_of(103708), 6482 + 2 * 545);
}

TEST(VllmKv, GroupsWithoutADraft) {
  // 12 full and 36 sliding layers: groups of 12.
  EXPECT_EQ(vllm(8192, false).block_bytes(), 12 * 32768);
  EXPECT_EQ(vllm(8192, false).blocks_of(262144), 16384 + 3 * 545);
}

TEST(VllmKv, TooSmallAPool) {
  EXPECT_EQ(vllm(8192).longest(kGiB / 2), 0);
  EXPECT_EQ(
      vllm_too_small(262144, vllm(8192).bytes_of(262144), 5 * kGiB, vllm(8192).longest(5 * kGiB)),
      "To serve at least one request with the models's max seq len (262144), (9.6 GiB KV "
      "cache is needed, which is larger than the available KV cache memory (5.0 GiB). Based "
      "on the available memory, the estimated maximum model length is 128192.");
}

}  // namespace
}  // namespace lagoon::plan
