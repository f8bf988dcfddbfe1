#include "text/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace lagoon::text {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const json& bundled() {
  static const json kFile = [] {
    std::ifstream stream(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json");
    return json::parse(stream);
  }();
  return kFile;
}

std::string write(const std::string& content) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = testing::TempDir() + "/" + test->name() + "_tokenizer.json";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

using Change = std::function<void(json&)>;

std::string changed(const Change& change) {
  json file = bundled();
  change(file);
  return write(file.dump());
}

void expect_error(const std::string& path, const std::string& part) {
  const auto result = read_tokenizer_file(path);
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_THAT(result.error().message, AllOf(StartsWith(path + ": "), HasSubstr(part)));
  EXPECT_FALSE(Tokenizer::load(path).ok());
}

void expect_refused(const Change& change, const std::string& part) {
  expect_error(changed(change), part);
}

TEST(TokenizerFile, TheBundledOneIsRead) {
  const auto file = read_tokenizer_file(write(bundled().dump()));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->vocabulary.size(), 4096);
  EXPECT_EQ(file->model.merges.size(), 3818U);
  EXPECT_EQ(file->added_tokens.size(), 22U);
  EXPECT_TRUE(file->model.byte_level);
  EXPECT_TRUE(file->normalizer.empty());
}

TEST(TokenizerFile, APrefixIsRead) {
  const std::string path = changed([](json& file) {
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "〈|EOS|〉"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens",
         {{"〈|EOS|〉", {{"id", "〈|EOS|〉"}, {"ids", {2}}, {"tokens", {"〈|EOS|〉"}}}}}}};
  });
  const auto file = read_tokenizer_file(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->prefix, std::vector<int32_t>{2});
}

TEST(TokenizerFile, NoFileOrNoJson) {
  expect_error("/nonexistent/tokenizer.json", "no such file");
  expect_error(testing::TempDir(), "no such file");
  expect_error(write(""), "the file is empty");
  expect_error(write("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 7\n"),
               "Git LFS pointer");
  expect_error(write("{"), "cannot be read as JSON");
  expect_error(write(bundled().dump().substr(0, 5000)), "cannot be read as JSON");
  expect_error(write("{\"a\": \"\xFF\"}"), "cannot be read as JSON");
  expect_error(write("[]"), "not an object");
  expect_error(write("{}"), "model is missing");
  expect_error(write(R"({"model": {}, "model": {}})"), "model is there twice");
}

TEST(TokenizerFile, OtherKindsAreNamed) {
  expect_refused([](json& f) { f["normalizer"] = {{"type", "NFKC"}}; },
                 R"(normalizer.type is "NFKC")");
  expect_refused([](json& f) { f["normalizer"] = 1; }, "normalizer is 1");
  expect_refused(
      [](json& f) {
        f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "b"}};
      },
      "normalizer.pattern.Regex");
  expect_refused(
      [](json& f) {
        f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "b"}};
      },
      "pattern.String has 0 bytes");
  expect_refused([](json& f) { f["truncation"] = {{"max_length", 5}}; }, "truncation is ");
  expect_refused([](json& f) { f["novelty"] = 1; }, "novelty is 1");
  expect_refused([](json& f) { f["model"]["type"] = "Unigram"; }, R"(model.type is "Unigram")");
  expect_refused([](json& f) { f["model"]["byte_fallback"] = 3; }, "model.byte_fallback is 3");
  expect_refused([](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout is 0.1");
  expect_refused([](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; },
                 "model.end_of_word_suffix");
  expect_refused([](json& f) { f["model"]["novelty"] = true; }, "model.novelty is true");
  expect_refused([](json& f) { f["model"].erase("type"); }, "model.type is missing");
  expect_refused([](json& f) { f["decoder"] = nullptr; }, "decoder is null");
  expect_refused([](json& f) { f["decoder"]["type"] = "WordPiece"; },
                 R"(decoder.type is "WordPiece")");
  expect_refused([](json& f) { f.erase("decoder"); }, "decoder is missing");
  expect_refused([](json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; },
                 "BertProcessing");
  expect_refused([](json& f) { f["post_processor"] = 3; }, "post_processor is 3");
}

TEST(TokenizerFile, OtherDecodersAreNamed) {
  const auto decoders = [](const json& list) {
    return [=](json& f) { f["decoder"] = {{"type", "Sequence"}, {"decoders", list}}; };
  };
  expect_refused(decoders(json::array({{{"type", "Fuse"}}, {{"type", "ByteFallback"}}})),
                 R"(decoder.decoders[1].type is "ByteFallback" after)");
  expect_refused(decoders(json::array({{{"type", "Metaspace"}}})),
                 R"(decoders[0].type is "Metaspace")");
  expect_refused(
      decoders(json::array({{{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}})),
      R"(content, "ab", is not one character)");
  expect_refused(
      decoders(json::array({{{"type", "Strip"}, {"content", "a"}, {"start", -1}, {"stop", 0}}})),
      "start is not a whole number");
  json nested = {{"type", "Fuse"}};
  for (int i = 0; i < 20; ++i) nested = {{"type", "Sequence"}, {"decoders", json::array({nested})}};
  expect_refused([&](json& f) { f["decoder"] = nested; }, "nested more than 8 deep");
}

TEST(TokenizerFile, OtherPreTokenizersAreNamed) {
  const auto steps = [](json& f) -> json& { return f["pre_tokenizer"]["pretokenizers"]; };
  expect_refused([](json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; }, R"("Whitespace")");
  expect_refused([&](json& f) { steps(f)[0]["pattern"]["Regex"] = "\\w+"; },
                 R"([0].pattern.Regex, "\\w+", has \w, which Lagoon does not support)");
  expect_refused([&](json& f) { steps(f)[0]["pattern"] = {{"Glob", "x"}}; }, "pattern.Glob");
  expect_refused([&](json& f) { steps(f)[0]["pattern"] = {{"String", ""}}; }, "String is empty");
  expect_refused([&](json& f) { steps(f)[0]["behavior"] = "Dropped"; },
                 R"([0].behavior is "Dropped")");
  expect_refused([&](json& f) { steps(f)[0]["invert"] = 1; }, "[0].invert is 1");
  expect_refused([&](json& f) { steps(f)[2]["use_regex"] = 1; }, "[2].use_regex is 1");
  expect_refused([&](json& f) { steps(f)[2].erase("add_prefix_space"); },
                 "[2].add_prefix_space is missing");
  expect_refused([&](json& f) { steps(f)[0] = {{"type", "Metaspace"}}; }, "Metaspace");
  expect_refused([&](json& f) { steps(f).push_back(steps(f)[2]); },
                 R"([3].type is "ByteLevel" after ByteLevel)");
  expect_refused([&](json& f) { steps(f)[0] = 7; }, "pretokenizers[0] is 7");
  // Without ByteLevel the vocabulary is one of characters, and some would be lost.
  expect_refused(
      [](json& f) {
        f["pre_tokenizer"] = nullptr;
        f["model"]["unk_token"] = nullptr;
      },
      "characters would be lost");
}

TEST(TokenizerFile, TemplatesThatDoMoreAreRefused) {
  const json special = {{"SpecialToken", {{"id", "<think>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto with = [](const json& single, const json& ids) {
    return [=](json& f) {
      f["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", single},
                             {"special_tokens", {{"<think>", {{"id", "<think>"}, {"ids", ids}}}}}};
    };
  };
  expect_refused(with(json::array({text, special}), json::array({6})), "does more");
  expect_refused(with(json::array({special}), json::array({6})), "does more");
  expect_refused(with(json::array({special, text}), json::array({9999})),
                 "the id 9999, which no token has");
  expect_refused(with(json::array({special, text}), json::array({-1})), "outside");
  expect_refused(with(json::array({special, text}), nullptr), "no ids");
}

TEST(TokenizerFile, WrongVocabularies) {
  expect_refused([](json& f) { f["model"]["vocab"] = json::array(); },
                 "model.vocab is not an object");
  expect_refused([](json& f) { f["model"]["vocab"]["x"] = "1"; }, "not a whole number");
  expect_refused([](json& f) { f["model"]["vocab"]["x"] = 1.5; }, "not a whole number");
  expect_refused([](json& f) { f["model"]["vocab"]["Ġthe"] = -1; }, "the id -1 of token \"Ġthe\"");
  expect_refused([](json& f) { f["model"]["vocab"]["Ġthe"] = 1LL << 40; }, "is outside 0 to");
  expect_refused([](json& f) { f["model"]["vocab"]["new"] = 4'000'000; },
                 "gives the id 4000000 to \"new\" while it has 4096 tokens");
  expect_refused([](json& f) { f["model"]["vocab"]["new"] = 300; },
                 "gives the id 300 to the tokens");
  expect_refused([](json& f) { f["model"]["vocab"][""] = 5000; }, "empty token");
  expect_refused([](json& f) { f["model"]["vocab"].erase("Ċ"); },
                 "no token \"Ċ\" for the byte 0x0a");
  std::string twice = bundled().dump();
  twice.insert(twice.find("\"vocab\":{") + 9, "\"Ċ\":5000,");
  expect_error(write(twice), "the token \"Ċ\" twice");
}

TEST(TokenizerFile, WrongMerges) {
  const auto merge = [](const json& value) {
    return [=](json& f) { f["model"]["merges"][7] = value; };
  };
  expect_refused(merge({"a", "nope"}), R"(model.merges[7] needs the token "nope")");
  expect_refused(merge({"Q", "Q"}), R"(model.merges[7] needs the token "QQ")");
  expect_refused(merge({"a"}), R"(model.merges[7] is ["a"], not two tokens)");
  expect_refused(merge({"a", "b", "c"}), "not two tokens");
  expect_refused(merge("ab"), "not two tokens");
  expect_refused(merge("a b c"), "not two tokens");
  expect_refused(merge(5), "not two tokens");
  expect_refused([](json& f) { f["model"].erase("merges"); }, "model.merges is missing");
}

TEST(TokenizerFile, WrongAddedTokens) {
  const auto set = [](const char* key, const json& value) {
    return [=](json& f) { f["added_tokens"][6][key] = value; };
  };
  expect_refused(set("single_word", 1), R"(added token "<think>": single_word is 1)");
  expect_refused(set("lstrip", 1), R"(added token "<think>": lstrip is 1)");
  expect_refused(set("special", nullptr), "special is null");
  expect_refused(set("novelty", 1), "novelty is 1");
  expect_refused(set("content", ""), "empty token");
  expect_refused(set("content", 5), "content is not a string");
  expect_refused(set("id", 7), R"("<think>" with the id 7)");
  expect_refused(set("id", 5000), R"("<think>" with the id 5000)");
  expect_refused(set("id", -7), "outside");
  expect_refused(set("content", "<new>"), R"("<new>" with the id 6)");
  expect_refused([](json& f) { f["added_tokens"][7] = f["added_tokens"][6]; },
                 R"("<think>" twice)");
  expect_refused([](json& f) { f["added_tokens"][7].erase("special"); }, "special is missing");
  expect_refused([](json& f) { f["added_tokens"][7] = 3; }, "not an object");
  expect_refused(set("content", std::string(2000, 'x')), "more than 1024 bytes");
  expect_refused(
      [](json& f) {
        f["normalizer"] = {{"type", "NFC"}};
        for (const char* content : {"x\u00C5", "x\u212B"}) {
          json token = f["added_tokens"][6];
          token["content"] = content;
          token["normalized"] = true;
          token["id"] = 4096 + f["added_tokens"].size() - 22;
          f["added_tokens"].push_back(token);
        }
      },
      "when normalized, as another is");
}

TEST(TokenizerFile, AddedTokensMayExtendTheVocabulary) {
  const auto tokenizer = Tokenizer::load(changed([](json& f) {
    f["added_tokens"].push_back(f["added_tokens"][2]);
    f["added_tokens"].back()["content"] = "<new>";
    f["added_tokens"].back()["id"] = 4096;
  }));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab_size(), 4097);
  EXPECT_EQ((*tokenizer)->encode("<new>"), std::vector<int32_t>{4096});
  EXPECT_EQ((*tokenizer)->token_bytes(4097), "");
  EXPECT_TRUE((*tokenizer)->is_special(4096));
}

// The library would give it the next free id, whatever the file says.
TEST(TokenizerFile, IdsThatLeaveAGapAreRefused) {
  expect_refused(
      [](json& f) {
        f["added_tokens"].push_back(f["added_tokens"][2]);
        f["added_tokens"].back()["content"] = "<new>";
        f["added_tokens"].back()["id"] = 4100;
      },
      R"("<new>" with the id 4100, where 4096 is its id)");
}

TEST(TokenizerFile, HostileFilesAreRefusedInTime) {
  std::string deep = bundled().dump();
  deep.insert(1, "\"novelty\":" + std::string(100'000, '['));
  expect_error(write(deep), "cannot be read as JSON");
  json keys = bundled();
  for (int i = 0; i < 100'000; ++i) keys["decoder"]["key" + std::to_string(i)] = i;
  expect_error(write(keys.dump()), "decoder.key0 is 0");
  json tokens = bundled();
  for (int i = 0; i < 100'000; ++i) tokens["model"]["vocab"]["x" + std::to_string(i)] = 4095;
  expect_error(write(tokens.dump()), "gives the id 4095 to the tokens");
  json merges = bundled();
  merges["model"]["merges"] = json::array();
  for (int i = 0; i < 100'000; ++i) merges["model"]["merges"].push_back({"Ġ", "t"});
  EXPECT_TRUE(Tokenizer::load(write(merges.dump())).ok());
  merges["model"]["merges"].push_back({std::string(100'000, 'a'), "b"});
  const auto long_merge = Tokenizer::load(write(merges.dump()));
  ASSERT_FALSE(long_merge.ok());
  EXPECT_LT(long_merge.error().message.size(), 600U);
}

}  // namespace
}  // namespace lagoon::text
