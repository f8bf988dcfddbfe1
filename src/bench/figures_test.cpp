#include "bench/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::bench {
namespace {

using std::chrono::milliseconds;
using ::testing::DoubleEq;
using ::testing::ElementsAre;

Answer answer(int tokens, int sent, int first, int last) {
  const Clock::time_point start;
  return {.prompt_tokens = 2000,
          .completion_tokens = tokens,
          .sent = start + milliseconds(sent),
          .first = start + milliseconds(first),
          .last = start + milliseconds(last)};
}

// The estimator of the recipe: (completion_tokens - 1) / (t_last - t_first).
TEST(Figures, OfOneAnswer) {
  const Answer one = answer(256, 100, 600, 5600);
  EXPECT_DOUBLE_EQ(decode_rate(one), 51);
  EXPECT_DOUBLE_EQ(seconds_to_first(one), 0.5);
  EXPECT_DOUBLE_EQ(prefill_rate(one), 4000);
}

TEST(Figures, WithoutADurationThereIsNoRate) {
  EXPECT_EQ(decode_rate(answer(1, 0, 10, 10)), 0);
  EXPECT_EQ(decode_rate(answer(5, 0, 10, 10)), 0);
  EXPECT_EQ(prefill_rate(answer(5, 10, 10, 10)), 0);
}

TEST(Figures, OfStreamsTogether) {
  // From 500 to 2500: 100 + 50 tokens after the first ones.
  const Answer answers[] = {answer(101, 0, 500, 1500), answer(51, 0, 700, 2500)};
  EXPECT_DOUBLE_EQ(total_rate(answers), 75);
  EXPECT_DOUBLE_EQ(total_rate(std::span(answers).first(1)), decode_rate(answers[0]));
}

TEST(Figures, Spreads) {
  const Spread odd = spread({5, 1, 3});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 5);
  EXPECT_THAT(odd.values, ElementsAre(5, 1, 3));
  EXPECT_EQ(spread({4, 1}).median, 2.5);
  EXPECT_EQ(spread({4}).median, 4);
}

// The published figures: 61.9 % of 6 drafts accepted, 3.71 a step.
TEST(Figures, OfSpeculation) {
  Counts counts;
  counts.speculation = true;
  counts.drafts = 1000;
  counts.drafted = 6000;
  counts.accepted = 3714;
  counts.accepted_at = {880, 690, 640, 590, 510, 390};
  const auto figures = speculation(counts);
  ASSERT_TRUE(figures.has_value());
  EXPECT_NEAR(figures->acceptance, 0.619, 0.0005);
  EXPECT_NEAR(figures->accepted_per_step, 3.71, 0.005);
  EXPECT_NEAR(figures->tokens_per_step, 4.71, 0.005);
  EXPECT_THAT(figures->by_position, ElementsAre(DoubleEq(.88), DoubleEq(.69), DoubleEq(.64),
                                                DoubleEq(.59), DoubleEq(.51), DoubleEq(.39)));
}

// An engine set up for more proposals counts positions that were not drafted.
TEST(Figures, OfPositionsThatWereDrafted) {
  Counts counts;
  counts.speculation = true;
  counts.drafts = 10;
  counts.drafted = 20;
  counts.accepted_at = {5, 2, 0, 0};
  EXPECT_THAT(speculation(counts, 2)->by_position, ElementsAre(DoubleEq(.5), DoubleEq(.2)));
  EXPECT_THAT(speculation(counts, 9)->by_position.size(), 4u);
}

TEST(Figures, WithoutCountsThereAreNone) {
  Counts counts;
  EXPECT_FALSE(speculation(counts).has_value());
  EXPECT_FALSE(experts(counts).has_value());
  counts.speculation = true;  // but nothing was drafted
  EXPECT_FALSE(speculation(counts).has_value());
}

TEST(Figures, OfExperts) {
  Counts counts;
  counts.expert_layers = 47 * 10;
  counts.expert_rows = 47 * 10 * 7;
  counts.experts_read = 47 * 10 * 43;
  EXPECT_DOUBLE_EQ(experts(counts)->distinct, 43);
  EXPECT_DOUBLE_EQ(experts(counts)->rows, 7);
}

TEST(Figures, ShareOfTheHost) {
  const Clock::time_point start;
  Answer waited;
  waited.first = start;
  waited.last = start + std::chrono::milliseconds(1000);
  EXPECT_FALSE(host_share(std::vector{waited}).has_value());
  Answer unknown = waited;
  waited.waited = 0.98;
  const auto share = host_share(std::vector{waited, unknown});
  ASSERT_TRUE(share.has_value());
  EXPECT_NEAR(*share, 0.02, 1e-12);
}

TEST(Figures, TimesOfSteps) {
  const Clock::time_point start;
  const auto at = [&](int ms) { return start + std::chrono::milliseconds(ms); };
  Answer known;
  known.steps = {at(100), at(110), at(122)};
  Answer single;
  single.steps = {at(5)};
  const Answer unknown;
  EXPECT_FALSE(step_times(std::vector{single, unknown}).has_value());
  const auto times = step_times(std::vector{known, single, unknown, known});
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->count, 4u);
  EXPECT_DOUBLE_EQ(times->seconds.median, 0.011);
  EXPECT_DOUBLE_EQ(times->seconds.least, 0.010);
  EXPECT_DOUBLE_EQ(times->seconds.most, 0.012);
}

}  // namespace
}  // namespace lagoon::bench
