#include "bench/draft_time.h"

#include <gtest/gtest.h>

#include "checkpoint/model_dir.h"
#include "kernels/cpu/backend.h"
#include "model/laguna.h"

namespace lagoon::bench {
namespace {

TEST(DraftTime, OfTheBundledPair) {
  const std::string models = LAGOON_SOURCE_DIR "/models/";
  const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
  const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
  const auto backend = kernels::cpu::make_backend(kernels::Activations::kBFloat16, 2);
  model::LoadOptions options;
  options.max_length = 1024;
  const auto model = model::load(target, &draft, *backend, options).value();
  // It is a difference, of which another program may leave nothing, but not every time.
  double seconds = 0;
  for (int time = 0; time < 10 && seconds < 1e-6; ++time) {
    const auto measured = time_draft(*model, 6, 300);
    ASSERT_TRUE(measured.ok());
    seconds = *measured;
  }
  EXPECT_GT(seconds, 1e-6);
  EXPECT_LT(seconds, 1);
  // The slot is free again.
  const std::vector<int32_t> pages = {0};
  const int32_t token = 17;
  model::Segment segment;
  segment.tokens = {&token, 1};
  segment.sample = model::Sample::kLast;
  segment.page_table = pages;
  EXPECT_EQ(model->step({&segment, 1})[0].sampled.size(), 1u);
}

}  // namespace
}  // namespace lagoon::bench
