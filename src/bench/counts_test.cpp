#include "bench/counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As vLLM writes it: floats, several engines, series of other names around.
const char* const kMetrics = R"(# HELP vllm:spec_decode_num_drafts_total Number of drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a b} 7"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a"} 20.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0"} 720.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 444.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="x",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="x",position="0"} 15.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2",engine="0"} 1e1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="99999999999"} 3
lagoon:decode_layers_total{engine="0"} 10
lagoon:decode_layer_rows_total{engine="0"} 70
lagoon:decode_experts_total{engine="0"} 430
)";

TEST(ParseCounts, OfASeveralEngines) {
  const Counts counts = parse_counts(kMetrics);
  EXPECT_TRUE(counts.speculation);
  EXPECT_FALSE(counts.synthetic);
  EXPECT_EQ(counts.drafts, 120);
  EXPECT_EQ(counts.drafted, 720);
  EXPECT_EQ(counts.accepted, 444);
  EXPECT_THAT(counts.accepted_at, ElementsAre(105, 0, 10));
  EXPECT_EQ(counts.expert_layers, 10);
  EXPECT_EQ(counts.expert_rows, 70);
  EXPECT_EQ(counts.experts_read, 430);
}

TEST(ParseCounts, WhatIsNoExpositionCountsNothing) {
  for (const char* text :
       {"", "\n\n", "<html>\n", "vllm:spec_decode_num_drafts_total{",
        "vllm:spec_decode_num_drafts_total NaN\n", "vllm:spec_decode_num_drafts_total\n",
        "xvllm:spec_decode_num_drafts_total 3\n"}) {
    const Counts counts = parse_counts(text);
    EXPECT_FALSE(counts.speculation) << text;
    EXPECT_EQ(counts.drafts, 0) << text;
    EXPECT_THAT(counts.accepted_at, IsEmpty()) << text;
  }
}

TEST(ParseCounts, SyntheticAcceptanceIsALabel) {
  EXPECT_TRUE(
      parse_counts("vllm:spec_decode_num_drafts_total{acceptance=\"synthetic\",engine=\"0\"} 1\n")
          .synthetic);
  EXPECT_FALSE(
      parse_counts("vllm:spec_decode_num_drafts_total{my_acceptance=\"synthetic\"} 1\n").synthetic);
}

TEST(Difference, OfCounters) {
  Counts before = parse_counts(kMetrics);
  Counts after = before;
  after.drafts += 4;
  after.accepted += 6;
  after.accepted_at = {109, 1, 11, 2};
  after.experts_read += 86;
  const Counts counts = difference(before, after);
  EXPECT_EQ(counts.drafts, 4);
  EXPECT_EQ(counts.drafted, 0);
  EXPECT_EQ(counts.accepted, 6);
  EXPECT_THAT(counts.accepted_at, ElementsAre(4, 1, 1, 2));
  EXPECT_EQ(counts.experts_read, 86);
}

}  // namespace
}  // namespace lagoon::bench
