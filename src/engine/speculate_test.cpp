#include "engine/speculate.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_harness.h"

namespace lagoon::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Those of the published speculator on code (k = 6).
const std::vector<double> kPublished = {.88, .69, .64, .59, .51, .39};

TEST(SyntheticAcceptance, DrawsTheRatesByPosition) {
  const SyntheticAcceptance acceptance(kPublished);
  constexpr int kDraws = 40'000;
  std::vector<int> reached(kPublished.size(), 0);
  double accepted = 0;
  for (int position = 0; position < kDraws; ++position) {
    const int drawn = acceptance.draw(7, position, 6);
    accepted += drawn;
    for (int i = 0; i < drawn; ++i) ++reached[static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < kPublished.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(reached[i]) / kDraws, kPublished[i], 0.01) << i;
  }
  EXPECT_NEAR(accepted / kDraws, 3.70, 0.03);  // the sum of the rates
}

TEST(SyntheticAcceptance, TheSameKeyDrawsTheSame) {
  const SyntheticAcceptance acceptance(kPublished);
  bool seeds_differ = false;
  for (int position = 0; position < 100; ++position) {
    const int drawn = acceptance.draw(1, position, 6);
    EXPECT_EQ(acceptance.draw(1, position, 6), drawn);
    // Fewer proposals: the same ones stand.
    EXPECT_EQ(acceptance.draw(1, position, 3), std::min(drawn, 3));
    seeds_differ = seeds_differ || acceptance.draw(2, position, 6) != drawn;
  }
  EXPECT_TRUE(seeds_differ);
  EXPECT_FALSE(SyntheticAcceptance({}).enabled());
}

TEST(SyntheticAcceptance, AllAndNothing) {
  const SyntheticAcceptance acceptance({1, 1, 0});
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(acceptance.draw(0, position, 3), 2);
  }
}

// Whatever the target would say: of the fake's draft about 60 % are right.
TEST(SyntheticAcceptance, InTheEngine) {
  for (const int hits : {0, 60, 100}) {
    Rig rig;
    rig.fake.draft_hits = hits;
    rig.options.proposals = 3;
    rig.options.synthetic_acceptance = {1, 1, 0};
    rig.start();
    const Outcome outcome = rig.run(test_request(test_prompt(20), 31));
    EXPECT_EQ(outcome.tokens.size(), 31u);
    // The first token, then three a step: two drafts and the target's own.
    EXPECT_EQ(outcome.last.usage.steps, 11);
    EXPECT_EQ(outcome.last.usage.drafts, 10);
    EXPECT_EQ(outcome.last.usage.accepted_tokens, 20);
  }
}

TEST(SyntheticAcceptance, EveryMetricSaysSo) {
  Rig rig;
  rig.options.proposals = 2;
  rig.options.synthetic_acceptance = {0.5, 0.25};
  rig.start();
  const std::string text = rig.metrics.render();
  EXPECT_THAT(text, HasSubstr("\nvllm:spec_decode_num_drafts_total{acceptance=\"synthetic\","
                              "engine=\"0\",model_name=\"fake\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("{engine")));
  Rig plain;
  plain.options.proposals = 2;
  plain.start();
  EXPECT_THAT(plain.metrics.render(), Not(HasSubstr("synthetic")));
}

TEST(SyntheticAcceptance, ARequestCannotAskForMoreThanThereAreRatesFor) {
  Rig rig;
  rig.options.proposals = 2;
  rig.options.synthetic_acceptance = {0.5, 0.25};
  rig.start();
  Request request = test_request(test_prompt(5), 4);
  request.proposals = 3;
  Collector collector;
  const auto submitted = rig.engine->submit(std::move(request), collector.sink());
  ASSERT_FALSE(submitted.ok());
  EXPECT_THAT(submitted.error().message, HasSubstr("between 0 and 2"));
}

TEST(GainedTokens, AcceptedOnesAndTheNext) {
  const std::vector<int32_t> computed = {10, 11, 12, 13};
  const std::vector<int32_t> sampled = {21, 22, 23, 24};
  EXPECT_THAT(gained_tokens(computed, sampled, 0), ElementsAre(21));
  EXPECT_THAT(gained_tokens(computed, sampled, 2), ElementsAre(11, 12, 23));
  EXPECT_THAT(gained_tokens(computed, sampled, 3), ElementsAre(11, 12, 13, 24));
}

}  // namespace
}  // namespace lagoon::engine
