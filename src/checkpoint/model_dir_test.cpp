// The bundled pair, and copies of it that are damaged in the ways downloads are.
#include "checkpoint/model_dir.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors_writer.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kTarget = std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-nvfp4";
const std::string kDraft = std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-dflash-nvfp4";
const std::string kIndex = "model.safetensors.index.json";
const std::string kShard1 = "model-00001-of-00002.safetensors";
const std::string kShard2 = "model-00002-of-00002.safetensors";

// A copy of a model whose files are links, so that one can be replaced or removed.
class Copy : public TempDir {
 public:
  explicit Copy(const std::string& model) {
    for (const fs::directory_entry& entry : fs::directory_iterator(model))
      fs::create_symlink(entry.path(), file(entry.path().filename().string()));
  }
  void remove(const std::string& name) const { EXPECT_TRUE(fs::remove(file(name))) << name; }
  // Replaces the index by what `change` makes of it.
  template <typename Change>
  void change_index(Change change) const {
    Json index = Json::parse(read_file(file(kIndex)));
    change(index);
    (void)write(kIndex, index.dump());
  }
  std::string fault() const { return message_of(ModelDir::open(path())); }
};

// A directory with the config of the draft and the given weight files.
class Small : public TempDir {
 public:
  Small() { (void)write("config.json", read_file(kDraft + "/config.json")); }
  // A shard whose tensors are one U8 each.
  void add(const std::string& name, const std::vector<std::string>& tensors) const {
    const std::byte byte{7};
    std::vector<TensorToWrite> list;
    list.reserve(tensors.size());
    for (const std::string& tensor : tensors)
      list.push_back({tensor, numeric::DType::kU8, {1}, {&byte, 1}});
    const Result<void> written = write_safetensors(file(name), list);
    EXPECT_TRUE(written.ok()) << written.error().message;
  }
  std::string fault() const { return message_of(ModelDir::open(path())); }
};

TEST(ModelDir, TheBundledTargetOpens) {
  Result<ModelDir> opened = ModelDir::open(kTarget + "/");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const ModelDir model = std::move(opened).value();
  EXPECT_EQ(model.path(), kTarget);
  EXPECT_EQ(model.weight_bytes(), 27550368u);  // total_size of its index
  EXPECT_EQ(model.config_json(), read_file(kTarget + "/config.json"));
  const Json index = Json::parse(read_file(kTarget + "/" + kIndex));
  EXPECT_EQ(model.tensor_count(), index["weight_map"].size());
  for (const auto& [name, shard] : index["weight_map"].items()) {
    const std::optional<Tensor> tensor = model.find(name);
    ASSERT_TRUE(tensor.has_value()) << name;
    EXPECT_EQ(tensor->info->name, name);
    EXPECT_EQ(tensor->file->path(), kTarget + "/" + shard.get<std::string>());
    EXPECT_EQ(tensor->bytes.size(), tensor->info->bytes);
  }
  EXPECT_FALSE(model.find("model.embed_tokens").has_value());
  EXPECT_FALSE(model.find("").has_value());
}

// Tensors are where the file says: the same bytes as at the header's offsets.
TEST(ModelDir, BytesAreThoseOfTheFile) {
  const Result<ModelDir> model = ModelDir::open(kDraft);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tensor_count(), 27u);
  const std::string file = read_file(kDraft + "/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const Json header = Json::parse(file.substr(8, length));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::optional<Tensor> tensor = model->find(name);
    ASSERT_TRUE(tensor.has_value()) << name;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    ASSERT_EQ(tensor->bytes.size(), end - begin);
    EXPECT_EQ(std::memcmp(tensor->bytes.data(), file.data() + 8 + length + begin, end - begin), 0);
    EXPECT_EQ(tensor->info->shape, entry["shape"].get<std::vector<int64_t>>());
    EXPECT_EQ(numeric::dtype_name(tensor->info->dtype), entry["dtype"].get<std::string>());
  }
}

TEST(ModelDir, TextFilesAreRead) {
  const Result<ModelDir> model = ModelDir::open(kTarget);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(*model->read_text("chat_template.jinja"), read_file(kTarget + "/chat_template.jinja"));
  const Result<std::string> absent = model->read_text("nothing.json");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("laguna-nano-nvfp4/nothing.json is missing"));
}

TEST(ModelDir, WhatIsNoModelDirectory) {
  const TempDir dir;
  const Result<ModelDir> absent = ModelDir::open(dir.file("nowhere"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("no such directory"));
  EXPECT_THAT(message_of(ModelDir::open(dir.write("m.gguf", "GGUF"))),
              HasSubstr("m.gguf is a file; a model is a directory"));
  EXPECT_THAT(message_of(ModelDir::open(dir.path())), HasSubstr("it has no config.json"));
  EXPECT_THAT(message_of(ModelDir::open("")), HasSubstr("no such directory: \"\""));
}

TEST(ModelDir, ConfigsThatAreNoText) {
  const Copy lfs(kTarget);
  (void)lfs.write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(lfs.fault(), AllOf(HasSubstr("config.json"), HasSubstr("Git LFS pointer")));
  const Copy empty(kTarget);
  (void)empty.write("config.json", "");
  EXPECT_THAT(empty.fault(), HasSubstr("config.json is empty"));
}

TEST(ModelDir, NoWeights) {
  const Small dir;
  EXPECT_THAT(dir.fault(), HasSubstr("has no weights: neither model.safetensors nor"));
  (void)dir.write("pytorch_model.bin", "x");
  EXPECT_THAT(dir.fault(), HasSubstr("\"pytorch_model.bin\" is there, but"));
  fs::create_directories(dir.file(".cache/huggingface/download"));
  (void)dir.write(".cache/huggingface/download/abc.incomplete", "x");
  EXPECT_THAT(dir.fault(),
              AllOf(HasSubstr("the download is unfinished (\"abc.incomplete\" lies in "),
                    HasSubstr("/.cache/huggingface/download): run it again")));
}

TEST(ModelDir, AMissingShardIsNamed) {
  const Copy copy(kTarget);
  copy.remove(kShard2);
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard2 + " is missing"), HasSubstr(kIndex)));
  (void)copy.write(kShard2 + ".incomplete", "x");
  EXPECT_THAT(copy.fault(), HasSubstr("the download is unfinished"));
}

// What is left of a download that was finished otherwise does not matter; a file that is not there
// yet does, even one that is no shard.
TEST(ModelDir, PartsOfFilesThatAreNotThere) {
  const Copy copy(kTarget);
  (void)copy.write(kShard2 + ".part", "x");
  EXPECT_EQ(copy.fault(), "(no error)");
  (void)copy.write("special_tokens_map.json.incomplete", "x");
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr("/special_tokens_map.json.incomplete is part of"),
                                  HasSubstr("the download is unfinished")));
}

TEST(ModelDir, ShardsWithoutAnIndex) {
  const Copy copy(kTarget);
  copy.remove(kIndex);
  const Result<ModelDir> model = ModelDir::open(copy.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->weight_bytes(), 27550368u);
  copy.remove(kShard1);
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1 + " is missing"), HasSubstr(kShard2)));
  (void)copy.write(kShard1 + ".part", "x");
  EXPECT_THAT(copy.fault(), HasSubstr("the download is unfinished"));
}

TEST(ModelDir, DamagedShardsAreNamed) {
  const std::string whole = read_file(kTarget + "/" + kShard1);
  const Copy copy(kTarget);
  (void)copy.write(kShard1, std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1), HasSubstr("truncated")));
  (void)copy.write(kShard1, std::string_view(whole).substr(0, 1000));
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1), HasSubstr("truncated")));
  (void)copy.write(kShard1, "");
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1), HasSubstr("is empty")));
  (void)copy.write(kShard1, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1), HasSubstr("Git LFS pointer")));
  copy.remove(kShard1);
  fs::create_directory(copy.file(kShard1));
  EXPECT_THAT(copy.fault(), AllOf(HasSubstr(kShard1), HasSubstr("is a directory")));
}

TEST(ModelDir, AnIndexThatDisagreesWithTheShards) {
  const Copy lacks(kTarget);
  lacks.change_index([](Json& index) { index["weight_map"]["model.extra"] = kShard2; });
  EXPECT_THAT(lacks.fault(), HasSubstr(kShard2 + " lacks tensor \"model.extra\""));

  const Copy unnamed(kTarget);
  unnamed.change_index([](Json& index) { index["weight_map"].erase("model.norm.weight"); });
  EXPECT_THAT(unnamed.fault(),
              AllOf(HasSubstr(kShard1), HasSubstr("has tensor \"model.norm.weight\", which the")));

  const Copy misplaced(kTarget);
  misplaced.change_index([](Json& index) { index["weight_map"]["model.norm.weight"] = kShard2; });
  EXPECT_THAT(misplaced.fault(), HasSubstr(kShard2 + " lacks tensor \"model.norm.weight\""));
}

TEST(ModelDir, AMalformedIndex) {
  const Copy copy(kTarget);
  const auto fault = [&](std::string_view text) {
    (void)copy.write(kIndex, text);
    std::string message = copy.fault();
    EXPECT_THAT(message, HasSubstr(kIndex));
    return message;
  };
  EXPECT_THAT(fault(""), HasSubstr("is empty"));
  EXPECT_THAT(fault("{"), HasSubstr("not valid JSON"));
  for (std::string_view text : {"[]", "{}", "1", R"({"weight_map":[]})", R"({"weight_map":null})"})
    EXPECT_THAT(fault(text), HasSubstr("it has no object \"weight_map\"")) << text;
  EXPECT_THAT(fault(R"({"weight_map":{}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(fault(R"({"weight_map":{"a":1}})"), HasSubstr("tensor \"a\" is not a string"));
  EXPECT_THAT(fault(R"({"weight_map":{"a":"model.bin"}})"), HasSubstr("not a safetensors file"));
  EXPECT_THAT(fault(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"),
              HasSubstr("tensor \"a\" is there twice"));
}

TEST(ModelDir, AnIndexMayNotNameFilesElsewhere) {
  const Copy copy(kTarget);
  for (const std::string& shard :
       {fmt::format("../laguna/{}", kShard1), fmt::format("{}/{}", kTarget, kShard1),
        std::string("../x.safetensors"), std::string("sub/x.safetensors"),
        std::string("..safetensors"), std::string("x\\u0000.safetensors")}) {
    (void)copy.write(kIndex, fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", shard));
    EXPECT_THAT(copy.fault(), HasSubstr("not a file of the same folder")) << shard;
  }
}

TEST(ModelDir, ShardsThatTheIndexDoesNotNameAreNotRead) {
  const Copy copy(kTarget);
  (void)copy.write("model-00001-of-00009.safetensors", "left over");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(copy.fault(), "(no error)");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("model-00001-of-00009.safetensors is not used"));
}

TEST(ModelDir, ATensorInTwoShards) {
  const Small dir;
  dir.add("model-00001-of-00002.safetensors", {"a", "b"});
  dir.add("model-00002-of-00002.safetensors", {"b", "c"});
  EXPECT_THAT(dir.fault(),
              AllOf(HasSubstr("tensor \"b\" is in both"), HasSubstr(kShard1), HasSubstr(kShard2)));
}

TEST(ModelDir, NamesThatOnlyLookLikeShards) {
  const Small dir;
  dir.add("model-0000x-of-00002.safetensors", {"a"});
  dir.add("model-00001-to-00002.safetensors", {"b"});
  dir.add("model.safetensors", {"c"});
  dir.add("other.safetensors", {"d"});  // not a weight file of this model
  const Result<ModelDir> model = ModelDir::open(dir.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->tensor_count(), 3u);
  dir.add("model-00001-of-99999.safetensors", {"e"});
  EXPECT_THAT(dir.fault(), HasSubstr("model-00002-of-99999.safetensors is missing"));
}

// What the bundled draft holds, as a model would ask for it.
std::vector<ExpectedTensor> expected_of(const ModelDir& model, const std::string& directory) {
  std::vector<ExpectedTensor> expected;
  const Result<SafetensorsFile> file = SafetensorsFile::open(directory + "/model.safetensors");
  EXPECT_TRUE(file.ok());
  for (const TensorInfo& tensor : file->tensors())
    expected.push_back({tensor.name, {tensor.dtype}, tensor.shape});
  EXPECT_EQ(expected.size(), model.tensor_count());
  return expected;
}

class Check : public ::testing::Test {
 protected:
  Check() {
    Result<ModelDir> opened = ModelDir::open(kDraft);
    EXPECT_TRUE(opened.ok());
    model_.emplace(std::move(opened).value());
    expected_ = expected_of(*model_, kDraft);
  }
  ExpectedTensor& at(const std::string& name) {
    for (ExpectedTensor& tensor : expected_)
      if (tensor.name == name) return tensor;
    ADD_FAILURE() << name;
    return expected_[0];
  }
  void erase(const std::string& name) {
    std::erase_if(expected_, [&](const ExpectedTensor& tensor) { return tensor.name == name; });
  }
  std::string fault() const { return message_of(model_->check(expected_)); }

  std::optional<ModelDir> model_;
  std::vector<ExpectedTensor> expected_;
};

TEST_F(Check, WhatFitsIsGood) {
  EXPECT_EQ(fault(), "(no error)");
  at("norm.weight").dtypes = {numeric::DType::kF32, numeric::DType::kBF16};
  expected_.push_back({"not.there", {numeric::DType::kF32}, {1}, false});
  EXPECT_EQ(fault(), "(no error)");
}

TEST_F(Check, AMissingTensorIsNamedAndCounted) {
  expected_.push_back({"layers.2.x", {numeric::DType::kBF16}, {4}});
  EXPECT_EQ(fault(), kDraft + ": tensor \"layers.2.x\" is missing");
  expected_.push_back({"layers.2.y", {numeric::DType::kBF16}, {4}});
  expected_.push_back({"layers.2.z", {numeric::DType::kBF16}, {4}});
  EXPECT_EQ(fault(), kDraft + ": tensor \"layers.2.x\" is missing (and 2 more are missing)");
}

TEST_F(Check, AnotherShapeOrDtypeIsNamed) {
  at("norm.weight").shape = {128};
  EXPECT_EQ(fault(), kDraft +
                         "/model.safetensors: tensor \"norm.weight\" is BF16 [256], but the "
                         "model needs BF16 [128]");
  at("hidden_norm.weight").dtypes = {numeric::DType::kF32, numeric::DType::kF16};
  EXPECT_THAT(fault(), HasSubstr("(and 1 more differ"));
  at("norm.weight").shape = {256};
  EXPECT_THAT(fault(), HasSubstr("\"hidden_norm.weight\" is BF16 [256], but the model needs F32 or "
                                 "F16 [256]"));
}

TEST_F(Check, ATensorThatNothingExpectsIsNamed) {
  erase("norm.weight");
  EXPECT_EQ(fault(),
            kDraft + "/model.safetensors: tensor \"norm.weight\" is not part of this model");
  erase("fc.weight");
  EXPECT_THAT(fault(), HasSubstr("(and 1 more are not)"));
}

// A renamed tensor shows under both names.
TEST_F(Check, AnotherNameIsToldFromBothSides) {
  at("norm.weight").name = "final_norm.weight";
  EXPECT_THAT(fault(), AllOf(HasSubstr("\"final_norm.weight\" is missing"),
                             HasSubstr("\"norm.weight\" is not part of this model")));
}

TEST(CheckSmall, OneElementMayHaveEitherShape) {
  const Small dir;
  const std::byte byte{7};
  ASSERT_TRUE(write_safetensors(dir.file("model.safetensors"),
                                {{{"scalar", numeric::DType::kU8, {}, {&byte, 1}},
                                  {"single", numeric::DType::kU8, {1}, {&byte, 1}},
                                  {"square", numeric::DType::kU8, {1, 1}, {&byte, 1}}}})
                  .ok());
  const Result<ModelDir> model = ModelDir::open(dir.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<numeric::DType> u8 = {numeric::DType::kU8};
  const std::vector<ExpectedTensor> good = {
      {"scalar", u8, {1}}, {"single", u8, {}}, {"square", u8, {1, 1}}};
  EXPECT_TRUE(model->check(good).ok());
  const std::vector<ExpectedTensor> bad = {
      {"scalar", u8, {1}}, {"single", u8, {}}, {"square", u8, {1}}};
  EXPECT_THAT(message_of(model->check(bad)), HasSubstr("\"square\" is U8 [1, 1]"));
}

TEST(CheckSmall, AnUnfinishedDownloadIsMentioned) {
  const Small dir;
  dir.add("model.safetensors", {"a"});
  fs::create_directories(dir.file(".cache/huggingface/download"));
  (void)dir.write(".cache/huggingface/download/model-2.safetensors.part", "x");
  const Result<ModelDir> model = ModelDir::open(dir.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<ExpectedTensor> expected = {{"a", {numeric::DType::kU8}, {1}},
                                                {"b", {numeric::DType::kU8}, {1}}};
  EXPECT_THAT(message_of(model->check(expected)),
              AllOf(HasSubstr("tensor \"b\" is missing; the download is unfinished"),
                    HasSubstr("model-2.safetensors.part")));
}

}  // namespace
}  // namespace lagoon::checkpoint
