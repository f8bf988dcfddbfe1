#include "plan/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

// docs of the published checkpoint: 145,153 tensors, 71,898,733,760 bytes.
TEST(Inventory, TheFullSizeConfig) {
  const Inventory inventory = full_size().weights;
  EXPECT_EQ(inventory.tensors(), 145153);
  EXPECT_EQ(inventory.bytes(), 71'898'733'760);
  EXPECT_NEAR(static_cast<double>(inventory.parameters()), 117.562e9, 1e7);
  EXPECT_EQ(precision_class(inventory), Format::kNVFP4);
  EXPECT_EQ(describe_experts(inventory), "NVFP4 in layers 1-47");
  EXPECT_NEAR(static_cast<double>(inventory.part_bytes(Part::kExperts)), 63.871e9, 1e7);
}

TEST(Inventory, TheDraft) {
  const Inventory inventory = full_size().draft_weights;
  EXPECT_EQ(inventory.tensors(), 69);
  EXPECT_EQ(inventory.parameters(), 1'114'977'792);
  EXPECT_EQ(inventory.bytes(), 2'229'955'584);
  EXPECT_EQ(precision_class(inventory), Format::kBF16);
  EXPECT_EQ(describe_experts(inventory), "");
}

// The revision of 2026-08-01 ignores the experts of layers 40-47 when it quantises: 99.7 GB.
TEST(Inventory, ExpertsOfTwoFormats) {
  const Inventory inventory = full_size(kLaterRevision).weights;
  EXPECT_NEAR(static_cast<double>(inventory.bytes()), 99.68e9, 2e7);
  EXPECT_EQ(precision_class(inventory), Format::kNVFP4);
  EXPECT_EQ(describe_experts(inventory), "NVFP4 in layers 1-39, BF16 in layers 40-47");
}

TEST(Inventory, PackedBytesAreStoredBytesAndSomePadding) {
  const Inventory inventory = full_size().weights;
  const auto stored = static_cast<double>(inventory.bytes());
  for (const Layout layout : {Layout::kCpu, Layout::kCuda, Layout::kRef}) {
    const auto packed = static_cast<double>(inventory.packed_bytes(layout));
    EXPECT_GT(packed, 0.995 * stored) << static_cast<int>(layout);
    EXPECT_LT(packed, 1.02 * stored) << static_cast<int>(layout);
  }
}

TEST(Inventory, HeadersSayTheSameAsTheConfig) {
  const std::string directory = std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-nvfp4";
  const auto opened = checkpoint::ModelDir::open(directory);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Inventory from_headers = take_inventory(*opened);
  const auto config = checkpoint::parse_target_config(opened->config_json(), "config.json");
  ASSERT_TRUE(config.ok());
  const auto from_config = expected_inventory(*config, opened->config_json(), "config.json");
  ASSERT_TRUE(from_config.ok()) << from_config.error().message;
  // The bundled model has scales of keys and values, which its config does not ask for.
  EXPECT_EQ(from_headers.bytes(), from_config->bytes() + int64_t{2 * 2} * 8);
  EXPECT_EQ(from_headers.tensors(), from_config->tensors() + int64_t{2} * 8);
  EXPECT_EQ(from_headers.packed_bytes(Layout::kCpu), from_config->packed_bytes(Layout::kCpu));
}

}  // namespace
}  // namespace lagoon::plan
