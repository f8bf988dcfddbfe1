#include "app/plan_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/make_backend.h"

namespace lagoon::app {
namespace {

using ::testing::HasSubstr;

const std::string kModels = std::string(LAGOON_SOURCE_DIR) + "/models/";

// The bundled pair.
struct Pair {
  checkpoint::ModelDir target = checkpoint::ModelDir::open(kModels + "laguna-nano-nvfp4").value();
  checkpoint::ModelDir draft =
      checkpoint::ModelDir::open(kModels + "laguna-nano-dflash-nvfp4").value();
  checkpoint::TargetConfig config =
      checkpoint::parse_target_config(target.config_json(), "config.json").value();
  std::unique_ptr<kernels::Backend> backend = make_backend("cpu", 2).value();
};

TEST(CacheType, AutoIsWhatTheCheckpointSays) {
  using kernels::CacheType;
  for (const bool fp8 : {false, true}) {
    checkpoint::TargetConfig config;
    config.fp8_cache = fp8;
    EXPECT_EQ(cache_type("auto", config), fp8 ? CacheType::kFP8 : CacheType::kActivations);
    EXPECT_EQ(cache_type("bfloat16", config), CacheType::kActivations);
    EXPECT_EQ(cache_type("fp8", config), CacheType::kFP8);
    EXPECT_EQ(cache_type("fp8_e4m3", config), CacheType::kFP8);
  }
}

TEST(PlanMemory, TheBundledPair) {
  const Pair pair;
  const auto planned = plan_model({}, {pair.target, pair.config, &pair.draft}, *pair.backend);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(planned->load.max_length, 16384);
  EXPECT_EQ(planned->load.pool_tokens, 4 * 16384);
  EXPECT_EQ(planned->load.slots, 4);
  EXPECT_FALSE(planned->load.random.has_value());
}

TEST(PlanMemory, OptionsReachThePlan) {
  const Pair pair;
  ModelOptions options;
  options.max_length = 1000;
  options.slots = 2;
  options.max_batched_tokens = 64;
  options.kv_cache_bytes = 4 << 20;
  options.kv_cache_dtype = "fp8";
  options.memory_utilization = 0.5;
  const auto planned = plan_model(options, {pair.target, pair.config}, *pair.backend);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_EQ(planned->load.max_length, 1000);
  EXPECT_EQ(planned->load.max_rows, 64);
  EXPECT_EQ(planned->load.cache_type, kernels::CacheType::kFP8);
  EXPECT_EQ(planned->load.pool_tokens,
            plan::pool_positions(4 << 20, pair.config, kernels::CacheType::kFP8));
  EXPECT_EQ(planned->demand.utilization, 0.5);
  EXPECT_FALSE(planned->demand.draft.has_value());
}

// Rings hold the rows of proposals that come from elsewhere.
TEST(PlanMemory, ProposalsWithoutADraftTakeRings) {
  const Pair pair;
  ModelOptions options;
  const auto rings = [&] {
    const auto planned = plan_model(options, {pair.target, pair.config}, *pair.backend);
    EXPECT_EQ(planned->load.foreign_proposals, options.foreign_proposals);
    const auto& items = planned->plan.items;
    return std::ranges::find(items, "rings", &plan::MemoryPlan::Item::name)->bytes;
  };
  const int64_t none = rings();
  options.foreign_proposals = 64;
  const int64_t sliding =
      std::ranges::count_if(pair.config.layers, [](const auto& layer) { return layer.sliding; });
  const int64_t position = int64_t{4} * pair.config.kv_heads * pair.config.head_dim;
  EXPECT_EQ(rings() - none, position * 64 * options.slots * sliding);
}

TEST(PlanMemory, APoolThatIsTooSmall) {
  const Pair pair;
  ModelOptions options;
  options.kv_cache_bytes = 100 << 10;
  const auto refused = plan_model(options, {pair.target, pair.config}, *pair.backend);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("the estimated maximum model length is"));
  options.kv_cache_bytes = 1 << 20;
  options.fit_length = true;
  const auto fitted = plan_model(options, {pair.target, pair.config}, *pair.backend);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_EQ(fitted->load.max_length, fitted->load.pool_tokens);
}

// A share of the machine that the pair does not fit into.
TEST(PlanMemory, AShareThatIsTooSmall) {
  const Pair pair;
  ModelOptions options;
  options.slots = 512;
  options.memory_utilization = 0.01;
  options.max_batched_tokens = 1 << 20;
  const auto refused = plan_model(options, {pair.target, pair.config}, *pair.backend);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--gpu-memory-utilization"));
}

TEST(PlanMemory, RowsForEveryRequest) {
  const Pair pair;
  ModelOptions options;
  options.slots = 4;
  options.max_batched_tokens = 3;
  const auto refused = make_demand(options, pair.config, *pair.backend);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--max-num-batched-tokens is 3"));
}

// Weights that are made take the same memory as the checkpoint's.
TEST(PlanMemory, RandomWeights) {
  const Pair pair;
  ModelOptions options;
  options.dummy = true;
  const auto random = plan_model(options, {pair.target, pair.config}, *pair.backend);
  options.dummy = false;
  const auto stored = plan_model(options, {pair.target, pair.config}, *pair.backend);
  ASSERT_TRUE(random.ok() && stored.ok());
  EXPECT_EQ(random->demand.weights.packed_bytes(plan::Layout::kCpu),
            stored->demand.weights.packed_bytes(plan::Layout::kCpu));
  EXPECT_TRUE(random->load.random.has_value());
}

}  // namespace
}  // namespace lagoon::app
