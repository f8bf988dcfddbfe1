#include "text/decoder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lagoon::text {
namespace {

// The step on pieces of `size` bytes of an ASCII text.
std::string in_pieces(const DecoderStep& step, std::string_view text, size_t size) {
  SteppedText stepped(step);
  std::string result;
  for (size_t at = 0; at < text.size(); at += size) result += stepped.push(text.substr(at, size));
  return result + stepped.finish();
}

void expect_step(const DecoderStep& step, const std::string& text, std::string_view expected) {
  EXPECT_EQ(apply_steps(text, {step}), expected) << text;
  for (size_t size = 1; size < 5; ++size) EXPECT_EQ(in_pieces(step, text, size), expected) << text;
}

TEST(DecoderStep, Strip) {
  const StripStep both{.content = "_", .start = 2, .stop = 1};
  expect_step(both, "a", "a");
  expect_step(both, "___a__", "_a_");
  expect_step(both, "_a_b_", "a_b");
  expect_step(both, "", "");
  expect_step(both, "___", "");
  expect_step(both, "______", "___");
  expect_step(StripStep{.content = "_", .start = 0, .stop = 3}, "__a____b____", "__a____b_");
}

TEST(DecoderStep, Replace) {
  const ReplaceStep step{.pattern = "aab", .content = "<>"};
  expect_step(step, "aaab", "a<>");
  expect_step(step, "aabaaba", "<><>a");
  expect_step(step, "aa", "aa");
  expect_step(ReplaceStep{.pattern = "aa", .content = ""}, "aaabaaaa", "ab");
  expect_step(ReplaceStep{.pattern = "a", .content = "aa"}, "aba", "aabaa");
}

TEST(DecoderStep, GivesOutWhatCannotChangeAnyMore) {
  const DecoderStep step = ReplaceStep{.pattern = "ab", .content = "x"};
  SteppedText text(step);
  EXPECT_EQ(text.push("ca"), "c");
  EXPECT_EQ(text.push("ca"), "ac");
  EXPECT_EQ(text.push("b"), "x");
  EXPECT_EQ(text.finish(), "");
}

Vocabulary vocabulary_of(const std::vector<std::string>& contents) {
  Vocabulary vocabulary;
  int32_t id = 0;
  for (const std::string& content : contents) (void)vocabulary.add(content, id++);
  return vocabulary;
}

TEST(Decoder, KnowsBytes) {
  const Decoder fallback({.bytes = DecoderRules::Bytes::kFallback,
                          .on_tokens = {ReplaceStep{.pattern = "_", .content = " "}},
                          .on_pieces = {StripStep{.content = "a", .start = 1}},
                          .on_text = {}},
                         vocabulary_of({"<0x41>", "<0xfF>", "<0x+5>", "<0x5>", "<0xZZ>", "a_a"}));
  EXPECT_EQ(fallback.bytes(0), "A");
  EXPECT_EQ(fallback.bytes(1), "\xFF");
  EXPECT_EQ(fallback.bytes(2), "\x05");
  EXPECT_TRUE(fallback.is_byte(2));
  EXPECT_FALSE(fallback.is_byte(3));
  EXPECT_EQ(fallback.bytes(4), "<0xZZ>");
  EXPECT_EQ(fallback.bytes(5), " a");
  EXPECT_FALSE(fallback.has(6));
  EXPECT_FALSE(fallback.has(-1));
  const Decoder level(
      {.bytes = DecoderRules::Bytes::kLevel, .on_tokens = {}, .on_pieces = {}, .on_text = {}},
      vocabulary_of({"Ġa", "é中"}));
  EXPECT_EQ(level.bytes(0), " a");
  EXPECT_EQ(level.bytes(1), "é中");
}

}  // namespace
}  // namespace lagoon::text
