// Every way an answer ends, at every place inside a block of proposals.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

constexpr int kPrompt = 5;

// A rig whose draft is always right, and that knows `answer` after test_prompt(kPrompt).
std::unique_ptr<Rig> rig_with(const std::vector<int32_t>& answer, int k) {
  auto rig = std::make_unique<Rig>();
  rig->target.script(test_prompt(kPrompt), answer);
  rig->fake.draft_hits = 100;
  rig->options.proposals = k;
  rig->start();
  return rig;
}

std::vector<int32_t> plain_answer(int count) {
  std::vector<int32_t> answer(static_cast<size_t>(count));
  std::iota(answer.begin(), answer.end(), 400);
  return answer;
}

std::vector<int32_t> first(const std::vector<int32_t>& tokens, int count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Proposals accepted and emitted when all are right and the answer ends with token `index`: the
// first token comes from the prompt, then blocks of k + 1.
int accepted_until(int index, int k) {
  if (index == 0) return 0;
  const int blocks = (index - 1) / (k + 1);
  const int offset = (index - 1) % (k + 1);
  return blocks * k + std::min(k, offset + 1);
}

void expect_end(const Rig& rig, const Outcome& outcome, const std::vector<int32_t>& answer,
                int count, int k) {
  EXPECT_EQ(outcome.tokens, first(answer, count));
  const Usage& usage = outcome.last.usage;
  EXPECT_EQ(usage.completion_tokens, count);
  EXPECT_EQ(usage.accepted_tokens, accepted_until(count - 1, k));
  EXPECT_EQ(usage.steps, 1 + (count - 1 + k) / (k + 1));
  EXPECT_EQ(rig.record->sequences.back().cache,
            FakeTarget::cache_of(test_prompt(kPrompt), outcome.tokens));
}

TEST(Ends, EosAtEveryOffset) {
  for (const int k : {0, 1, 6, 15}) {
    for (int at = 0; at < 20; ++at) {
      std::vector<int32_t> answer = plain_answer(45);
      answer[static_cast<size_t>(at)] = 5;
      const auto rig = rig_with(answer, k);
      const Outcome outcome = rig->run(test_request(test_prompt(kPrompt), 40));
      expect_end(*rig, outcome, answer, at + 1, k);
      EXPECT_EQ(outcome.last.reason, FinishReason::kStop);
      EXPECT_EQ(outcome.last.stop_token, 5);
      EXPECT_EQ(outcome.last.stop_string, "");
      EXPECT_EQ(outcome.last.pieces.back().text, "");
    }
  }
}

TEST(Ends, StopTokenAtEveryOffsetEosIgnored) {
  for (int at = 0; at < 20; ++at) {
    std::vector<int32_t> answer = plain_answer(45);
    answer[static_cast<size_t>(at)] = 777;
    if (at > 1) answer[static_cast<size_t>(at) / 2] = 5;
    const auto rig = rig_with(answer, 6);
    Request request = test_request(test_prompt(kPrompt), 40);
    request.stop_tokens = {776, 777};
    request.ignore_eos = true;
    const Outcome outcome = rig->run(request);
    expect_end(*rig, outcome, answer, at + 1, 6);
    EXPECT_EQ(outcome.last.reason, FinishReason::kStop);
    EXPECT_EQ(outcome.last.stop_token, 777);
    EXPECT_EQ(outcome.last.pieces.back().text, "");
  }
}

TEST(Ends, MaxTokensAtEveryOffset) {
  const std::vector<int32_t> answer = plain_answer(60);
  for (const int k : {0, 1, 6, 15}) {
    for (int count = 1; count <= 34; ++count) {
      const auto rig = rig_with(answer, k);
      const Outcome outcome = rig->run(test_request(test_prompt(kPrompt), count));
      EXPECT_EQ(outcome.tokens, first(answer, count));
      EXPECT_EQ(outcome.last.reason, FinishReason::kLength);
      EXPECT_EQ(outcome.last.stop_token, -1);
      // No row beyond what the answer can use.
      for (const FakeCall& call : rig->record->calls) {
        if (call.kind != FakeCall::Kind::kStep) continue;
        EXPECT_LE(call.parts[0].position + call.parts[0].rows, kPrompt + count - 1);
      }
    }
  }
}

TEST(Ends, AtTheEndOfTheContext) {
  for (int k = 0; k <= 15; ++k) {
    for (const int prompt : {1, 15, 16, 17, 47, 63}) {
      Rig rig;
      rig.fake.info.pages = 4;  // 64 positions
      rig.options.proposals = k;
      rig.start();
      ASSERT_EQ(rig.engine->max_length(), 64);
      const Request request = test_request(test_prompt(prompt), 64 - prompt);
      const Outcome outcome = rig.run(request);
      EXPECT_EQ(outcome.tokens, rig.target.generate(request.prompt, {}, request.max_tokens));
      EXPECT_EQ(outcome.last.reason, FinishReason::kLength);
    }
  }
}

TEST(Ends, EosAsTheLastTokenAllowedIsAStop) {
  std::vector<int32_t> answer = plain_answer(20);
  answer[9] = 2;
  const auto rig = rig_with(answer, 6);
  const Outcome outcome = rig->run(test_request(test_prompt(kPrompt), 10));
  EXPECT_EQ(outcome.tokens, first(answer, 10));
  EXPECT_EQ(outcome.last.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.last.stop_token, 2);
}

// Every substring of a text as the stop string.
TEST(Ends, StopStringAtEveryOffset) {
  const std::string text = "The quick brown fox\njumps over two lazy dogs; return 42";
  const std::vector<int32_t> answer = test_tokenizer().encode(text);
  std::vector<size_t> ends;  // of the text after each token
  for (size_t i = 0, bytes = 0; i < answer.size(); ++i) {
    ends.push_back(bytes += test_tokenizer().token_bytes(answer[i]).size());
  }
  ASSERT_EQ(ends.back(), text.size());
  const auto rig = rig_with(answer, 0);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (const size_t length : {1, 2, 5, 11}) {
      const std::string stop = text.substr(begin, length);
      const size_t found = text.find(stop);
      const auto last = std::find_if(ends.begin(), ends.end(),
                                     [&](size_t end) { return end >= found + stop.size(); });
      const auto count = static_cast<int>(last - ends.begin()) + 1;
      for (const int k : {0, 6, 15}) {
        Request request = test_request(test_prompt(kPrompt), 60);
        request.stop = {"not in it", stop};
        request.proposals = k;
        const Outcome outcome = rig->run(request);
        ASSERT_EQ(outcome.text, text.substr(0, found)) << stop;
        ASSERT_EQ(outcome.last.reason, FinishReason::kStop);
        ASSERT_EQ(outcome.last.stop_string, stop);
        ASSERT_EQ(outcome.last.stop_token, -1);
        expect_end(*rig, outcome, answer, count, k);
      }
    }
  }
}

// "two" is complete, but "one two four" began before it and may still come when the answer ends.
TEST(Ends, AStopStringThatWaitsForALongerOneStopsAtTheEnd) {
  std::vector<int32_t> answer = test_tokenizer().encode("zero one two");
  answer.push_back(2);
  const auto rig = rig_with(answer, 6);
  Request request = test_request(test_prompt(kPrompt), 60);
  request.stop = {"one two four", "two"};
  const Outcome outcome = rig->run(request);
  EXPECT_EQ(outcome.text, "zero one ");
  EXPECT_EQ(outcome.last.reason, FinishReason::kStop);
  EXPECT_EQ(outcome.last.stop_string, "two");
  EXPECT_EQ(outcome.last.stop_token, -1);
}

TEST(Ends, WhatMightHaveBeenAStopStringIsGivenOut) {
  const std::string text = "one two three";
  std::vector<int32_t> answer = test_tokenizer().encode(text);
  answer.push_back(2);
  const auto rig = rig_with(answer, 6);
  Request request = test_request(test_prompt(kPrompt), 60);
  request.stop = {"three!", "two four"};
  const Outcome outcome = rig->run(request);
  EXPECT_EQ(outcome.text, text);
  EXPECT_EQ(outcome.last.tail, "three");
  EXPECT_EQ(outcome.last.stop_token, 2);
}

TEST(Ends, AnUnfinishedCharacterIsReplaced) {
  const std::string text = "ab\xF0\x9F\x98\x80";  // an emoji of four bytes
  const std::vector<int32_t> answer = test_tokenizer().encode(text);
  const auto rig = rig_with(answer, 6);
  size_t bytes = 0;
  for (size_t count = 1; count <= answer.size(); ++count) {
    bytes += test_tokenizer().token_bytes(answer[count - 1]).size();
    const Outcome outcome = rig->run(test_request(test_prompt(kPrompt), static_cast<int>(count)));
    const bool inside = bytes > 2 && bytes < text.size();
    EXPECT_EQ(outcome.text, inside ? "ab\xEF\xBF\xBD" : text.substr(0, bytes));
  }
}

TEST(Ends, SpecialTokensInTheText) {
  const int32_t special = 4;
  ASSERT_TRUE(test_tokenizer().is_special(special));
  const std::vector<int32_t> answer = {400, special, 401, 2};
  const auto rig = rig_with(answer, 2);
  const auto bytes = [](int32_t id) { return std::string(test_tokenizer().token_bytes(id)); };
  Request request = test_request(test_prompt(kPrompt), 10);
  EXPECT_EQ(rig->run(request).text, bytes(400) + bytes(401));
  request.skip_special_tokens = false;
  const Outcome outcome = rig->run(request);
  EXPECT_EQ(outcome.text, bytes(400) + bytes(special) + bytes(401));
  EXPECT_EQ(outcome.tokens, answer);
}

// An end-of-sequence token that the model would give at once, a stop token, a stop string: none
// before min_tokens tokens are there, wherever a block begins.
TEST(Ends, NotBeforeMinTokens) {
  for (const int k : {0, 1, 6}) {
    for (const int min_tokens : {1, 2, 7, 8, 30}) {
      std::vector<int32_t> answer = plain_answer(45);
      answer[3] = 5;
      answer[10] = 777;
      const auto rig = rig_with(answer, k);
      Request request = test_request(test_prompt(kPrompt), 40);
      request.stop_tokens = {777};
      request.min_tokens = min_tokens;
      const Outcome outcome = rig->run(request);
      const std::vector<int32_t> plain = rig->target.generate(request, 40);
      const int end = min_tokens <= 3 ? 4 : 40;  // the script is left where its 5 is banned
      EXPECT_EQ(outcome.tokens, first(plain, end)) << k << " " << min_tokens;
      EXPECT_EQ(outcome.last.reason, end == 4 ? FinishReason::kStop : FinishReason::kLength);
      EXPECT_EQ(rig->record->sequences.back().cache,
                FakeTarget::cache_of(test_prompt(kPrompt), outcome.tokens));
      request.ignore_eos = true;
      const Outcome ignoring = rig->run(request);
      EXPECT_EQ(ignoring.last.stop_token, min_tokens <= 10 ? 777 : -1);
      EXPECT_EQ(ignoring.tokens.size(), min_tokens <= 10 ? 11u : 40u);
    }
  }
}

TEST(Ends, StopStringNotInTheTextOfTheFirstMinTokens) {
  const std::vector<int32_t> answer = plain_answer(45);
  text::Detokenizer detokenizer(test_tokenizer());
  std::string third;
  for (int i = 0; i < 3; ++i) third = detokenizer.push(answer[static_cast<size_t>(i)]);
  ASSERT_FALSE(third.empty());
  for (const int k : {0, 6}) {
    for (const int min_tokens : {0, 2, 3, 4}) {
      const auto rig = rig_with(answer, k);
      Request request = test_request(test_prompt(kPrompt), 12);
      request.stop = {third};
      request.min_tokens = min_tokens;
      const Outcome outcome = rig->run(request);
      if (min_tokens <= 2) {
        EXPECT_EQ(outcome.last.stop_string, third);
      } else {
        EXPECT_GT(outcome.tokens.size(), static_cast<size_t>(min_tokens));
        EXPECT_NE(outcome.text.find(third), std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace lagoon::engine
