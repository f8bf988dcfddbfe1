#include "plan/speed.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/ref/backend.h"
#include "model/test_backend.h"
#include "plan/family.h"
#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

ByteModel published_pair() {
  const Published published = full_size();
  return {published.target, published.weights, &published.draft_weights, kernels::CacheType::kFP8};
}

TEST(ByteModel, BytesOfAStep) {
  const ByteModel model = published_pair();
  EXPECT_NEAR(model.step_bytes(1, 512) / 1e9, 9.96, 0.01);
  // 6 GiB of keys and values in full layers at 262,144.
  EXPECT_NEAR((model.step_bytes(1, 262144) - model.step_bytes(1, 512)) / (int64_t{1} << 30), 6,
              0.02);
  EXPECT_NEAR(model.draft_bytes() / 1e9, 2.23 + 0.6166, 0.005);
  EXPECT_EQ(model.counted_bytes(10, 2048, 1), model.step_bytes(1, 2048));
  // Four streams at 131,072: keys and values of each, weights of the experts that were counted.
  const double positions = 2.0 * 8 * 128 * (12 * 131072.0 + 36 * 512);
  EXPECT_NEAR(model.counted_bytes(36.5, 131072, 4) - model.counted_bytes(36.5, 0, 4), 4 * positions,
              1);
  EXPECT_NEAR((model.counted_bytes(11, 0, 1) - model.counted_bytes(10, 0, 1)) / 1e9, 0.2495,
              0.0005);
}

TEST(ByteModel, BytesOfADraft) {
  const ByteModel model = published_pair();
  const checkpoint::DraftConfig config = full_size().draft;
  // Six taps of 3,072 are 113 MB; a context of 512 positions of six layers is 12.6 MB a stream.
  EXPECT_NEAR(model.draft_bytes(config, 0, 1, true), model.draft_bytes(), 1);
  EXPECT_NEAR(model.draft_bytes(config, 0, 1, true) - model.draft_bytes(config, 0, 1, false),
              2.0 * 6 * 3072 * 3072, 1);
  EXPECT_NEAR(model.draft_bytes(config, 4096, 4, true) - model.draft_bytes(), 4 * 512 * 24576, 1);
}

// One Spark under vLLM: 18.9 tok/s without a draft are 189 GB/s; 42.9 were measured with k = 6.
TEST(ByteModel, PublishedSpeeds) {
  const ByteModel model = published_pair();
  const double rate = 18.9 * model.step_bytes(1, 512);
  EXPECT_NEAR(model.tokens_per_second(0, 512, rate), 18.9, 1e-6);
  EXPECT_NEAR(model.tokens_per_second(6, 512, rate), 42.9, 2);
  EXPECT_GT(model.tokens_per_second(6, 512, rate), model.tokens_per_second(6, 65536, rate));
}

TEST(ByteModel, TokensPerStep) {
  EXPECT_EQ(published_tokens_per_step(0), 1);
  EXPECT_NEAR(published_tokens_per_step(6), 4.70, 1e-9);
  EXPECT_NEAR(published_tokens_per_step(7), 4.70 + 0.39 * 0.8, 1e-9);
}

TEST(ByteModel, DistinctExperts) {
  EXPECT_EQ(distinct_experts(256, 10, 1), 10);
  EXPECT_NEAR(distinct_experts(256, 10, 6), (36.1 + 43.3) / 2, 1e-9);
  EXPECT_NEAR(distinct_experts(256, 8, 1), 8, 1e-9);
  EXPECT_NEAR(distinct_experts(256, 8, 2), 15.75, 1e-9);
  EXPECT_EQ(distinct_experts(0, 0, 3), 0);
}

TEST(ReadRate, IsThatOfAMemory) {
  const double rate = measure_read_rate(2);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e14);
}

// A device that has room for a copy of so many bytes.
class CopyingBackend final : public model::testing::WatchedBackend {
 public:
  CopyingBackend(int64_t room, bool own_memory)
      : WatchedBackend(kernels::ref::make_backend(kernels::Activations::kBFloat16, 1)),
        room_(room),
        own_memory_(own_memory) {}
  std::optional<double> measure_read_rate(int64_t bytes) override {
    return bytes <= room_ ? std::optional<double>(static_cast<double>(bytes)) : std::nullopt;
  }
  std::optional<kernels::DeviceMemory> device_memory() const override {
    if (!own_memory_) return std::nullopt;
    return kernels::DeviceMemory{.free = room_, .total = room_};
  }

 private:
  const int64_t room_;
  const bool own_memory_;
};

TEST(MeasureMemoryRate, OfTheMemoryThatIsComputedFrom) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  CopyingBackend roomy(8 * kGiB, true);
  EXPECT_EQ(measure_memory_rate(roomy, 4 * kGiB, 1), 4.0 * kGiB);
  CopyingBackend narrow(kGiB, true);
  EXPECT_EQ(measure_memory_rate(narrow, 4 * kGiB, 1), 1.0 * kGiB);
  // No figure rather than that of another memory.
  CopyingBackend full(kGiB / 8, true);
  EXPECT_EQ(measure_memory_rate(full, 4 * kGiB, 1), 0);
  CopyingBackend host(0, false);
  EXPECT_GT(measure_memory_rate(host, 4 * kGiB, 1), 1e8);
}

TEST(Family, ByTheConfig) {
  const Published published = full_size();
  EXPECT_EQ(family_of(published.target), "Laguna S 2.1");
  EXPECT_NE(revision_class(published.target, published.weights).find("07614121b3 of 2026-07-22"),
            std::string::npos);
  const Published later = full_size(kLaterRevision);
  EXPECT_NE(revision_class(later.target, later.weights).find("f8fdfcdc4e of 2026-08-01"),
            std::string::npos);
  checkpoint::TargetConfig small;
  small.hidden = 256;
  small.layers.resize(8);
  EXPECT_EQ(family_of(small), "Laguna of 8 layers, 256 wide");
}

}  // namespace
}  // namespace lagoon::plan
