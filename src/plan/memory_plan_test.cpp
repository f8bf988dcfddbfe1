#include "plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

// The published recipe: the pair, 262,144 tokens, 4 requests, steps of 8,192 rows, a pool of 12
// GiB.
Demand recipe() {
  static const Published kPublished = full_size();
  Demand demand;
  demand.target = kPublished.target;
  demand.weights = kPublished.weights;
  demand.draft = kPublished.draft;
  demand.draft_weights = kPublished.draft_weights;
  demand.layout = Layout::kCuda;
  demand.cache_type = kernels::CacheType::kFP8;
  demand.staging_bytes = 256 << 20;
  demand.max_length = 262144;
  demand.slots = 4;
  demand.max_rows = 8192;
  demand.pool_bytes = 12 * kGiB;
  return demand;
}

// A machine whose GPU shares the host's memory.
Machine machine(int64_t total, int64_t available) {
  Machine made;
  made.host.total = total;
  made.host.available = available;
  made.device = "cuda:0";
  return made;
}

const int64_t kTotal = static_cast<int64_t>(121.69 * kGiB);

int64_t item(const MemoryPlan& plan, const std::string& name) {
  for (const auto& entry : plan.items) {
    if (entry.name == name) return entry.bytes;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

TEST(MemoryPlan, TheRecipeFits) {
  const MemoryPlan plan = make_plan(recipe(), machine(kTotal, 117 * kGiB));
  EXPECT_EQ(plan.refusal, "");
  EXPECT_EQ(plan.pool_tokens, 524288);
  EXPECT_EQ(item(plan, "keys and values"), 12 * kGiB);
  EXPECT_NEAR(static_cast<double>(item(plan, "weights")) / kGiB, 67.9, 0.8);
  EXPECT_NEAR(static_cast<double>(item(plan, "draft")) / kGiB, 2.08, 0.03);
  EXPECT_EQ(item(plan, "staging"), 256 << 20);
  int64_t sum = 0;
  for (const auto& entry : plan.items) sum += entry.bytes;
  EXPECT_EQ(plan.host_bytes(), sum);
  EXPECT_EQ(plan.device_bytes(), 0);
  EXPECT_EQ(kv_lines(plan, recipe(), 8192),
            "GPU KV cache size: 327,717 tokens, Maximum concurrency for 262,144 tokens per "
            "request: 1.25x (vLLM's formula)\n"
            "Lagoon KV cache size: 524,288 tokens, Maximum concurrency for 262,144 tokens per "
            "request: 2.00x");
}

TEST(MemoryPlan, TheTableHasEveryItemAndTheSum) {
  const Machine spark = machine(kTotal, 117 * kGiB);
  const std::string table = to_table(make_plan(recipe(), spark), spark);
  EXPECT_THAT(table, HasSubstr("117.00 of 121.69 GiB of the host are free (MemAvailable)"));
  for (const char* name : {"weights", "draft", "keys and values", "rings", "graphs and scratch",
                           "staging", "reserve", "total"}) {
    EXPECT_THAT(table, HasSubstr(std::string("\n  ") + name)) << name;
  }
  EXPECT_THAT(table, HasSubstr("145,153 tensors, 71.90 GB stored, experts: NVFP4 in layers 1-47"));
}

// The pin of two machines, of which each has half of the keys and values.
TEST(MemoryPlan, TooSmallAPin) {
  Demand demand = recipe();
  demand.pool_bytes = 5 * kGiB;
  const MemoryPlan plan = make_plan(demand, machine(kTotal, 117 * kGiB));
  EXPECT_THAT(plan.refusal,
              AllOf(HasSubstr("To serve at least one request with the models's max seq len "
                              "(262144), (6.0 GiB KV cache is needed, which is larger than the "
                              "available KV cache memory (5.0 GiB). Based on the available memory, "
                              "the estimated maximum model length is 218432."),
                    HasSubstr("Here --kv-cache-memory-bytes 6442450944 fits.")));
  EXPECT_THAT(kv_lines(plan, demand, 8192),
              AllOf(HasSubstr("vLLM would say: To serve at least one"),
                    HasSubstr("the estimated maximum model length is 128192."),
                    HasSubstr("Lagoon's estimated maximum model length is 218432")));
  demand.fit_length = true;
  const MemoryPlan shorter = make_plan(demand, machine(kTotal, 117 * kGiB));
  EXPECT_EQ(shorter.refusal, "");
  EXPECT_EQ(shorter.max_length, 218432);
}

// What vLLM could not serve: the line that scripts look for is there all the same.
TEST(MemoryPlan, APoolThatIsEnoughForLagoonAlone) {
  Demand demand = recipe();
  demand.pool_bytes = 6 * kGiB;
  EXPECT_THAT(
      kv_lines(make_plan(demand, machine(kTotal, 117 * kGiB)), demand, 8192),
      AllOf(HasSubstr("vLLM would say: To serve at least one"),
            HasSubstr("\nGPU KV cache size: 262,144 tokens, Maximum concurrency for 262,144 "
                      "tokens per request: 1.00x (Lagoon's)")));
}

// --gpu-memory-utilization is a cap: 0.85 of the machine need not be free, where less is needed.
TEST(MemoryPlan, UtilizationIsACapAndNoDemand) {
  Demand demand = recipe();
  demand.utilization = 0.85;  // 103.4 GiB
  EXPECT_EQ(make_plan(demand, machine(kTotal, 96 * kGiB)).refusal, "");
  demand.utilization = 0.5;
  const std::string refusal = make_plan(demand, machine(kTotal, 117 * kGiB)).refusal;
  EXPECT_THAT(refusal, AllOf(HasSubstr("No available memory for the cache blocks. Try increasing "
                                       "`gpu_memory_utilization` when initializing the engine."),
                             HasSubstr("--gpu-memory-utilization 0.5 allows 60.84 of 121.69 GiB"),
                             HasSubstr("Here --gpu-memory-utilization 0.7")));
}

TEST(MemoryPlan, UtilizationSizesThePool) {
  Demand demand = recipe();
  demand.pool_bytes = 0;
  demand.utilization = 0.85;
  const MemoryPlan plan = make_plan(demand, machine(kTotal, 117 * kGiB));
  EXPECT_EQ(plan.refusal, "");
  const int64_t cap = static_cast<int64_t>(0.85 * static_cast<double>(kTotal));
  const int64_t taken = plan.host_bytes() - item(plan, "reserve");
  EXPECT_LE(taken, cap);
  EXPECT_GE(plan.pool_tokens, 262144);
  EXPECT_LE(plan.pool_tokens, 4 * 262144);
}

TEST(MemoryPlan, TooLittleFreeMemory) {
  Machine full = machine(kTotal, 40 * kGiB);
  full.holders = {{.process = 4711, .name = "vllm", .bytes = 70 * kGiB}};
  const std::string refusal = make_plan(recipe(), full).refusal;
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("Free memory on device cpu (40.00/121.69 GiB) on startup is less "
                              "than desired GPU memory utilization (0."),
                    HasSubstr("Decrease GPU memory utilization or reduce GPU memory used by other "
                              "processes."),
                    HasSubstr("No option makes it fit"),
                    HasSubstr("The largest holder is vllm (process 4711) with 70.00 GiB.")));
}

// 4 GiB short: a smaller pool, or without a pin a shorter context, would fit, and is named.
TEST(MemoryPlan, TheRemedyFits) {
  const int64_t needed = make_plan(recipe(), machine(kTotal, kTotal)).host_bytes();
  const Machine tight = machine(kTotal, needed - 4 * kGiB);
  std::string refusal = make_plan(recipe(), tight).refusal;
  const auto number_after = [&](const std::string& words) -> int64_t {
    const size_t at = refusal.find(words);
    EXPECT_NE(at, std::string::npos) << refusal;
    return at == std::string::npos ? 0 : std::stoll(refusal.substr(at + words.size()));
  };
  Demand changed = recipe();
  changed.pool_bytes = number_after("Here --kv-cache-memory-bytes ");
  EXPECT_EQ(make_plan(changed, tight).refusal, "");

  changed = recipe();
  changed.pool_bytes = 0;
  const Machine tighter = machine(kTotal, needed - 8 * kGiB);
  refusal = make_plan(changed, tighter).refusal;
  EXPECT_THAT(refusal, HasSubstr("To serve at least one request"));
  changed.max_length = number_after("Here --max-model-len ");
  EXPECT_LT(changed.max_length, 262144);
  EXPECT_EQ(make_plan(changed, tighter).refusal, "");
}

TEST(MemoryPlan, AControlGroupLimitsIt) {
  Machine grouped = machine(kTotal, 117 * kGiB);
  grouped.host.cgroup = CgroupMemory{.group = "/lagoon.scope",
                                     .version = 2,
                                     .limit = 64 * kGiB,
                                     .usage = 2 * kGiB,
                                     .inactive_file = kGiB};
  const std::string refusal = make_plan(recipe(), grouped).refusal;
  EXPECT_THAT(refusal, AllOf(HasSubstr("(63.00/64.00 GiB)"),
                             HasSubstr("The limit is that of the control group /lagoon.scope")));
  grouped.host.cgroup->limit = 118 * kGiB;
  EXPECT_EQ(make_plan(recipe(), grouped).refusal, "");
}

TEST(MemoryPlan, ADeviceWithMemoryOfItsOwn) {
  Machine card = machine(64 * kGiB, 60 * kGiB);
  card.device_memory = kernels::DeviceMemory{.free = 139 * kGiB, .total = 140 * kGiB};
  const MemoryPlan plan = make_plan(recipe(), card);
  EXPECT_EQ(plan.refusal, "");
  EXPECT_EQ(plan.host_bytes(), (256 << 20) + host_reserve(64 * kGiB));
  EXPECT_GT(plan.device_bytes(), 80 * kGiB);
  card.device_memory->free = 80 * kGiB;
  EXPECT_THAT(make_plan(recipe(), card).refusal,
              HasSubstr("Free memory on device cuda:0 (80.00/140.00 GiB)"));
  card.device_memory->free = 139 * kGiB;
  card.host.available = kGiB / 8;
  EXPECT_THAT(make_plan(recipe(), card).refusal, HasSubstr("Free memory on device cpu (0.12/64"));
}

// The revision of 2026-08-01 does not fit beside the recipe's pool.
TEST(MemoryPlan, TheLaterRevision) {
  Demand demand = recipe();
  demand.weights = full_size(kLaterRevision).weights;
  const std::string refusal = make_plan(demand, machine(kTotal, 112 * kGiB)).refusal;
  EXPECT_THAT(refusal, HasSubstr("Free memory on device cpu (112.00/121.69 GiB)"));
}

TEST(MemoryPlan, PositionsOfFullLayers) {
  checkpoint::TargetConfig config;
  config.kv_heads = 8;
  config.head_dim = 128;
  for (int i = 0; i < 48; ++i) config.layers.push_back({.sliding = i % 4 != 0, .sparse = true});
  using kernels::CacheType;
  EXPECT_EQ(position_bytes(config, CacheType::kActivations), 12 * 2 * 8 * 128 * 2);
  // Laguna-S: 6 GiB of FP8 are a full context of 262,144.
  EXPECT_EQ(pool_positions(6 * kGiB, config, CacheType::kFP8), 262144);
  EXPECT_EQ(pool_positions(6 * kGiB - 1, config, CacheType::kFP8), 262144 - 64);
}

TEST(MemoryPlan, TheReserve) {
  EXPECT_EQ(host_reserve(kGiB), kGiB / 4);
  EXPECT_EQ(host_reserve(100 * kGiB), 3 * kGiB);
  EXPECT_EQ(host_reserve(2048 * kGiB), 4 * kGiB);
}

}  // namespace
}  // namespace lagoon::plan
