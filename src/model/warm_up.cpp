#include "model/warm_up.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace lagoon::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kShortest = 1024;  // positions

class Shapes {
 public:
  Shapes(Model& model, const WarmUp& shapes) : model_(model), shapes_(shapes) {}

  int most_rows() const {
    return std::min(
        {shapes_.sequences * (shapes_.proposals + 1), shapes_.most_rows, model_.info().max_rows});
  }

  // Steps of `rows` rows, of one sequence, that end at `length`.
  void compute(int rows, int64_t length) {
    const auto context = static_cast<int32_t>(length - rows);
    const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    // Its positions share a page: nobody reads what they leave there.
    const std::vector<int32_t> table(static_cast<size_t>(length / model_.info().page_tokens + 1),
                                     0);
    Segment segment;
    segment.position = context;
    segment.tokens = tokens;
    segment.row_class = RowClass::kGenerated;
    segment.sample = Sample::kAll;
    segment.page_table = table;
    for (int time = 0; time < 2; ++time) {
      model_.take_as_computed(0, context);
      model_.step({&segment, 1});
      const Commit commit{.slot = 0, .length = context + rows};
      model_.commit({&commit, 1});
    }
  }

  // Drafts for so many sequences.
  void draft(int sequences, int64_t length) {
    const auto context = static_cast<int32_t>(length - shapes_.proposals - 1);
    std::vector<Anchor> anchors;
    for (int slot = 0; slot < sequences; ++slot) {
      model_.take_as_computed(slot, context);
      anchors.push_back({.slot = slot, .token = 0, .position = context});
    }
    for (int time = 0; time < 2; ++time) model_.draft(anchors, shapes_.proposals);
  }

 private:
  Model& model_;
  const WarmUp& shapes_;
};

}  // namespace

Result<WarmedUp> warm_up(Model& model, const WarmUp& shapes) {
  CHECK(shapes.sequences >= 1 && shapes.sequences <= model.info().slots);
  CHECK(shapes.proposals >= 0 && shapes.proposals <= model.info().max_proposals);
  CHECK(shapes.max_length <= model.info().max_positions);
  Shapes made(model, shapes);
  const int rows = made.most_rows();
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin); };
  WarmedUp done;
  for (int64_t bucket = kShortest; elapsed() < shapes.limit; bucket *= 2) {
    // The longest sequence of the bucket; its last position may lie below the end of the context.
    const int64_t length = std::min(bucket, shapes.max_length - 1);
    if (length <= std::max(rows, shapes.proposals + 1) || length <= done.max_length) break;
    if (done.shapes + rows > shapes.most_shapes) break;
    for (int count = 1; count <= rows; ++count) made.compute(count, length);
    if (shapes.drafts && shapes.proposals > 0) {
      const int most = std::min(shapes.sequences, rows / (shapes.proposals + 1));
      for (int count = 1; count <= most; ++count) made.draft(count, length);
    }
    if (const Error* failure = model.failure()) return *failure;
    done.shapes += rows;
    done.max_length = length;
  }
  done.seconds = elapsed().count();
  return done;
}

}  // namespace lagoon::model
