#include "plan/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/test_support.h"
#include "plan/test_support.h"

namespace lagoon::plan {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using State = ScannedModel::State;

const std::string kModel = std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-nvfp4";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

ScannedModel scan(const std::string& name) {
  auto scanned = scan_model(name);
  EXPECT_TRUE(scanned.ok()) << scanned.error().message;
  return scanned.ok() ? std::move(scanned).value() : ScannedModel();
}

// A copy of the bundled model, to be spoilt.
class ScanTest : public ::testing::Test {
 protected:
  ScanTest() {
    for (const auto& entry : fs::directory_iterator(kModel)) {
      fs::copy_file(entry.path(), fs::path(directory_.path()) / entry.path().filename());
    }
  }
  checkpoint::TempDir directory_;
};

TEST(Scan, AWholeModel) {
  const ScannedModel model = scan(kModel);
  EXPECT_EQ(model.state, State::kComplete);
  EXPECT_FALSE(model.is_draft);
  EXPECT_EQ(model.percent(), 100);
  EXPECT_EQ(model.inventory.tensors(), 2817);
  EXPECT_TRUE(scan(std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-dflash-nvfp4").is_draft);
}

TEST(Scan, AConfigAlone) {
  const std::string config =
      std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/laguna-s-2.1-nvfp4";
  for (const std::string& name : {config, config + "/config.json"}) {
    const ScannedModel model = scan(name);
    EXPECT_EQ(model.state, State::kConfigOnly) << name;
    EXPECT_EQ(model.inventory.tensors(), 145153) << name;
  }
}

TEST_F(ScanTest, StillDownloading) {
  fs::remove(directory_.file(kSecond));
  const fs::path place = fs::path(directory_.path()) / ".cache/huggingface/download";
  fs::create_directories(place);
  directory_.write(".cache/huggingface/download/abc.incomplete", std::string(1000, 'x'));
  const ScannedModel model = scan(directory_.path());
  EXPECT_EQ(model.state, State::kIncomplete);
  EXPECT_EQ(model.files_expected, 2);
  EXPECT_EQ(model.files_present, 1);
  EXPECT_THAT(model.missing, ElementsAre(kSecond));
  EXPECT_THAT(model.partial, ElementsAre(EndsWith("abc.incomplete")));
  EXPECT_THAT(model.problem, HasSubstr(kSecond));
  EXPECT_GT(model.percent(), 20);
  EXPECT_LT(model.percent(), 80);
  EXPECT_EQ(model.inventory.tensors(), 2801) << "what the config says";
}

TEST_F(ScanTest, ATruncatedFile) {
  fs::resize_file(directory_.file(kSecond), 500'000);
  const ScannedModel model = scan(directory_.path());
  EXPECT_EQ(model.state, State::kIncomplete);
  EXPECT_EQ(model.files_present, 1);
  EXPECT_THAT(model.problem, HasSubstr(kSecond));
}

TEST_F(ScanTest, WithoutAnIndex) {
  fs::remove(directory_.file("model.safetensors.index.json"));
  fs::remove(directory_.file(kSecond));
  const ScannedModel model = scan(directory_.path());
  EXPECT_EQ(model.state, State::kIncomplete);
  EXPECT_THAT(model.missing, ElementsAre(kSecond));
}

TEST_F(ScanTest, AConfigThatIsNone) {
  directory_.write("config.json", "{}");
  EXPECT_FALSE(scan_model(directory_.path()).ok());
  EXPECT_FALSE(scan_model("/no/such/model").ok());
  EXPECT_THAT(scan_model(directory_.path(), "abc").error().message, HasSubstr("abc"));
}

}  // namespace
}  // namespace lagoon::plan
