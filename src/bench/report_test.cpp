#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lagoon::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Row row(int k) {
  Row row;
  row.measurement.shape.proposals = k;
  row.measurement.streams = 2;
  row.measurement.repeats = 3;
  row.prompt_tokens = spread({2048});
  row.completion_tokens = spread({256});
  row.decode_rate = spread({42.9, 40, 43});
  row.first_token = spread({0.5});
  row.prefill_rate = spread({4096});
  row.total_rate = spread({80});
  if (k > 0) {
    row.speculation = Speculation{.acceptance = 0.619,
                                  .accepted_per_step = 3.71,
                                  .tokens_per_step = 4.71,
                                  .by_position = {.88, .69}};
    row.experts = Experts{.distinct = 43.3, .rows = 6.9};
    row.steps = StepTimes{.seconds = spread({0.1, 0.11, 0.12}), .count = 3};
    row.step_bytes = 22e9;
  }
  return row;
}

Report report() {
  Report report;
  report.facts = {{"model", "nano"}};
  report.rows = {row(0), row(6)};
  return report;
}

TEST(Report, Table) {
  EXPECT_EQ(to_table(report()), R"(model: nano
k  streams  prompt  output  tok/s    min..max  total   TTFT  prefill     step  of memory  accept  acc/step  tok/step   experts
0        2    2048     256   42.9  40.0..43.0   80.0  500.0     4096        -          -       -         -         -         -
6        2    2048     256   42.9  40.0..43.0   80.0  500.0     4096  110.000          -   61.9%      3.71      4.71  43.3/6.9
acceptance by position, k 6, streams 2: 0.88 0.69
)");
}

TEST(Report, ANumberThatIsChosen) {
  Report made;
  made.rows = {row(kAdaptive), row(kAsSetUp)};
  const std::string table = to_table(made);
  EXPECT_THAT(table, HasSubstr("\nauto        2 "));
  EXPECT_THAT(table, HasSubstr("\n   -        2 "));
  const Json json = Json::parse(to_json(made));
  EXPECT_EQ(json["rows"][0]["k"], "auto");
  EXPECT_TRUE(json["rows"][1]["k"].is_null());
}

TEST(Report, WhatIsSyntheticIsSaid) {
  Report made = report();
  made.rows[1].synthetic = true;
  made.dummy_weights = true;
  const std::string table = to_table(made);
  EXPECT_THAT(table, HasSubstr("ACCEPTANCE IS SYNTHETIC"));
  EXPECT_THAT(table, HasSubstr("WEIGHTS ARE RANDOM"));
  EXPECT_THAT(table, HasSubstr("streams 2 (synthetic):"));
  const Json json = Json::parse(to_json(made));
  EXPECT_EQ(json["synthetic_acceptance"], true);
  EXPECT_EQ(json["dummy_weights"], true);
  EXPECT_EQ(json["rows"][0]["synthetic_acceptance"], false);
  EXPECT_EQ(json["rows"][1]["synthetic_acceptance"], true);
  EXPECT_THAT(to_table(report()), Not(HasSubstr("SYNTHETIC")));
}

TEST(Report, JsonHasEveryFigure) {
  const Json json = Json::parse(to_json(report()));
  EXPECT_EQ(json["facts"]["model"], "nano");
  ASSERT_EQ(json["rows"].size(), 2u);
  const Json& plain = json["rows"][0];
  EXPECT_EQ(plain["k"], 0);
  EXPECT_EQ(plain["decode_tokens_per_second"]["median"], 42.9);
  EXPECT_EQ(plain["decode_tokens_per_second"]["values"], Json({42.9, 40, 43}));
  for (const char* key : {"acceptance", "accepted_drafts_per_step", "tokens_emitted_per_step",
                          "acceptance_by_position", "experts_per_layer", "rows_per_step"}) {
    EXPECT_TRUE(plain[key].is_null()) << key;
    EXPECT_FALSE(json["rows"][1][key].is_null()) << key;
  }
  EXPECT_EQ(json["rows"][1]["accepted_drafts_per_step"], 3.71);
  EXPECT_EQ(json["rows"][1]["tokens_emitted_per_step"], 4.71);
}

TEST(Report, TheRateOfMemoryGivesShares) {
  Report made = report();
  made.memory_rate = 250e9;
  made.loads = {{.bytes = 72e9, .seconds = 8}};
  made.drafts = {{.proposals = 6, .context = 2048, .seconds = 0.0125, .bytes = 2.5e9}};
  made.rows[1].measurement.shape.random_context = true;
  made.rows[1].host_share = 0.015;
  const std::string table = to_table(made);
  EXPECT_THAT(table, HasSubstr("memory: 250.0 GB/s\n"));
  EXPECT_THAT(table, HasSubstr("a draft of 6 proposals at 2048 positions: 12.500 ms, 2.500 GB\n"));
  EXPECT_THAT(table, HasSubstr("       -  110.000       0.80   61.9%"));  // no prompt to time
  const Json json = Json::parse(to_json(made));
  EXPECT_EQ(json["memory_bytes_per_second"], 250e9);
  EXPECT_EQ(json["loads"][0]["bytes_per_second"], 9e9);
  EXPECT_NEAR(json["draft_steps"][0]["share_of_memory_rate"], 0.8, 1e-9);
  EXPECT_TRUE(json["rows"][0]["share_of_memory_rate"].is_null());
  EXPECT_NEAR(json["rows"][1]["share_of_memory_rate"], 0.8, 1e-9);
  EXPECT_EQ(json["rows"][1]["step_seconds"]["median"], 0.11);
  EXPECT_EQ(json["rows"][1]["step_seconds"]["count"], 3);
  EXPECT_EQ(json["rows"][1]["random_context"], true);
  EXPECT_TRUE(json["rows"][0]["host_share"].is_null());
  EXPECT_EQ(json["rows"][1]["host_share"], 0.015);
}

TEST(Report, AServersKIsNotKnown) {
  Report made = report();
  made.rows = {row(-1)};
  made.facts = {{"server", "http://h/\xff"}};  // any bytes
  EXPECT_THAT(to_table(made), HasSubstr("\n-        2"));
  EXPECT_TRUE(Json::parse(to_json(made))["rows"][0]["k"].is_null());
}

}  // namespace
}  // namespace lagoon::bench
