#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::text {
namespace {

using testing::ElementsAre;

AddedToken token(int32_t id, std::string content) {
  return {.id = id, .content = std::move(content)};
}

// What lies between tokens as it is, tokens as "#id".
std::vector<std::string> parts(const AddedTokenFinder& finder, std::string_view text) {
  std::vector<std::string> all;
  finder.split(
      text, [&](std::string_view part) { all.emplace_back(part); },
      [&](int32_t id) { all.push_back("#" + std::to_string(id)); });
  return all;
}

TEST(AddedTokenFinder, LeftmostThenLongest) {
  const AddedTokenFinder finder(
      {token(1, "<a>"), token(2, "<a><b>"), token(3, "a>"), token(4, "〈")});
  EXPECT_THAT(parts(finder, "x<a><b>"), ElementsAre("x", "#2"));
  EXPECT_THAT(parts(finder, "x<a><c>"), ElementsAre("x", "#1", "<c>"));
  EXPECT_THAT(parts(finder, "x<a><b"), ElementsAre("x", "#1", "<b"));
  EXPECT_THAT(parts(finder, "a><<a"), ElementsAre("#3", "<<a"));
  EXPECT_THAT(parts(finder, "〉〈"), ElementsAre("〉", "#4"));
  EXPECT_THAT(parts(finder, ""), ElementsAre());
}

TEST(AddedTokenFinder, StripsWhiteSpace) {
  AddedToken left = token(1, "<l>");
  left.lstrip = true;
  AddedToken right = token(2, "<r>");
  right.rstrip = true;
  const AddedTokenFinder finder({left, right});
  EXPECT_THAT(parts(finder, "a \n\u00A0<l> b"), ElementsAre("a", "#1", " b"));
  EXPECT_THAT(parts(finder, "<r>  <l>"), ElementsAre("#2", "#1"));
  EXPECT_THAT(parts(finder, "a <r> \u00A0\tb"), ElementsAre("a ", "#2", "b"));
  EXPECT_THAT(parts(finder, "<r>\u200B "), ElementsAre("#2", "\u200B "));  // no white space
  EXPECT_THAT(parts(finder, "<r>  "), ElementsAre("#2"));
}

// As the library does it: text between the two is given out again.
TEST(AddedTokenFinder, WhiteSpaceTakenAlongMayBeginAnother) {
  AddedToken right = token(1, "A");
  right.rstrip = true;
  EXPECT_THAT(parts(AddedTokenFinder({right, token(2, " ")}), "A  b"),
              ElementsAre("#1", "#2", "#2", "b"));
  EXPECT_THAT(parts(AddedTokenFinder({right, token(2, " x")}), "A   xb"),
              ElementsAre("#1", "#2", "b"));
}

TEST(AddedTokenFinder, SingleWords) {
  AddedToken word = token(1, "ab");
  word.single_word = true;
  const AddedTokenFinder finder({word});
  EXPECT_THAT(parts(finder, "ab abc xab ab-ab éab"),
              ElementsAre("#1", " abc xab ", "#1", "-", "#1", " éab"));
  EXPECT_THAT(parts(finder, "abab"), ElementsAre("abab"));
  EXPECT_THAT(parts(finder, "ab\u0301"), ElementsAre("ab\u0301"));
}

TEST(AddedTokenFinder, NoTokens) {
  EXPECT_THAT(parts(AddedTokenFinder({}), "<a>"), ElementsAre("<a>"));
}

TEST(AddedTokenFinder, LongWhiteSpaceIsNotQuadratic) {
  AddedToken space = token(1, " ");
  space.lstrip = true;
  space.rstrip = true;
  EXPECT_EQ(parts(AddedTokenFinder({space}), std::string(1'000'000, ' ')).size(), 1'000'000U);
}

}  // namespace
}  // namespace lagoon::text
