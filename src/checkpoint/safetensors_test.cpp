#include "checkpoint/safetensors.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

#include "checkpoint/safetensors_writer.h"
#include "checkpoint/test_support.h"

namespace lagoon::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kGoodHeader =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
    R"("empty":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]}})";
constexpr std::string_view kGoodData = "0123456789abcdef";

// The message for a file with this header and data; it must name the file.
std::string fault_of(std::string_view header, std::string_view data = kGoodData) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors_bytes(header, data));
  std::string message = message_of(SafetensorsFile::open(path));
  EXPECT_THAT(message, HasSubstr("x.safetensors"));
  return message;
}

std::string fault_of_bytes(std::string_view bytes) {
  const TempDir dir;
  return message_of(SafetensorsFile::open(dir.write("x.safetensors", bytes)));
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape,
                     offsets);
}

TEST(Safetensors, AGoodFileIsRead) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors_bytes(kGoodHeader, kGoodData));
  Result<SafetensorsFile> opened = SafetensorsFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const SafetensorsFile file = std::move(opened).value();
  EXPECT_EQ(file.path(), path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);

  const TensorInfo* a = file.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a, &file.tensors()[0]);
  EXPECT_EQ(a->dtype, numeric::DType::kBF16);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a->elements(), 6);
  EXPECT_EQ(a->offset, 8 + kGoodHeader.size());
  ASSERT_EQ(file.bytes(*a).size(), 12u);
  EXPECT_EQ(std::memcmp(file.bytes(*a).data(), "0123456789ab", 12), 0);

  const TensorInfo* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_TRUE(b->shape.empty());
  EXPECT_EQ(b->elements(), 1);
  EXPECT_EQ(std::memcmp(file.bytes(*b).data(), "cdef", 4), 0);

  const TensorInfo* empty = file.find("empty");
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(empty->elements(), 0);
  EXPECT_TRUE(file.bytes(*empty).empty());
}

TEST(Safetensors, MovingKeepsTheMapping) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors_bytes(kGoodHeader, kGoodData));
  Result<SafetensorsFile> first = SafetensorsFile::open(path);
  Result<SafetensorsFile> second = SafetensorsFile::open(path);
  ASSERT_TRUE(first.ok() && second.ok());
  *second = std::move(*first);
  const SafetensorsFile file(std::move(*second));
  EXPECT_EQ(std::memcmp(file.bytes(*file.find("b")).data(), "cdef", 4), 0);
}

TEST(Safetensors, AFileWithoutTensorsIsGood) {
  EXPECT_EQ(fault_of_bytes(safetensors_bytes("{}", "")), "(no error)");
  EXPECT_EQ(fault_of_bytes(safetensors_bytes("{}   ", "")), "(no error)");
  EXPECT_EQ(fault_of_bytes(safetensors_bytes(R"({"__metadata__":{}})", "")), "(no error)");
}

TEST(Safetensors, TheOrderOfTheHeaderIsFree) {
  EXPECT_EQ(
      fault_of_bytes(safetensors_bytes(R"({"b":{"data_offsets":[2,4],"shape":[1],"dtype":"BF16"},)"
                                       R"("a":{"shape":[2],"data_offsets":[0,2],"dtype":"I8"}})",
                                       "1234")),
      "(no error)");
}

TEST(Safetensors, WhatIsNotAFileIsRefused) {
  const TempDir dir;
  const Result<SafetensorsFile> absent = SafetensorsFile::open(dir.file("x.safetensors"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("x.safetensors is missing"));
  EXPECT_THAT(message_of(SafetensorsFile::open(dir.path())), HasSubstr("is a directory"));
  const std::string pipe = dir.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(message_of(SafetensorsFile::open(pipe)), HasSubstr("is not a regular file"));
  const std::string link = dir.file("link");
  std::filesystem::create_symlink("nowhere", link);
  EXPECT_THAT(message_of(SafetensorsFile::open(link)), HasSubstr("is missing"));
}

TEST(Safetensors, AGitLfsPointerIsNamed) {
  EXPECT_THAT(fault_of_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n"),
              AllOf(HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = safetensors_bytes(kGoodHeader, kGoodData);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string message = fault_of_bytes(std::string_view(whole).substr(0, length));
    if (length == 0) {
      EXPECT_THAT(message, HasSubstr("is empty"));
    } else if (length < 8) {
      EXPECT_THAT(message, HasSubstr("too few")) << length;
    } else {
      EXPECT_THAT(message, HasSubstr("truncated")) << length;
    }
  }
}

TEST(Safetensors, AHeaderLengthBeyondTheFileIsRefused) {
  const std::string rest = std::string(kGoodHeader) + std::string(kGoodData);
  EXPECT_THAT(fault_of_bytes(length_field(rest.size() + 1) + rest), HasSubstr("truncated"));
  EXPECT_THAT(fault_of_bytes(length_field(100'000'000) + rest), HasSubstr("truncated"));
  for (uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 32, (uint64_t{1} << 63) - 1,
                          uint64_t{1} << 63, UINT64_MAX - 8, UINT64_MAX - 7, UINT64_MAX})
    EXPECT_THAT(fault_of_bytes(length_field(length) + rest), HasSubstr("not a safetensors file"))
        << length;
}

TEST(Safetensors, AHeaderThatIsNotJsonIsRefused) {
  for (std::string_view header :
       {"", " ", "{", "}", "{]", "nonsense", R"({"a":})", R"({"a" 1})", "{}x", "{}{}",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,99999999999999999999999]}})",
        "{\"\xff\":1}"})
    EXPECT_THAT(fault_of(header), HasSubstr("not valid JSON")) << header;
  for (std::string_view header : {"[]", "1", "null", "\"a\""})
    EXPECT_THAT(fault_of(header), HasSubstr("not a JSON object")) << header;
  EXPECT_THAT(fault_of(std::string(5000, '[')), HasSubstr("not valid JSON"));
}

TEST(Safetensors, EntriesOfAnotherFormAreRefused) {
  const std::string fault = "tensor \"a\" ";
  EXPECT_THAT(fault_of(R"({"a":1})"), HasSubstr(fault + "is not described by a JSON object"));
  EXPECT_THAT(fault_of(R"({"a":{}})"), HasSubstr(fault + "has no dtype"));
  EXPECT_THAT(fault_of(R"({"a":{"dtype":"U8"}})"), HasSubstr(fault + "has no shape"));
  EXPECT_THAT(fault_of(R"({"a":{"dtype":"U8","shape":[]}})"),
              HasSubstr(fault + "has no data_offsets"));
  EXPECT_THAT(fault_of(R"({"a":{"dtype":8}})"), HasSubstr(fault + "has a dtype that is not a"));
  EXPECT_THAT(fault_of(R"({"a":{"dtype":"U8","dtype":"I8"}})"), HasSubstr("two dtypes"));
  EXPECT_THAT(fault_of(R"({"a":{"shape":[],"shape":[]}})"), HasSubstr("two shapes"));
  EXPECT_THAT(fault_of(R"({"a":{"data_offsets":[0,1],"data_offsets":[0,1]}})"),
              HasSubstr("data_offsets twice"));
  EXPECT_THAT(fault_of(R"({"a":{"strides":[1]}})"), HasSubstr("field \"strides\""));
  EXPECT_THAT(fault_of(R"({"__metadata__":[]})"), HasSubstr("__metadata__"));
  EXPECT_THAT(fault_of(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__"));
  EXPECT_THAT(fault_of(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("twice"));
}

TEST(Safetensors, UnknownDtypesAreRefused) {
  for (std::string_view dtype : {"", "bf16", "F4", "F8_E8M0", "U32", "FLOAT"})
    EXPECT_THAT(
        fault_of(entry(dtype, "[16]", "[0,16]")),
        AllOf(HasSubstr("tensor \"a\""), HasSubstr(fmt::format("unknown dtype \"{}\"", dtype))));
}

TEST(Safetensors, ShapesThatAreNotCountsAreRefused) {
  EXPECT_THAT(fault_of(entry("U8", "16", "[0,16]")), HasSubstr("not an array"));
  for (std::string_view extent :
       {"-1", "16.0", "true", "null", "\"16\"", "[16]", "9223372036854775808"})
    EXPECT_THAT(fault_of(entry("U8", fmt::format("[{}]", extent), "[0,16]")),
                AllOf(HasSubstr("tensor \"a\""), HasSubstr("not a count")));
}

TEST(Safetensors, ShapesThatDoNotFitTheBytesAreRefused) {
  EXPECT_THAT(fault_of(entry("BF16", "[2,3]", "[0,16]")),
              HasSubstr("has 16 bytes, but BF16 of shape [2, 3] takes 12"));
  EXPECT_THAT(fault_of(entry("F64", "[]", "[0,16]")), HasSubstr("F64 of shape [] takes 8"));
  EXPECT_THAT(fault_of(entry("U8", "[0]", "[0,16]")), HasSubstr("takes 0"));
  // Products that would wrap to the right number of bytes.
  EXPECT_THAT(fault_of(entry("U8", "[4294967296,4294967296]", "[0,0]")),
              HasSubstr("more elements than can be counted"));
  EXPECT_THAT(fault_of(entry("U8", "[9223372036854775807,2,8]", "[0,16]")),
              HasSubstr("more elements than can be counted"));
  EXPECT_THAT(fault_of(entry("F64", "[2305843009213693954]", "[0,16]")),
              HasSubstr("more elements than can be counted"));
}

TEST(Safetensors, OffsetsOutsideTheFormatAreRefused) {
  for (std::string_view offsets :
       {"[]", "[0]", "[0,16,16]", "[0,16.0]", "[-1,15]", "[0,\"16\"]", "{}", "16"})
    EXPECT_THAT(fault_of(entry("U8", "[16]", offsets)), HasSubstr("not two byte counts"))
        << offsets;
  EXPECT_THAT(fault_of(entry("U8", "[16]", "[16,0]")), HasSubstr("run backwards"));
  EXPECT_THAT(fault_of(entry("U8", "[17]", "[0,17]")), HasSubstr("truncated"));
  EXPECT_THAT(fault_of(entry("U8", "[16]", "[18446744073709551599,18446744073709551615]")),
              HasSubstr("begins"));
  EXPECT_THAT(fault_of(entry("U8", "[9223372036854775807]", "[0,9223372036854775807]")),
              HasSubstr("truncated"));
  EXPECT_THAT(fault_of(entry("U8", "[15]", "[0,15]")), HasSubstr("1 bytes follow"));
  EXPECT_THAT(fault_of(entry("U8", "[15]", "[1,16]")), HasSubstr("begins 1 bytes after"));
}

TEST(Safetensors, OverlapsAndGapsAreRefused) {
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[8],"data_offsets":{}}},)"
                       R"("b":{{"dtype":"U8","shape":[8],"data_offsets":{}}}}})",
                       first, second);
  };
  EXPECT_THAT(fault_of(two("[0,8]", "[7,15]")),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("overlaps tensor \"a\"")));
  EXPECT_THAT(fault_of(two("[0,8]", "[0,8]")), HasSubstr("overlaps"));
  EXPECT_THAT(fault_of(two("[8,16]", "[4,12]")),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("begins 4 bytes after")));
  EXPECT_THAT(fault_of(two("[0,8]", "[9,17]"), "0123456789abcdefg"),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("begins 1 bytes after")));
}

TEST(Safetensors, ANameTwiceIsRefused) {
  EXPECT_THAT(fault_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})"),
              HasSubstr("tensor \"a\" is there twice"));
  EXPECT_THAT(fault_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                       R"("\u0061":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})"),
              HasSubstr("tensor \"a\" is there twice"));
}

TEST(Safetensors, LongAndStrangeNamesAreShownShort) {
  const std::string name = "line\\n" + std::string(5000, 'x');
  const std::string message = fault_of(fmt::format(R"({{"{}":1}})", name));
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

// Any byte of the header may be wrong: the file is refused or all its tensors lie inside it.
TEST(Safetensors, ChangedBytesNeverReadOutside) {
  const TempDir dir;
  const std::string whole = safetensors_bytes(kGoodHeader, kGoodData);
  for (size_t at = 0; at < 8 + kGoodHeader.size(); ++at) {
    for (const char byte : {'\0', '"', '0', '9', ',', '[', '}', '-', 'e', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = byte;
      const Result<SafetensorsFile> file = SafetensorsFile::open(dir.write("x", bytes));
      if (!file.ok()) continue;
      size_t covered = 0;
      for (const TensorInfo& tensor : file->tensors())
        for (const std::byte b : file->bytes(tensor)) covered += b != std::byte{0xff} ? 1 : 0;
      EXPECT_EQ(covered, kGoodData.size());
    }
  }
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const std::vector<TensorToWrite> tensors = {
      {"odd", numeric::DType::kU8, {3}, bytes_of("abc")},
      {"quote\" back\\slash \n \xc3\xbc", numeric::DType::kF32, {1, 2}, bytes_of("01234567")},
      {"scalar", numeric::DType::kF64, {}, bytes_of("ABCDEFGH")},
      {"none", numeric::DType::kBF16, {4, 0}, {}}};
  const Result<void> written = write_safetensors(path, tensors, {{"format", "pt"}, {"a", "\"b\""}});
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    const TensorInfo* info = file->find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->dtype, tensor.dtype);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_EQ(info->offset % numeric::dtype_size(info->dtype), 0u) << tensor.name;
    const std::span<const std::byte> bytes = file->bytes(*info);
    ASSERT_EQ(bytes.size(), tensor.bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin()));
  }
}

TEST(SafetensorsWriter, WhatCannotBeWrittenIsAnError) {
  const TempDir dir;
  const std::string path = dir.file("w.safetensors");
  const auto fault = [&](std::vector<TensorToWrite> tensors) {
    std::string message = message_of(write_safetensors(path, tensors));
    EXPECT_FALSE(std::filesystem::exists(path));
    return message;
  };
  const TensorToWrite good = {"a", numeric::DType::kU8, {3}, bytes_of("abc")};
  EXPECT_THAT(fault({good, good}), HasSubstr("twice"));
  EXPECT_THAT(fault({{"__metadata__", numeric::DType::kU8, {3}, bytes_of("abc")}}),
              HasSubstr("reserves"));
  EXPECT_THAT(fault({{"a", numeric::DType::kBF16, {3}, bytes_of("abc")}}), HasSubstr("takes 6"));
  EXPECT_THAT(fault({{"a", numeric::DType::kU8, {-3}, bytes_of("abc")}}),
              HasSubstr("cannot have shape"));
  EXPECT_THAT(fault({{"a", numeric::DType::kU8, {int64_t{1} << 62, 8}, bytes_of("")}}),
              HasSubstr("cannot have shape"));
  EXPECT_THAT(message_of(write_safetensors(dir.file("no/such/folder"), {{good}})),
              HasSubstr("cannot be written"));
}

// The largest file at hand that another program wrote.
TEST(Safetensors, TheGoldenVectorsOpen) {
  const Result<SafetensorsFile> file =
      SafetensorsFile::open(std::string(LAGOON_SOURCE_DIR) + "/tests/golden/tensors.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const TensorInfo* logits = file->find("0.logits_last");
  ASSERT_NE(logits, nullptr);
  EXPECT_EQ(logits->shape, std::vector<int64_t>{4096});
}

}  // namespace
}  // namespace lagoon::checkpoint
