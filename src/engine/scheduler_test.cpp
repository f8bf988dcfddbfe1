#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/engine_harness.h"
#include "engine/speculate.h"

namespace lagoon::engine {
namespace {

const std::vector<int32_t> kEos = {2};

// A sequence with a prompt of `prompt` tokens, and an answer begun where `answering`.
std::unique_ptr<Sequence> sequence(int slot, int prompt, int max_tokens, bool answering,
                                   int proposals = -1) {
  Job job;
  job.request = test_request(test_prompt(prompt), max_tokens);
  job.request.proposals = proposals;
  auto made = std::make_unique<Sequence>(std::move(job), test_tokenizer(), kEos);
  made->start(slot, {});
  if (answering) {
    made->commit_prefill(prompt);
    const std::vector<int32_t> first = {300};
    made->append({first, 0, 0});
  }
  return made;
}

TEST(PlanStep, PromptInChunks) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(0, 100, 5, false));
  const StepLimits limits{64, 48, 7, 15};
  EXPECT_EQ(plan_step(running, limits)[0].prefill_rows, 48);
  running[0]->commit_prefill(48);
  EXPECT_EQ(plan_step(running, limits)[0].prefill_rows, 48);
  running[0]->commit_prefill(48);
  const Work last = plan_step(running, limits)[0];
  EXPECT_EQ(last.prefill_rows, 4);
  EXPECT_EQ(last.rows(), 4);
}

TEST(PlanStep, ProposalsOfRequestEngineModelAndAnswer) {
  const auto planned = [](int request, int engine, int model, int max_tokens) {
    std::vector<std::unique_ptr<Sequence>> running;
    running.push_back(sequence(0, 3, max_tokens, true, request));
    return plan_step(running, {64, 64, engine, model})[0].proposals;
  };
  EXPECT_EQ(planned(-1, 6, 15, 100), 6);
  EXPECT_EQ(planned(3, 6, 15, 100), 3);
  EXPECT_EQ(planned(0, 6, 15, 100), 0);
  EXPECT_EQ(planned(15, 6, 8, 100), 8);
  EXPECT_EQ(planned(-1, 6, 15, 8), 6);  // one drawn, seven to come: six and the one after them
  EXPECT_EQ(planned(-1, 6, 15, 7), 5);
  EXPECT_EQ(planned(-1, 6, 15, 2), 0);
}

TEST(ShareEvenly, NobodyGetsMuchLessThanAnother) {
  EXPECT_EQ(share_evenly(std::vector<int>{10, 2, 10}, 13), (std::vector<int>{6, 2, 5}));
  EXPECT_EQ(share_evenly(std::vector<int>{10, 2, 10}, 100), (std::vector<int>{10, 2, 10}));
  EXPECT_EQ(share_evenly(std::vector<int>{10, 2, 10}, 0), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(share_evenly(std::vector<int>{}, 5), std::vector<int>{});
  for (int budget = 0; budget < 40; ++budget) {
    const std::vector<int> wanted = {9, 0, 3, 7, 7, 1};
    const std::vector<int> shares = share_evenly(wanted, budget);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), std::min(budget, 27));
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(shares[i], wanted[i]);
      if (shares[i] == wanted[i]) continue;
      for (const int other : shares) EXPECT_GE(shares[i] + 1, other);
    }
  }
}

TEST(PlanStep, RowsForAnswersThenProposalsThenPrompts) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(0, 100, 50, false));
  running.push_back(sequence(1, 3, 50, true));
  running.push_back(sequence(2, 3, 50, true));
  running.push_back(sequence(3, 100, 50, false));
  for (int max_rows = 4; max_rows < 80; ++max_rows) {
    int rows = 0;
    int answers = 0;
    int proposals = 0;
    int prefill = 0;
    for (const Work& work : plan_step(running, {max_rows, 32, 6, 15})) {
      EXPECT_GE(work.rows(), 1);
      rows += work.rows();
      proposals += work.proposals;
      prefill += work.prefill_rows;
      if (work.prefill_rows == 0) ++answers;
    }
    EXPECT_EQ(rows, std::min(max_rows, 32 + 7 + 7));
    EXPECT_EQ(answers, 2);
    EXPECT_EQ(proposals, std::min(12, max_rows - 2 - std::max(1, max_rows / 8)));
    EXPECT_GE(prefill, std::max(1, max_rows / 8));
  }
}

// Half of the rows go to whoever came first, so that short ones cannot hold it up for ever.
TEST(PlanStep, ALongPromptAndShortOnesBehindIt) {
  std::vector<std::unique_ptr<Sequence>> running;
  running.push_back(sequence(0, 5000, 50, false));
  running.push_back(sequence(1, 20, 50, false));
  running.push_back(sequence(2, 4000, 50, false));
  running.push_back(sequence(3, 10, 50, false));
  const auto rows = [&](int budget) {
    std::vector<int> prefill;
    for (const Work& work : plan_step(running, {budget, budget, 0, 0})) {
      prefill.push_back(work.prefill_rows);
    }
    return prefill;
  };
  EXPECT_EQ(rows(200), (std::vector<int>{100, 20, 70, 10}));
  EXPECT_EQ(rows(4), (std::vector<int>{2, 1, 1}));  // 1 each of 2 to the two shortest
  EXPECT_EQ(rows(6000), (std::vector<int>{3000, 20, 2970, 10}));
  EXPECT_EQ(rows(20000), (std::vector<int>{5000, 20, 4000, 10}));
  running[0]->commit_prefill(4990);
  EXPECT_EQ(rows(200), (std::vector<int>{10, 20, 160, 10}));
}

TEST(PrefillPace, KeepsAStepWithinTheStall) {
  // A step takes 40 ms and 1 ms a row.
  const auto time_of = [](int rows) { return 0.04 + 0.001 * rows; };
  PrefillPace pace(0.25, 4096);
  EXPECT_LE(pace.rows(true), 256);
  for (int step = 0; step < 30; ++step)
    pace.measure(pace.rows(true), pace.rows(true), time_of(pace.rows(true)));
  EXPECT_NEAR(time_of(pace.rows(true)), 0.25, 0.02);
  // The end of a prompt is a small chunk and tells nothing of large ones.
  const int before = pace.rows(true);
  for (int step = 0; step < 10; ++step) pace.measure(3, before, time_of(3));
  EXPECT_EQ(pace.rows(true), before);
  EXPECT_NEAR(pace.rows(false), 4 * before, 4);
  // Rows that become ten times as dear, and cheap again.
  for (int step = 0; step < 30; ++step)
    pace.measure(pace.rows(true), pace.rows(true), 0.04 + 0.01 * pace.rows(true));
  EXPECT_LE(0.04 + 0.01 * pace.rows(true), 0.27);
  for (int step = 0; step < 60; ++step)
    pace.measure(pace.rows(true), pace.rows(true), time_of(pace.rows(true)));
  EXPECT_NEAR(time_of(pace.rows(true)), 0.25, 0.02);
}

TEST(PrefillPace, HasAFloorAndACeiling) {
  PrefillPace slow(0.25, 4096);
  slow.measure(100, 100, 100);
  EXPECT_EQ(slow.rows(true), 16);
  PrefillPace fast(0.25, 64);
  fast.measure(64, 64, 1e-6);
  EXPECT_EQ(fast.rows(true), 64);
  PrefillPace small(0.25, 8);
  small.measure(8, 8, 100);
  EXPECT_EQ(small.rows(true), 8);
}

TEST(CountAccepted, LongestEqualPrefix) {
  const std::vector<int32_t> computed = {9, 1, 2, 3};
  const auto accepted = [&](std::vector<int32_t> sampled) {
    return count_accepted(computed, sampled);
  };
  EXPECT_EQ(accepted({1, 2, 3, 4}), 3);
  EXPECT_EQ(accepted({1, 2, 4, 4}), 2);
  EXPECT_EQ(accepted({1, 3, 3, 4}), 1);
  EXPECT_EQ(accepted({2, 2, 3, 4}), 0);  // what follows a refused proposal does not count
  const std::vector<int32_t> anchor = {9};
  EXPECT_EQ(count_accepted(anchor, std::vector<int32_t>{5}), 0);
}

}  // namespace
}  // namespace lagoon::engine
