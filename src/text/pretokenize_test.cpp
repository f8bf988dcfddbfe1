#include "text/pretokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace lagoon::text {
namespace {

using testing::ElementsAre;
using Words = std::vector<std::string>;

constexpr std::string_view kWords =
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpelled =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
constexpr std::string_view kFolded = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr std::string_view kLineEnds = R"((?:\r?\n)+(?!\r?\n))";

SplitStep split_at(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
  return {.pattern = Regex::compile(pattern).value(), .behavior = behavior, .invert = invert};
}

SplitStep split_at_words(std::string_view contractions) {
  return split_at(std::string(contractions) + std::string(kWords), SplitBehavior::kIsolated);
}

const PreTokenizer kPlain({split_at_words(kSpelled)});
const PreTokenizer kBundled({split_at(kLineEnds, SplitBehavior::kIsolated),
                             split_at_words(kSpelled)});
const PreTokenizer kLaguna({split_at(kLineEnds, SplitBehavior::kMergedWithNext),
                            split_at_words(kFolded)});

Words split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  struct Collector : WordSink {
    void word(std::string_view word) override { words.emplace_back(word); }
    Words words;
  } collector;
  pre_tokenizer.split(text, collector);
  return collector.words;
}

Words split_one(std::string_view pattern, SplitBehavior behavior, bool invert,
                std::string_view text) {
  return split(PreTokenizer({split_at(pattern, behavior, invert)}), text);
}

TEST(PreTokenizer, NoStepsLeaveTheTextWhole) {
  EXPECT_THAT(split(PreTokenizer(), "a b"), ElementsAre("a b"));
}

TEST(PreTokenizer, BehaviorsOfASplit) {
  using enum SplitBehavior;
  constexpr std::string_view kText = "-a--b-";
  EXPECT_THAT(split_one("-", kRemoved, false, kText), ElementsAre("a", "b"));
  EXPECT_THAT(split_one("-", kIsolated, false, kText), ElementsAre("-", "a", "-", "-", "b", "-"));
  EXPECT_THAT(split_one("-", kMergedWithPrevious, false, kText), ElementsAre("-", "a-", "-", "b-"));
  EXPECT_THAT(split_one("-", kMergedWithNext, false, kText), ElementsAre("-a", "-", "-b", "-"));
  EXPECT_THAT(split_one("-", kContiguous, false, kText), ElementsAre("-", "a", "--", "b", "-"));
  EXPECT_THAT(split_one("-", kRemoved, true, kText), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(split_one("-", kContiguous, true, kText), ElementsAre("-", "a", "--", "b", "-"));
  EXPECT_THAT(split_one("-", kMergedWithPrevious, true, kText), ElementsAre("-a", "-", "-b", "-"));
}

TEST(PreTokenizer, ASplitAtAString) {
  const PreTokenizer at_aa({SplitStep{.pattern = std::string("aa")}});
  EXPECT_THAT(split(at_aa, "aaaba"), ElementsAre("aa", "aba"));
}

TEST(PreTokenizer, ByteLevelPutsASpaceInFrontOfEachPiece) {
  const ByteLevelStep spaced{.add_prefix_space = true,
                             .word_regex = Regex::compile(" ?a+").value()};
  EXPECT_THAT(split(PreTokenizer({spaced}), "aba"), ElementsAre(" a", "b", "a"));
  EXPECT_THAT(split(PreTokenizer({split_at("b", SplitBehavior::kIsolated), spaced}), "ab a"),
              ElementsAre(" a", " b", " a"));
}

TEST(PreTokenizer, LettersTakeOneCharacterAlong) {
  EXPECT_THAT(split(kPlain, "Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(split(kPlain, "_name(.x\tab"), ElementsAre("_name", "(.", "x", "\tab"));
  EXPECT_THAT(split(kPlain, "ab\u00A0cd中é"), ElementsAre("ab", "\u00A0cd中é"));
  EXPECT_THAT(split(kPlain, "\na"), ElementsAre("\n", "a"));
}

TEST(PreTokenizer, NumbersStandAlone) {
  EXPECT_THAT(split(kPlain, "12a ½3"), ElementsAre("1", "2", "a", " ", "½", "3"));
}

TEST(PreTokenizer, Contractions) {
  EXPECT_THAT(split(kPlain, "it's I'LL we'Re'x"),
              ElementsAre("it", "'s", " I", "'LL", " we", "'Re", "'x"));
  EXPECT_THAT(split(kPlain, "'l'v'd'td"), ElementsAre("'l", "'v", "'d", "'t", "d"));
  EXPECT_THAT(split(kPlain, "'"), ElementsAre("'"));
  EXPECT_THAT(split(kPlain, "'ſa"), ElementsAre("'ſa"));
  EXPECT_THAT(split(kLaguna, "'ſa"), ElementsAre("'ſ", "a"));
}

TEST(PreTokenizer, SymbolsTakeASpaceBeforeAndLineEndsBehind) {
  EXPECT_THAT(split(kPlain, "a == b;\n\nc"), ElementsAre("a", " ==", " b", ";\n\n", "c"));
  EXPECT_THAT(split(kPlain, "x  //\r\n y"), ElementsAre("x", " ", " //\r\n", " y"));
}

TEST(PreTokenizer, SpaceGoesUpToTheLastLineEndAndLeavesOneToAWord) {
  EXPECT_THAT(split(kPlain, "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(split(kPlain, "a \n \n  b"), ElementsAre("a", " \n \n", " ", " b"));
  EXPECT_THAT(split(kPlain, "a  1"), ElementsAre("a", " ", " ", "1"));
  EXPECT_THAT(split(kPlain, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(split(kPlain, "a\u3000\u2028."), ElementsAre("a", "\u3000", "\u2028", "."));
  EXPECT_THAT(split(kPlain, "\u0085\u0085"), ElementsAre("\u0085\u0085"));
}

TEST(PreTokenizer, LineEndsSplitOffFirst) {
  EXPECT_THAT(split(kBundled, "a;\n\n  b"), ElementsAre("a", ";", "\n\n", " ", " b"));
  EXPECT_THAT(split(kLaguna, "a;\n\n  b"), ElementsAre("a", ";", "\n\n", " ", " b"));
  // With the next, the run is part of what \s*[\r\n]+ sees.
  EXPECT_THAT(split(kBundled, "\n \r"), ElementsAre("\n", " \r"));
  EXPECT_THAT(split(kLaguna, "\n \r"), ElementsAre("\n \r"));
  EXPECT_THAT(split(kBundled, "a \n\nb"), ElementsAre("a", " ", "\n\n", "b"));
  EXPECT_THAT(split(kLaguna, ";\r\r\n"), ElementsAre(";\r", "\r\n"));
  EXPECT_THAT(split(kLaguna, "\n\r\n\r"), ElementsAre("\n\r\n\r"));
}

TEST(PreTokenizer, WordsJoinedAreTheText) {
  std::mt19937 random(1);
  const char32_t alphabet[] = {U'a',  U'S', U'1',      U' ', U'\n',    U'\r',
                               U'\'', U'.', U'\u00A0', U'é', U'\u0301'};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 20; i > 0; --i) {
      append_utf8(text, alphabet[random() % std::size(alphabet)]);
    }
    for (const PreTokenizer* rules : {&kPlain, &kBundled, &kLaguna}) {
      std::string joined;
      for (const std::string& word : split(*rules, text)) {
        ASSERT_TRUE(is_valid_utf8(word));
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace lagoon::text
