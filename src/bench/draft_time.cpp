#include "bench/draft_time.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "bench/figures.h"

namespace lagoon::bench {
namespace {

constexpr int kRounds = 5;
constexpr int kDrafts = 16;  // of a round

}  // namespace

Result<double> time_draft(model::Model& model, int k, int context) {
  const model::ModelInfo& info = model.info();
  CHECK(k >= 1 && k <= info.max_proposals && context >= 1);
  const int pages = (context + k + info.page_tokens) / info.page_tokens;
  CHECK(pages <= info.pages);
  std::vector<int32_t> table(static_cast<size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  model.take_as_computed(0, context);
  const int32_t token = info.vocab / 2;
  const model::Anchor anchor{.slot = 0, .token = token, .position = context};
  model::Segment segment;
  segment.position = context;
  segment.tokens = {&token, 1};
  segment.proposals = k;
  segment.row_class = model::RowClass::kGenerated;
  segment.sample = model::Sample::kAll;
  segment.page_table = table;
  // Nothing of it is committed, so that it can be done again.
  const auto seconds_of = [&](int drafts) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < drafts; ++i) model.draft({&anchor, 1}, k);
    model.step({&segment, 1});
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (int i = 0; i < 3; ++i) seconds_of(1);  // the first ones take memory and make graphs
  std::vector<double> rounds;
  for (int i = 0; i < kRounds; ++i) {
    const double one = seconds_of(1);
    rounds.push_back((seconds_of(1 + kDrafts) - one) / kDrafts);
  }
  if (const Error* failure = model.failure()) return *failure;
  return std::max(0.0, spread(std::move(rounds)).median);
}

}  // namespace lagoon::bench
