#include "model/warm_up.h"

#include <gtest/gtest.h>

#include "kernels/cpu/backend.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

constexpr std::chrono::duration<double> kUnlimited{1e9};

class WarmUpTest : public ::testing::Test {
 protected:
  WarmUpTest() {
    const std::string models = LAGOON_SOURCE_DIR "/models/";
    const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
    const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
    LoadOptions options;
    options.slots = 2;
    options.max_length = 1500;
    model_ = load(target, &draft, *backend_, options).value();
  }

  // Tokens of a text that a draft helped to make.
  std::vector<int32_t> tokens() {
    std::vector<int32_t> prompt(90);
    for (int i = 0; i < 90; ++i) prompt[static_cast<size_t>(i)] = 300 + 17 * i % 900;
    return greedy(*model_, prompt, 24, 3);
  }

  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::cpu::make_backend(kernels::Activations::kBFloat16, 2);
  std::unique_ptr<Model> model_;
};

TEST_F(WarmUpTest, LeavesNothingBehind) {
  const std::vector<int32_t> before = tokens();
  const auto warmed = warm_up(
      *model_,
      {.sequences = 2, .proposals = 3, .drafts = true, .max_length = 1500, .limit = kUnlimited});
  ASSERT_TRUE(warmed.ok());
  // Eight numbers of rows, contexts up to 1,024 and up to the last position.
  EXPECT_EQ(warmed->shapes, 16);
  EXPECT_EQ(warmed->max_length, 1499);
  EXPECT_GT(warmed->seconds, 0);
  EXPECT_EQ(tokens(), before);
}

TEST_F(WarmUpTest, EndsWhereTimeOrRoomDoes) {
  WarmUp shapes{.sequences = 1, .max_length = 1500, .limit = std::chrono::duration<double>(0)};
  EXPECT_EQ(warm_up(*model_, shapes)->shapes, 0);
  shapes.limit = kUnlimited;
  EXPECT_EQ(warm_up(*model_, shapes)->shapes, 2);
  shapes.most_rows = 4;
  shapes.proposals = 15;
  EXPECT_EQ(warm_up(*model_, shapes)->shapes, 8);
  shapes.most_shapes = 7;  // the longer context would drive out what is there
  const WarmedUp warmed = warm_up(*model_, shapes).value();
  EXPECT_EQ(warmed.shapes, 4);
  EXPECT_EQ(warmed.max_length, 1024);
  shapes.max_length = 5;  // no room for four rows behind a context
  EXPECT_EQ(warm_up(*model_, shapes)->shapes, 0);
}

}  // namespace
}  // namespace lagoon::model::testing
