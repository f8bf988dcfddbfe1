#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lagoon::text {
namespace {

using Stops = std::vector<std::string>;

TEST(StopMatcher, HoldsBackWhatMayBeTheStart) {
  StopMatcher matcher(Stops{"STOP"});
  EXPECT_EQ(matcher.push("a ST"), "a ");
  EXPECT_EQ(matcher.push("ST"), "ST");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.push("OP and more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "STOP");
  EXPECT_EQ(matcher.push("later"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, FinishGivesOutWhatWasHeld) {
  StopMatcher matcher(Stops{"STOP"});
  EXPECT_EQ(matcher.push("xSTO"), "x");
  EXPECT_EQ(matcher.finish(), "STO");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, EarliestStartWins) {
  StopMatcher matcher(Stops{"c", "abcd"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_FALSE(matcher.matched());  // abcd may still come
  EXPECT_EQ(matcher.push("d"), "");
  EXPECT_EQ(matcher.match(), "abcd");
}

TEST(StopMatcher, ALaterStopThatIsCompleteWinsWhereTheEarlierOneFails) {
  StopMatcher matcher(Stops{"c", "abcd"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_EQ(matcher.push("e"), "ab");
  EXPECT_EQ(matcher.match(), "c");

  StopMatcher ended(Stops{"c", "abcd"});
  EXPECT_EQ(ended.push("xabc"), "x");
  EXPECT_EQ(ended.finish(), "ab");
  EXPECT_EQ(ended.match(), "c");
}

TEST(StopMatcher, OfOneStartTheShortest) {
  StopMatcher matcher(Stops{"abc", "ab"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_EQ(matcher.match(), "ab");
}

TEST(StopMatcher, EmptyStopsAreIgnored) {
  StopMatcher matcher(Stops{"", ""});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, NeverHoldsAfterAWholeCharacterThatIsNoStart) {
  StopMatcher matcher(Stops{"é"});
  EXPECT_EQ(matcher.push("è"), "è");  // both begin with C3
}

struct Expected {
  std::string text;
  std::string match;  // "" for none
};

Expected search_whole(const std::string& text, const Stops& stops) {
  size_t earliest = text.size();
  std::string match;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (stop.empty() || at == std::string::npos || at > earliest) continue;
    if (at == earliest && stop.size() >= match.size()) continue;
    earliest = at;
    match = stop;
  }
  return {text.substr(0, earliest), match};
}

void expect_as_whole(const std::vector<std::string>& parts, const std::string& whole,
                     const Stops& stops) {
  const Expected expected = search_whole(whole, stops);
  StopMatcher matcher(stops);
  std::string given_out;
  for (const std::string& part : parts) given_out += matcher.push(part);
  given_out += matcher.finish();
  ASSERT_EQ(given_out, expected.text)
      << testing::PrintToString(parts) << testing::PrintToString(stops);
  ASSERT_EQ(matcher.matched(), !expected.match.empty());
  if (matcher.matched()) {
    ASSERT_EQ(matcher.match(), expected.match);
  }
}

TEST(StopMatcher, EqualsASearchOfTheWholeTextAtEverySplit) {
  std::mt19937 random(1);
  const auto random_text = [&](size_t longest, uint32_t letters) {
    std::string text(random() % (longest + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % letters);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t letters = 1 + random() % 3;
    Stops stops;
    for (size_t i = random() % 5; i > 0; --i) stops.push_back(random_text(6, letters));
    const std::string text = random_text(16, letters);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      expect_as_whole({text.substr(0, cut), text.substr(cut)}, text, stops);
    }
    std::vector<std::string> characters;
    for (const char c : text) characters.emplace_back(1, c);
    expect_as_whole(characters, text, stops);
    if (HasFatalFailure()) return;
  }
}

TEST(StopMatcher, GivesOutAllThatCannotBecomeAMatch) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const Stops stops = {"aab", "abab", "bba"};
    StopMatcher matcher(stops);
    std::string text;
    std::string given_out;
    while (text.size() < 40 && !matcher.matched()) {
      text.push_back(static_cast<char>('a' + random() % 2));
      given_out += matcher.push(text.substr(text.size() - 1));
      if (matcher.matched()) break;
      // The longest end of the text that begins a stop string, and no more, is held.
      size_t held = 0;
      for (const std::string& stop : stops) {
        for (size_t n = 1; n < stop.size(); ++n) {
          if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
        }
      }
      ASSERT_EQ(given_out, text.substr(0, text.size() - held));
    }
  }
}

TEST(StopMatcher, LongStopsAreNotQuadratic) {
  const std::string stop = std::string(100'000, 'a') + "b";
  StopMatcher matcher(Stops{stop});
  std::string given_out;
  for (int i = 0; i < 3000; ++i) given_out += matcher.push(std::string(100, 'a'));
  EXPECT_EQ(given_out.size(), 200'000U);
  EXPECT_EQ(matcher.push("b"), "");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace lagoon::text
