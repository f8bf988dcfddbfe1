#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lagoon::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// All matches, one after another.
Words matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  if (!regex.ok()) return {"refused: " + regex.error().message};
  Words words;
  for (size_t at = 0; at < text.size();) {
    const Regex::Match match = regex->find(text, at);
    if (match.begin == text.size()) break;
    words.emplace_back(text.substr(match.begin, match.end - match.begin));
    at = match.end;
  }
  return words;
}

TEST(Regex, SetsAndRepetitions) {
  EXPECT_THAT(matches("a", "banana"), ElementsAre("a", "a", "a"));
  EXPECT_THAT(matches("[ab]+", "abcab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(matches("[^ab]+", "abcéab"), ElementsAre("cé"));
  EXPECT_THAT(matches("ab?c*", "abccac"), ElementsAre("abcc", "ac"));
  EXPECT_THAT(matches(R"(\p{N}{1,3})", "12345½٣"), ElementsAre("123", "45½", "٣"));
  EXPECT_THAT(matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(matches("[一-龥]+", "a一龥龦"), ElementsAre("一龥"));
  EXPECT_THAT(matches(R"([!\-\[\]\\^_-]+)", "a-[]\\^_!b"), ElementsAre("-[]\\^_!"));
  EXPECT_THAT(matches(R"([-a]+)", "b-a"), ElementsAre("-a"));
  EXPECT_THAT(matches(R"(\s\S)", "a b\u0085c\u200Bd"), ElementsAre(" b", "\u0085c"));
  EXPECT_THAT(matches(R"([\S]+)", "a\u0085\u3000b\x01"), ElementsAre("a", "b\x01"));
  EXPECT_THAT(matches(R"(\p{Lu}\p{Ll}+)", "ÉtéABcd"), ElementsAre("Été", "Bcd"));
  EXPECT_THAT(matches(R"(\r\n|\t|/|\.)", "a\r\n\t/."), ElementsAre("\r\n", "\t", "/", "."));
}

TEST(Regex, TheFirstAlternativeThatMatchesCounts) {
  EXPECT_THAT(matches("a|ab", "ab"), ElementsAre("a"));
  EXPECT_THAT(matches("(?:a|ab)c", "abc"), ElementsAre("abc"));
  EXPECT_THAT(matches("a|é", "éa"), ElementsAre("é", "a"));
}

TEST(Regex, GivesBackWhatTheRestNeeds) {
  EXPECT_THAT(matches(R"(\s*[\r\n]+)", "  \n \n  x"), ElementsAre("  \n \n"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s+)", "a   b c  "), ElementsAre("  ", " ", " ", "  "));
  EXPECT_THAT(matches(R"(\s+(?!\S))", "a\u3000\u3000é"), ElementsAre("\u3000"));
  EXPECT_THAT(matches("[ab]*b", "abab"), ElementsAre("abab"));
  EXPECT_THAT(matches("[ab]{1,3}ab", "aaaab"), ElementsAre("aaaab"));
  EXPECT_THAT(matches(" ?[ab]+", " a b"), ElementsAre(" a", " b"));
}

TEST(Regex, GroupsAndLookahead) {
  EXPECT_THAT(matches(R"((?:\r?\n)+(?!\r?\n))", "a\n\r\n\r\rb\n"), ElementsAre("\n\r\n", "\n"));
  EXPECT_THAT(matches("(?:ab){2}", "ababab"), ElementsAre("abab"));
  EXPECT_THAT(matches("a(?:bc)?", "abcab"), ElementsAre("abc", "a"));
  EXPECT_THAT(matches("a(?=b)", "abac"), ElementsAre("a"));
  EXPECT_THAT(matches("a(?:b|cd){0,2}", "abcdb"), ElementsAre("abcd"));
}

TEST(Regex, KeepsWhatTheRestCannotUse) {
  EXPECT_THAT(matches("a*b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches("a*a*b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches(R"([^\p{L}]?\p{L}+)", "-ab--c"), ElementsAre("-ab", "-c"));
  EXPECT_THAT(matches(R"([\p{L}é]?[^\p{L}]x)", "é-xé"), ElementsAre("é-x"));
  EXPECT_THAT(matches(R"([\p{M}\p{L}]*\p{L}z)", "a\u0301éz"), ElementsAre("a\u0301éz"));
  EXPECT_THAT(matches("[一-丅]*[丂-丏]x", "一丂丂x"), ElementsAre("一丂丂x"));
}

// Alternatives are chosen by two bytes.
TEST(Regex, AlternativesThatDifferInTheSecondCharacter) {
  EXPECT_THAT(matches("ab|ac|a", "abacada"), ElementsAre("ab", "ac", "a", "a"));
  EXPECT_THAT(matches("ab|cd", "acabadcdc"), ElementsAre("ab", "cd"));
  EXPECT_THAT(matches("aé|éa|é", "aéaéaéa"), ElementsAre("aé", "aé", "aé"));
  EXPECT_THAT(matches("é[^b]|a", "éaéébé"), ElementsAre("éa", "éé"));
  EXPECT_THAT(matches("a(?:bc)?(?:cd)?b|a", "abcdbacdbaba"), ElementsAre("ab", "acdb", "ab", "a"));
  EXPECT_THAT(matches("a{2,3}(?=b)|a{1,2}|b", "aaabaaa"), ElementsAre("aaa", "b", "aa", "a"));
  EXPECT_THAT(matches(R"(a\s*(?!b)|ab?)", "a baab"), ElementsAre("a", "a", "ab"));
}

// Too many classes and instructions to look at two bytes.
TEST(Regex, ManyAlternatives) {
  std::string pattern = "x[^a]{2,3}y(?:a?b){1,900}c";
  for (char c = 'a'; c <= 'h'; ++c) pattern += std::string("|") + c + "[^" + c + "]";
  const std::string text =
      "xé-ybabc"
      "aabaé"
      "w";
  EXPECT_THAT(matches(pattern, text), ElementsAre("xé-ybabc", "ab", "aé"));
}

TEST(Regex, IgnoresCaseAsUnicodeFolds) {
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S'ſ'lL'LX"), ElementsAre("'S", "'ſ", "'lL"));
  EXPECT_THAT(matches("(?i:k)", "kK\u212A"), ElementsAre("k", "K", "\u212A"));
}

TEST(Regex, WhatItDoesNotKnowIsNamed) {
  const auto refusal = [](std::string_view pattern) {
    const auto regex = Regex::compile(pattern);
    return regex.ok() ? std::string("accepted") : regex.error().message;
  };
  EXPECT_THAT(refusal(R"(\w+)"), HasSubstr(R"(\w)"));
  EXPECT_THAT(refusal(R"(\p{Han}+)"), HasSubstr(R"(\p{Han})"));
  EXPECT_THAT(refusal(R"(\P{L}+)"), HasSubstr(R"(\P)"));
  EXPECT_THAT(refusal(R"(\é)"), HasSubstr("\\é"));
  EXPECT_THAT(refusal("\\"), HasSubstr("\\"));
  EXPECT_THAT(refusal("."), HasSubstr("."));
  EXPECT_THAT(refusal("a$"), HasSubstr("$"));
  EXPECT_THAT(refusal("(a)"), HasSubstr("(a"));
  EXPECT_THAT(refusal("(?<!a)b"), HasSubstr("(?<"));
  EXPECT_THAT(refusal("(?:a"), HasSubstr("without its )"));
  EXPECT_THAT(refusal("a)"), HasSubstr("without its ("));
  EXPECT_THAT(refusal("[a"), HasSubstr("without its ]"));
  EXPECT_THAT(refusal("[]"), HasSubstr("an empty class"));
  EXPECT_THAT(refusal("[a&&b]"), HasSubstr("class in a class"));
  EXPECT_THAT(refusal("[a[b]]"), HasSubstr("class in a class"));
  EXPECT_THAT(refusal("[z-a]"), HasSubstr("a range"));
  EXPECT_THAT(refusal(R"([\s-a])"), HasSubstr("a range"));
  EXPECT_THAT(refusal("a+?"), HasSubstr("lazy"));
  EXPECT_THAT(refusal("a++"), HasSubstr("possessive"));
  EXPECT_THAT(refusal("a{2,1}"), HasSubstr("a {"));
  EXPECT_THAT(refusal("a{9999}"), HasSubstr("1000"));
  EXPECT_THAT(refusal("a*"), HasSubstr("the empty text"));
  EXPECT_THAT(refusal("a|"), HasSubstr("the empty text"));
  EXPECT_THAT(refusal(""), HasSubstr("the empty text"));
  EXPECT_THAT(refusal("(?:a+)+b"), HasSubstr("unbounded repetition in another"));
  EXPECT_THAT(refusal("[ab]*[ab]*b"), HasSubstr("give back"));
  EXPECT_THAT(refusal("(?:a?){2}b"), HasSubstr("may be empty"));
  EXPECT_THAT(refusal("(?i:ss)"), HasSubstr("ss in (?i:...)"));
  EXPECT_THAT(refusal("(?i:é)"), HasSubstr("ASCII"));
  EXPECT_THAT(refusal("(?i:s+)"), HasSubstr("repetition in (?i:...)"));
  EXPECT_THAT(refusal(std::string(100, '(')), HasSubstr("("));
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += "(?:";
  EXPECT_THAT(refusal(nested), HasSubstr("nested too deep"));
  EXPECT_THAT(refusal("(?:ab){1000}(?:ab){1000}(?:ab){1000}"), HasSubstr("too many"));
}

TEST(Regex, ALongTextTakesNoTimeAndNoStack) {
  std::string text(1'000'000, 'A');
  const auto words = Regex::compile(R"(\p{Lu}*\p{Ll}+|\p{Lu}+|(?:\r?\n)+(?!\r?\n))").value();
  EXPECT_EQ(words.find(text, 0).end, text.size());
  text.assign(1'000'000, '\n');
  EXPECT_EQ(words.find(text, 0).end, text.size());
}

}  // namespace
}  // namespace lagoon::text
