// The choice of experts on the GPU, by one block for few rows and by a block each for many: the
// same choices and bits, ties to the first expert, a NaN last. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu_test.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

struct Choice {
  std::vector<int32_t> experts, order, slots, count, use;
  std::vector<float> weights;
};

class RoutingGpu : public GpuTest {
 protected:
  // Of the first `rows` rows of logits.
  Choice choose(const std::vector<float>& logits, int rows, int experts, int top_k) {
    device_->scratch.clear();
    const int64_t entries = int64_t{rows} * top_k;
    const Routing routing = {.experts = to_device(std::vector<int32_t>(entries, -7)),
                             .weights = to_device(std::vector<float>(entries, -7)),
                             .order = to_device(std::vector<int32_t>(entries, -7)),
                             .slots = to_device(std::vector<int32_t>(2 * experts + 2, -7)),
                             .count = to_device(std::vector<int32_t>(1, -7)),
                             .views = to_device(std::vector<ExpertView>(experts))};
    int32_t* use = to_device(std::vector<int32_t>(2, 0));
    route(device_->stream(), {.logits = to_device(logits),
                              .bias = to_device(std::vector<float>(experts, 0)),
                              .table = to_device(std::vector<ExpertView>(experts)),
                              .rows = rows,
                              .experts = experts,
                              .top_k = top_k,
                              .routing = routing,
                              .use = use});
    return {.experts = from_device(routing.experts, entries),
            .order = from_device(routing.order, entries),
            .slots = from_device(routing.slots, 2 * experts + 2),
            .count = from_device(routing.count, 1),
            .use = from_device(use, 2),
            .weights = from_device(routing.weights, entries)};
  }
};

// A few values only, so that most are ties.
std::vector<float> tied_logits(int rows, int experts) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float values[] = {-kInfinity, -2, 0, 0.5f, 1, 3, std::nanf("")};
  std::mt19937 random(5);
  std::vector<float> logits(static_cast<size_t>(rows) * experts);
  for (float& logit : logits) logit = values[random() % std::size(values)];
  return logits;
}

// The experts of a row in order.
std::vector<int32_t> expected(const float* logits, int experts, int top_k) {
  std::vector<int32_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  // sigmoid(-infinity) is 0, and a NaN counts as less.
  const auto score = [&](int e) {
    return std::isnan(logits[e]) ? -1 : 1 / (1 + std::exp(-logits[e]));
  };
  std::ranges::stable_sort(order, [&](int a, int b) { return score(a) > score(b); });
  order.resize(static_cast<size_t>(top_k));
  return order;
}

// Entries by expert, then by themselves, and where each expert's begin.
void expect_sorted(const Choice& choice) {
  std::vector<int32_t> order(choice.experts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](int a, int b) { return choice.experts[a] < choice.experts[b]; });
  EXPECT_EQ(choice.order, order);
  const std::set<int32_t> distinct(choice.experts.begin(), choice.experts.end());
  ASSERT_EQ(choice.count[0], static_cast<int>(distinct.size()));
  EXPECT_EQ(choice.use, (std::vector<int32_t>{1, choice.count[0]}));
  size_t at = 0;
  for (const int32_t expert : distinct) {
    EXPECT_EQ(choice.slots[at], expert);
    EXPECT_EQ(choice.experts[choice.order[choice.slots[at + 1]]], expert);
    at += 2;
  }
  EXPECT_EQ(choice.slots[at], -1);
  EXPECT_EQ(choice.slots[at + 1], static_cast<int>(choice.experts.size()));
}

TEST_F(RoutingGpu, TiesGoToTheFirstAndNaNsComeLastForAnyNumberOfRows) {
  constexpr int kRows = 11;
  for (const auto& [experts, top_k] : {std::pair{10, 1},
                                       {10, 10},
                                       {37, 8},
                                       {128, 10},
                                       {256, 10},
                                       {256, 32},
                                       {300, 10},
                                       {1000, 40}}) {
    SCOPED_TRACE(testing::Message() << experts << " experts, top " << top_k);
    const std::vector<float> logits = tied_logits(kRows, experts);
    const Choice all = choose(logits, kRows, experts, top_k);
    expect_sorted(all);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto first = all.experts.begin() + r * top_k;
      EXPECT_EQ(std::vector<int32_t>(first, first + top_k),
                expected(&logits[r * experts], experts, top_k));
    }
    for (const int rows : {1, 2, 7, 8}) {
      const Choice few = choose(logits, rows, experts, top_k);
      expect_sorted(few);
      EXPECT_TRUE(std::equal(few.experts.begin(), few.experts.end(), all.experts.begin()));
      EXPECT_EQ(
          std::memcmp(few.weights.data(), all.weights.data(), few.weights.size() * sizeof(float)),
          0);
    }
  }
}

}  // namespace
}  // namespace lagoon::kernels::cuda
