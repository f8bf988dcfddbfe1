// Runs tests/cases/parse at every split point: bytes of text, and tokens.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/parse/outcome.h"
#include "text/parse/test_cases.h"
#include "text/parse/token_parser.h"

namespace lagoon::text::parse {
namespace {

const Tokenizer& tokenizer() {
  static const auto kTokenizer =
      Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json").value();
  return *kTokenizer;
}

Output output_of(const Case& test, TagSet tokens) {
  return {.in_reasoning = test.in_reasoning,
          .tools = test.tools,
          .tokens = tokens,
          .text = test.output};
}

std::string in_two(const Case& test, size_t split) {
  OutputParser parser({.in_reasoning = test.in_reasoning, .tools = test.tools, .tokens = {}});
  Outcome outcome;
  const std::string_view output = test.output;
  for (const auto piece : {output.substr(0, split), output.substr(split)}) {
    std::vector<Event> events;
    parser.text(piece, events);
    for (const Event& event : events) EXPECT_TRUE(is_valid_utf8(event.text)) << event.text;
    add_events(outcome, events);
  }
  std::vector<Event> events;
  outcome.ending = parser.finish(events);
  add_events(outcome, events);
  return describe(outcome);
}

// The tokens' text comes `delay` tokens late, as behind a stop string; events are taken after each
// token whose bit is set in `groups` (steps of several tokens).
std::string in_tokens(const Case& test, const std::vector<int32_t>& tokens, size_t delay,
                      uint64_t groups) {
  const auto prompt = tokenizer().encode(test.in_reasoning ? "<assistant><think>" : "<assistant>");
  TokenParser parser(tokenizer(), prompt, test.tools, true);
  Detokenizer detokenizer(tokenizer(), true);
  std::vector<std::string> texts;
  Outcome outcome;
  std::vector<Event> events;
  for (const int32_t token : tokens) {
    texts.push_back(detokenizer.push(token));
    const size_t n = texts.size();
    parser.push(token, n > delay ? texts[n - 1 - delay] : "", events);
    if ((groups >> (n % 64) & 1) == 0) continue;
    add_events(outcome, events);
    events.clear();
  }
  std::string tail;
  for (size_t i = texts.size() - std::min(delay, texts.size()); i < texts.size(); ++i) {
    tail += texts[i];
  }
  tail += detokenizer.finish();
  outcome.ending = parser.finish(tail, events);
  add_events(outcome, events);
  return describe(outcome);
}

class OutputCases : public testing::TestWithParam<Case> {};

TEST_P(OutputCases, TextAtEverySplit) {
  const Case& test = GetParam();
  if (!test.text_mode) return;
  SCOPED_TRACE(test.name);
  ASSERT_EQ(describe(outcome_of(output_of(test, {}), "")), test.expected);
  for (size_t split = 0; split <= test.output.size(); ++split) {
    EXPECT_EQ(in_two(test, split), test.expected) << "split at " << split;
  }
  for (const char* sizes : {"\1", "\2", "\3", "\1\7", "\5\2\1"}) {
    EXPECT_EQ(describe(outcome_of(output_of(test, {}), sizes)), test.expected) << sizes;
    EXPECT_EQ(find_problem(output_of(test, {}), sizes), "");
  }
}

TEST_P(OutputCases, TokensInEveryGrouping) {
  const Case& test = GetParam();
  if (!test.token_mode) return;
  SCOPED_TRACE(test.name);
  const auto tokens = tokenizer().encode(test.output);
  // Each step boundary is there or not: all ways for short outputs, else a pattern of each kind.
  std::vector<uint64_t> groupings = {0, ~uint64_t{0}, 0x5555555555555555, 0x9249249249249249,
                                     0x8080808080808080};
  for (size_t i = 0; i < 64; ++i) groupings.push_back(uint64_t{1} << i);
  for (uint64_t i = 0; tokens.size() <= 8 && i < uint64_t{1} << (tokens.size() + 1); ++i) {
    groupings.push_back(i);
  }
  for (const uint64_t groups : groupings) {
    ASSERT_EQ(in_tokens(test, tokens, 0, groups), test.expected) << groups;
  }
  for (const size_t delay : {1, 2, 3, 7, 1000}) {
    EXPECT_EQ(in_tokens(test, tokens, delay, ~uint64_t{0}), test.expected)
        << "text comes " << delay << " tokens late";
  }
}

TEST_P(OutputCases, SomeTagsAreTokens) {
  const Case& test = GetParam();
  if (!test.token_mode) return;
  SCOPED_TRACE(test.name);
  // As in the real vocabulary, where the tags of arguments are no tokens.
  const TagSet four = TagSet::of(Tag::kThink, Tag::kEndThink, Tag::kToolCall, Tag::kEndToolCall);
  for (const TagSet set : {TagSet::all(), four}) {
    for (const char* sizes : {"", "\1", "\2", "\5\1"}) {
      EXPECT_EQ(describe(outcome_of(output_of(test, set), sizes)), test.expected) << sizes;
    }
  }
}

// Again, where what the reader complains of is a failure of a test.
TEST(OutputCaseFiles, AreUnderstood) {
  const auto cases = read_cases();
  EXPECT_GT(cases.size(), 70U);
  for (const Case& test : cases) {
    EXPECT_EQ(test.expected.empty(), test.output.empty()) << test.file << ": " << test.name;
  }
}

std::string test_name(const testing::TestParamInfo<Case>& test) {
  return test.param.file + "_" + std::to_string(test.index);
}

INSTANTIATE_TEST_SUITE_P(Files, OutputCases, testing::ValuesIn(read_cases()), test_name);

}  // namespace
}  // namespace lagoon::text::parse
