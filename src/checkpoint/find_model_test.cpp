#include "checkpoint/find_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/model_dir.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A tree with bundled models at two places.
class FindModel : public ::testing::Test {
 protected:
  FindModel() {
    add_model("share/lagoon/models/installed");
    add_model("a/b/c/models/near");
    add_model("a/models/far");
    add_model("a/b/c/models/both");
    add_model("a/models/both");
    std::filesystem::create_directories(dir_.file("a/models/no-config"));
    places_ = bundled_model_places(dir_.file("a/b/c"));
  }

  void add_model(const std::string& path) const {
    std::filesystem::create_directories(dir_.file(path));
    (void)dir_.write(path + "/config.json", "{}");
  }

  TempDir dir_;
  std::vector<std::string> places_;
};

TEST(BundledModelPlaces, BesideTheProgramInItsParentsAndInShare) {
  EXPECT_THAT(bundled_model_places("/w/x/build/dev/src/app"),
              ElementsAre("/w/x/build/dev/src/app/models", "/w/x/build/dev/src/share/lagoon/models",
                          "/w/x/build/dev/src/models", "/w/x/build/dev/models", "/w/x/build/models",
                          "/w/x/models"));
  EXPECT_THAT(bundled_model_places("/usr/bin"),
              ElementsAre("/usr/bin/models", "/usr/share/lagoon/models", "/usr/models", "/models"));
}

TEST_F(FindModel, ADirectoryIsTakenAsGiven) {
  const std::string path = dir_.file("a/models/far");
  EXPECT_EQ(*find_model_in(path, {}), path);
  EXPECT_EQ(*find_model_in(path + "/", places_), path + "/");
  EXPECT_EQ(*find_model_in("/", places_), "/");
}

TEST_F(FindModel, ANameIsFoundAtTheNearestPlace) {
  EXPECT_EQ(*find_model_in("near", places_), dir_.file("a/b/c/models/near"));
  EXPECT_EQ(*find_model_in("far", places_), dir_.file("a/models/far"));
  EXPECT_EQ(*find_model_in("both", places_), dir_.file("a/b/c/models/both"));
  EXPECT_EQ(*find_model_in("installed", bundled_model_places(dir_.file("bin"))),
            dir_.file("share/lagoon/models/installed"));
}

TEST_F(FindModel, AMistypedNameListsTheBundledOnes) {
  const Result<std::string> found = find_model_in("nears", places_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(found.error().message, "no such directory: \"nears\"; bundled models: both, far, near");
  EXPECT_THAT(message_of(find_model_in("/no/such/place", places_)),
              HasSubstr("bundled models: both, far, near"));
  EXPECT_THAT(message_of(find_model_in("x", {dir_.file("nowhere")})),
              AllOf(HasSubstr("no bundled models were found in"), HasSubstr("nowhere")));
  EXPECT_THAT(message_of(find_model_in("x", {})), HasSubstr("no such directory: \"x\""));
}

TEST_F(FindModel, ANameOnAHubIsNotDownloaded) {
  EXPECT_THAT(message_of(find_model_in("poolside/Laguna", places_, dir_.file("hub"))),
              AllOf(HasSubstr("neither a directory nor in the hub cache " + dir_.file("hub")),
                    HasSubstr("run `HF_HUB_DISABLE_XET=1 hf download poolside/Laguna`")));
  EXPECT_THAT(message_of(find_model_in("./Laguna", places_)), Not(HasSubstr("download")));
}

TEST_F(FindModel, ARevisionIsOfARepository) {
  EXPECT_THAT(message_of(find_model_in("near", places_, "", "main")),
              AllOf(HasSubstr("revision \"main\" is asked for"), HasSubstr("near is a directory")));
}

TEST_F(FindModel, NamesDoNotLeadOutOfThePlaces) {
  for (const char* name : {"../models/far", "far/../far"})
    EXPECT_FALSE(find_model_in(name, places_));
  EXPECT_THAT(message_of(find_model_in("", places_)), HasSubstr("empty"));
}

TEST_F(FindModel, AFileIsNotADirectory) {
  EXPECT_THAT(message_of(find_model_in(dir_.write("model.gguf", "GGUF"), places_)),
              HasSubstr("model.gguf is a file; a model is a directory"));
}

TEST(FindModelHere, TheBundledPairIsFoundFromTheProgram) {
  for (const char* name : {"laguna-nano-nvfp4", "laguna-nano-dflash-nvfp4"}) {
    const Result<std::string> path = find_model(name);
    ASSERT_TRUE(path.ok()) << path.error().message;
    EXPECT_TRUE(ModelDir::open(*path).ok());
  }
  EXPECT_THAT(message_of(find_model("laguna-nano")),
              HasSubstr("bundled models: laguna-nano-dflash-nvfp4, laguna-nano-nvfp4"));
}

}  // namespace
}  // namespace lagoon::checkpoint
