#include "kernels/cpu/pending_context.h"

#include <gtest/gtest.h>

#include <vector>

namespace lagoon::kernels::cpu {
namespace {

std::vector<AttentionLayer> layers_with(int window) {
  std::vector<AttentionLayer> layers(2);
  layers[0].window = 2;
  layers[1].window = window;
  return layers;
}

// Taps whose values say which they are.
struct Source {
  Source(int taps, int64_t hidden, int rows) : values(hidden * taps * rows) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000003);
    view = {values.data(), rows * hidden, hidden, taps};
  }
  std::vector<float> values;
  Taps view;
};

std::vector<int32_t> positions_of(const PendingContext& pending) {
  std::vector<int32_t> positions;
  for (const ContextRow& row : pending.rows()) positions.push_back(row.position);
  return positions;
}

TEST(PendingContext, KeepsWhatTheWidestWindowReaches) {
  const DraftContext context;
  const auto layers = layers_with(5);
  const Source source(3, 16, 12);
  PendingContext pending(context, layers, 2, source.view);
  for (int32_t p = 0; p < 12; ++p) {
    EXPECT_TRUE(pending.add(source.view, {.row = p, .position = 30 + p, .sequence = 1}));
  }
  EXPECT_EQ(positions_of(pending), (std::vector<int32_t>{38, 39, 40, 41}));
  for (const ContextRow& row : pending.rows()) {
    EXPECT_EQ(row.sequence, 1);
    for (int tap = 0; tap < 3; ++tap) {
      for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(pending.copies().at(tap, row.row)[i], source.view.at(tap, row.position - 30)[i]);
      }
    }
  }
}

TEST(PendingContext, AGapOrANewSequenceComesAfterWhatIsThere) {
  const DraftContext context;
  const auto layers = layers_with(5);
  const Source source(1, 16, 4);
  PendingContext pending(context, layers, 2, source.view);
  EXPECT_TRUE(pending.add(source.view, {.row = 0, .position = 7, .sequence = 0}));
  EXPECT_TRUE(pending.add(source.view, {.row = 1, .position = 0, .sequence = 1}));
  EXPECT_FALSE(pending.add(source.view, {.row = 2, .position = 0, .sequence = 0}));
  EXPECT_FALSE(pending.add(source.view, {.row = 2, .position = 9, .sequence = 0}));
  EXPECT_EQ(positions_of(pending), (std::vector<int32_t>{7, 0}));
  pending.clear();
  EXPECT_TRUE(pending.add(source.view, {.row = 2, .position = 0, .sequence = 0}));
}

// Rows so large that not all that a window reaches have room: none is lost.
TEST(PendingContext, IsFullWhereAWindowReachesFurther) {
  const DraftContext context;
  const auto layers = layers_with(100);
  const Source source(1, 1 << 18, 1);  // 1 MiB
  PendingContext pending(context, layers, 1, source.view);
  int32_t rows = 0;
  while (pending.add(source.view, {.row = 0, .position = rows, .sequence = 0})) ++rows;
  EXPECT_EQ(rows, 4);
  EXPECT_EQ(positions_of(pending), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(pending.has_room_for(4));
  EXPECT_FALSE(pending.has_room_for(5));
}

}  // namespace
}  // namespace lagoon::kernels::cpu
