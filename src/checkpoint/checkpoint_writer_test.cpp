#include "checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "checkpoint/model_dir.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `count` bytes, each its place plus `first_value`, made piece by piece.
TensorToWrite counting(const std::string& name, int64_t count, int first_value) {
  TensorToWrite tensor;
  tensor.name = name;
  tensor.dtype = numeric::DType::kU8;
  tensor.shape = {count};
  tensor.make = [first_value](uint64_t first, std::span<std::byte> into) {
    for (size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<std::byte>(first + i + static_cast<uint64_t>(first_value));
    }
  };
  return tensor;
}

std::vector<std::string> files(const TempDir& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(WriteWeights, ShardsAndAnIndexThatLoad) {
  const TempDir directory;
  const std::vector<TensorToWrite> tensors = {counting("a", 60, 1), counting("b", 50, 2),
                                              counting("c", 300, 3), counting("d", 10, 4)};
  uint64_t last = 0;
  WriteOptions options;
  options.max_shard_bytes = 100;
  options.progress = [&](uint64_t written, uint64_t total) {
    EXPECT_GT(written, last);
    EXPECT_EQ(total, 420u);
    last = written;
  };
  ASSERT_TRUE(write_weights(directory.path(), tensors, options).ok());
  EXPECT_EQ(last, 420u);
  EXPECT_THAT(files(directory),
              ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                          "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                          "model.safetensors.index.json"));
  directory.write("config.json", "{}");
  const auto dir = ModelDir::open(directory.path());
  ASSERT_TRUE(dir.ok()) << message_of(dir);
  EXPECT_EQ(dir->weight_bytes(), 420u);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tensor = dir->find(tensors[i].name);
    ASSERT_TRUE(tensor.has_value());
    std::vector<std::byte> expected(tensor->bytes.size());
    tensors[i].make(0, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tensor->bytes.begin()));
  }
}

TEST(WriteWeights, OneShardNeedsNoIndex) {
  const TempDir directory;
  // Larger than the part that is written at a time.
  ASSERT_TRUE(write_weights(directory.path(), std::array{counting("a", (9 << 20) + 5, 1)}).ok());
  EXPECT_THAT(files(directory), ElementsAre("model.safetensors"));
  directory.write("config.json", "{}");
  const auto dir = ModelDir::open(directory.path()).value();
  const auto bytes = dir.find("a")->bytes;
  ASSERT_EQ(bytes.size(), (9u << 20) + 5);
  for (size_t i = 0; i < bytes.size(); i += 1021) {
    ASSERT_EQ(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(i + 1));
  }
}

TEST(PrepareDirectory, RefusesWhatItWouldSpoil) {
  const TempDir directory;
  EXPECT_TRUE(prepare_directory(directory.path(), 1000).ok());
  EXPECT_TRUE(prepare_directory(directory.file("new/er"), 1000).ok());
  EXPECT_THAT(message_of(prepare_directory(directory.path(), 1000)), HasSubstr("is not empty"));
  directory.write("file", "x");
  EXPECT_THAT(message_of(prepare_directory(directory.file("file"), 1000)), HasSubstr("file"));
  EXPECT_THAT(message_of(prepare_directory(directory.file("other"), uint64_t{1} << 60)),
              HasSubstr("1152921504.61 GB"));
  EXPECT_THAT(message_of(prepare_directory("/proc/nothing/here", 1)), HasSubstr("/proc/nothing"));
}

TEST(WriteText, ReplacesOrSaysWhyNot) {
  const TempDir directory;
  ASSERT_TRUE(write_text(directory.file("a"), "one").ok());
  ASSERT_TRUE(write_text(directory.file("a"), "two").ok());
  EXPECT_EQ(read_file(directory.file("a")), "two");
  EXPECT_THAT(files(directory), ElementsAre("a"));
  EXPECT_THAT(message_of(write_text(directory.file("no/such"), "x")), HasSubstr("no/such"));
}

}  // namespace
}  // namespace lagoon::checkpoint
