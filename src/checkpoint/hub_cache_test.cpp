// Caches as `hf download` leaves them: links to blobs, references, parts of downloads.
#include "checkpoint/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/model_dir.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kRepository = "poolside/Laguna-S-2.1-NVFP4";
const std::string kPinned = "07614121b31898586430f189d27a25a0be310843";
const std::string kLater = "f8fdfcdc4e000000000000000000000000000000";
const std::string kBundled = std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-nvfp4";

class HubCache : public ::testing::Test {
 protected:
  // A snapshot of the bundled model: each file a link to a blob, as the client makes them.
  std::string add(const std::string& commit) const {
    const std::string snapshot = folder() + "/snapshots/" + commit;
    fs::create_directories(snapshot);
    fs::create_directories(folder() + "/blobs");
    for (const fs::directory_entry& entry : fs::directory_iterator(kBundled)) {
      const std::string name = entry.path().filename().string();
      const std::string blob = "blob-of-" + name;
      if (!fs::exists(folder() + "/blobs/" + blob))
        fs::copy_file(entry.path(), folder() + "/blobs/" + blob);
      fs::create_symlink("../../blobs/" + blob, snapshot + "/" + name);
    }
    return snapshot;
  }
  void refer(const std::string& name, const std::string& commit) const {
    fs::create_directories(fs::path(folder() + "/refs/" + name).parent_path());
    (void)dir_.write(kFolder + "/refs/" + name, commit);
  }
  std::string folder() const { return dir_.file(kFolder); }
  Result<std::string> find(const std::string& revision = "") const {
    return find_in_hub_cache(kRepository, revision, dir_.path());
  }
  std::string fault(const std::string& revision = "") const { return message_of(find(revision)); }

  const std::string kFolder = "models--poolside--Laguna-S-2.1-NVFP4";
  TempDir dir_;
};

TEST(HubNames, RepositoriesAreTwoNames) {
  EXPECT_TRUE(is_repository_id(kRepository));
  EXPECT_TRUE(is_repository_id("a/b_c.d"));
  for (const char* name : {"", "a", "a/", "/a", "a/b/c", "../a", "./a", "a/..", "a b/c", "~/a"})
    EXPECT_FALSE(is_repository_id(name)) << name;
}

TEST_F(HubCache, MainIsFoundAndOpens) {
  const std::string snapshot = add(kLater);
  add(kPinned);
  refer("main", kLater + "\n");
  ASSERT_EQ(*find(), snapshot);
  const Result<ModelDir> model = ModelDir::open(snapshot);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->weight_bytes(), 27550368u);
  const auto of = hub_snapshot_of(snapshot + "/");
  ASSERT_TRUE(of.has_value());
  EXPECT_EQ(of->repository, kRepository);
  EXPECT_EQ(of->commit, kLater);
  EXPECT_FALSE(hub_snapshot_of(kBundled).has_value());
}

// `hf download --revision COMMIT` writes no reference.
TEST_F(HubCache, WithoutMainTheKnownRevisionOrTheOnlyOne) {
  const std::string later = add(kLater);
  EXPECT_EQ(*find(), later);
  const std::string known = add(kPinned);
  EXPECT_EQ(*find(), known);
  refer("main", "1234567890123456789012345678901234567890");  // its snapshot was deleted
  EXPECT_EQ(*find(), known);
  fs::remove_all(known);
  add("0123456789012345678901234567890123456789");
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("in several revisions"), HasSubstr("--revision"), HasSubstr(kLater)));
}

TEST_F(HubCache, RevisionsByNameCommitAndItsBeginning) {
  const std::string known = add(kPinned);
  const std::string later = add(kLater);
  refer("main", kLater);
  refer("refs/pr/3", kPinned);
  EXPECT_EQ(*find(kPinned), known);
  EXPECT_EQ(*find("0761412"), known);
  EXPECT_EQ(*find("refs/pr/3"), known);
  EXPECT_EQ(*find("main"), later);
  EXPECT_THAT(fault("07614"),
              HasSubstr("revision \"07614\" of poolside/Laguna-S-2.1-NVFP4 is not"));
  EXPECT_FALSE(find("../refs/main").ok());
  EXPECT_FALSE(find("/etc/hostname").ok());
}

TEST_F(HubCache, WhatIsAbsentIsToldWithTheCommand) {
  const std::string command =
      "`HF_HUB_DISABLE_XET=1 hf download poolside/Laguna-S-2.1-NVFP4 --revision " + kPinned + "`";
  EXPECT_THAT(fault(), AllOf(HasSubstr("nor in the hub cache " + dir_.path()), HasSubstr(command)));
  EXPECT_THAT(fault("abc"), HasSubstr("hf download " + kRepository + " --revision abc`"));
  EXPECT_EQ(download_command("poolside/Laguna-S-2.1-DFlash-NVFP4", ""),
            "HF_HUB_DISABLE_XET=1 hf download poolside/Laguna-S-2.1-DFlash-NVFP4 --revision "
            "723794750422b3efbf3a7b3af76dffb4ba035943");
  EXPECT_EQ(download_command("a/b", ""), "HF_HUB_DISABLE_XET=1 hf download a/b");
  // Begun, and nothing is whole yet.
  fs::create_directories(folder() + "/blobs");
  (void)dir_.write(kFolder + "/blobs/0123.incomplete", "x");
  EXPECT_THAT(fault(), AllOf(HasSubstr("is not complete in " + folder()),
                             HasSubstr("\"0123.incomplete\" lies in " + folder() + "/blobs"),
                             HasSubstr(command)));
}

TEST_F(HubCache, AShardThatIsStillBeingDownloaded) {
  const std::string snapshot = add(kPinned);
  const std::string shard = "model-00002-of-00002.safetensors";
  fs::remove(snapshot + "/" + shard);
  fs::rename(folder() + "/blobs/blob-of-" + shard, folder() + "/blobs/0123.incomplete");
  EXPECT_THAT(message_of(ModelDir::open(snapshot)),
              AllOf(HasSubstr(shard + " is missing"), HasSubstr("\"0123.incomplete\" lies in "),
                    HasSubstr("hf download poolside/Laguna-S-2.1-NVFP4 --revision " + kPinned)));
  // Its link is there, what it leads to is not.
  fs::create_symlink("../../blobs/blob-of-" + shard, snapshot + "/" + shard);
  EXPECT_THAT(message_of(ModelDir::open(snapshot)),
              AllOf(HasSubstr(shard + " is missing"), HasSubstr("0123.incomplete")));
}

// Ended between two files: no part tells of it.
TEST_F(HubCache, AShardThatWasNotBegun) {
  const std::string snapshot = add(kPinned);
  fs::remove(snapshot + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(message_of(ModelDir::open(snapshot)),
              AllOf(HasSubstr("model-00002-of-00002.safetensors is missing"),
                    HasSubstr("run `HF_HUB_DISABLE_XET=1 hf download poolside/Laguna-S-2.1-NVFP4 "
                              "--revision " +
                              kPinned + "`")));
}

// Parts of another revision do not matter to one that is whole.
TEST_F(HubCache, AWholeSnapshotBesideAnUnfinishedOne) {
  const std::string snapshot = add(kPinned);
  (void)dir_.write(kFolder + "/blobs/0123.incomplete", "x");
  EXPECT_EQ(message_of(ModelDir::open(snapshot)), "(no error)");
}

TEST(HubCacheDirectory, TheClientsVariablesDecide) {
  const auto keep = [](const char* name) {
    const char* value = std::getenv(name);
    return std::pair<const char*, std::string>(name, value == nullptr ? "" : value);
  };
  const std::vector<std::pair<const char*, std::string>> before = {
      keep("HF_HUB_CACHE"), keep("HUGGINGFACE_HUB_CACHE"), keep("HF_HOME"), keep("XDG_CACHE_HOME"),
      keep("HOME")};
  for (const auto& [name, value] : before) ::unsetenv(name);
  EXPECT_EQ(hub_cache_directory(), "");
  ::setenv("HOME", "/me", 1);
  EXPECT_EQ(hub_cache_directory(), "/me/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(hub_cache_directory(), "/cache/huggingface/hub");
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_cache_directory(), "/hf/hub");
  ::setenv("HF_HUB_CACHE", "/hub", 1);
  EXPECT_EQ(hub_cache_directory(), "/hub");
  for (const auto& [name, value] : before) {
    if (value.empty()) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value.c_str(), 1);
    }
  }
}

}  // namespace
}  // namespace lagoon::checkpoint
