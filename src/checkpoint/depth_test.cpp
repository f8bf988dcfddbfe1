#include "checkpoint/depth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/config.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFixtures = std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/";
const std::string kTarget = read_file(kFixtures + "laguna-s-2.1-nvfp4/config.json");
const std::string kDraft = read_file(kFixtures + "laguna-s-2.1-dflash-nvfp4/config.json");

TEST(CutTarget, TheFirstLayersAsTheyWere) {
  const std::string json = cut_target(kTarget, "config.json", 5).value();
  const TargetConfig cut = parse_target_config(json, "config.json").value();
  const TargetConfig whole = parse_target_config(kTarget, "config.json").value();
  ASSERT_EQ(cut.layers.size(), 5u);
  for (size_t i = 0; i < cut.layers.size(); ++i) {
    EXPECT_EQ(cut.layers[i].sliding, whole.layers[i].sliding);
    EXPECT_EQ(cut.layers[i].sparse, whole.layers[i].sparse);
    EXPECT_EQ(cut.layers[i].heads, whole.layers[i].heads);
  }
  // Nothing else changes, not even the order.
  Json before = Json::parse(kTarget);
  Json after = Json::parse(json);
  for (const char* key :
       {"num_hidden_layers", "num_attention_heads_per_layer", "layer_types", "mlp_layer_types"}) {
    before[key] = after[key];
  }
  EXPECT_EQ(before.dump(), after.dump());
}

TEST(CutTarget, LayersThatAreComputedByAStep) {
  Json config = Json::parse(kTarget);
  config.erase("mlp_layer_types");
  config["mlp_only_layers"] = {0, 7};
  config["decoder_sparse_step"] = 1;
  const auto cut = cut_target(config.dump(), "config.json", 3).value();
  EXPECT_EQ(Json::parse(cut)["mlp_only_layers"], Json::array({0}));
}

TEST(CutTarget, MoreLayersThanThereAre) {
  EXPECT_THAT(message_of(cut_target(kTarget, "m/config.json", 49)),
              HasSubstr("m/config.json has 48 layers"));
  EXPECT_THAT(message_of(cut_target(kTarget, "m/config.json", 0)), HasSubstr("1 to 48"));
  EXPECT_THAT(message_of(cut_target("{", "m/config.json", 1)), HasSubstr("m/config.json"));
}

std::vector<int> taps(const std::string& json, int layers) {
  const auto fitted = fit_draft(json, "config.json", layers);
  EXPECT_TRUE(fitted.ok()) << message_of(fitted);
  const DraftConfig config = parse_draft_config(*fitted, "config.json").value();
  EXPECT_EQ(config.target_layers, layers);
  return config.tap_layers;
}

TEST(FitDraft, TapsKeepTheirRelativeDepth) {
  EXPECT_THAT(taps(kDraft, 48), ElementsAre(1, 10, 19, 29, 38, 47));
  EXPECT_THAT(taps(kDraft, 24), ElementsAre(0, 4, 9, 14, 18, 23));
  EXPECT_THAT(taps(kDraft, 6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(taps(kDraft, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(taps(kDraft, 1), ElementsAre(0));
}

TEST(FitDraft, FitsTheCutTarget) {
  for (const int layers : {1, 4, 7, 48}) {
    const auto target = parse_target_config(*cut_target(kTarget, "t", layers), "t").value();
    const auto draft = parse_draft_config(*fit_draft(kDraft, "d", layers), "d").value();
    EXPECT_TRUE(check_pair(target, draft).ok()) << layers;
  }
}

}  // namespace
}  // namespace lagoon::checkpoint
