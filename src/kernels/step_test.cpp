#include "kernels/step.h"

#include <gtest/gtest.h>

#include <vector>

namespace lagoon::kernels {
namespace {

StateShape shape_of(int max_rows) {
  StateShape shape;
  shape.hidden = 16;
  shape.vocab = 100;
  shape.max_rows = max_rows;
  shape.sequences = 3;
  shape.block_rows = 7;
  shape.sliding = {{.kv_heads = 2, .head_dim = 16, .window = 512}};
  return shape;
}

TEST(Step, ARingHoldsTheRowsThatAreTakenAtOnce) {
  EXPECT_EQ(Step(shape_of(64)).ring_positions(512), 512 + 64 + 7);
  EXPECT_EQ(Step(shape_of(8192)).ring_positions(512), 512 + 8192 + 7);
  const Step cut(shape_of(8192), 16, 512);
  EXPECT_EQ(cut.rows_at_once(), 512);
  EXPECT_EQ(cut.ring_positions(512), 1040);  // 512 + 512 + 7, and up to a multiple of 16
  EXPECT_EQ(cache_bytes(cut, 2), int64_t{3} * 1040 * 2 * 16 * 2 * 2);
  EXPECT_EQ(Step(shape_of(64), 16, 512).rows_at_once(), 64);
}

TEST(Step, PlacesStandForProposalsInOrderOfRow) {
  Step draft(shape_of(8));
  const std::vector<Row> drafted = {{1, 5, 2}, {1, 6, 2}, {1, 7, 2}, {1, 9, 0}, {1, 10, 0}};
  draft.begin({.rows = drafted, .page_tables = {}}, nullptr);
  std::vector<SampleRow> asked(4);
  asked[0].row = 2;
  asked[1].row = 4;
  asked[2].row = 1;
  asked[3].row = 0;
  EXPECT_EQ(draft.keep_places(asked), (std::vector<int32_t>{2 * 8 + 2, 0, 2 * 8 + 1, 2 * 8}));

  Step target(shape_of(8));
  const std::vector<Row> rows = {
      {4, 5, 2}, {Row::proposal(0), 6, 2}, {Row::proposal(2), 7, 2}, {Row::proposal(0), 9, 0}};
  target.begin({.rows = rows, .page_tables = {}}, &draft);
  EXPECT_EQ(target.rows()[0].token, 4);
  EXPECT_EQ(target.rows()[1].token, Row::proposal(2 * 8));
  EXPECT_EQ(target.rows()[2].token, Row::proposal(2 * 8 + 2));
  EXPECT_EQ(target.rows()[3].token, Row::proposal(0));

  // Those of a sequence that is asked for again are replaced, the others stay.
  draft.begin({.rows = std::vector<Row>{{1, 5, 2}, {1, 6, 2}}, .page_tables = {}}, nullptr);
  std::vector<SampleRow> again(1);
  again[0].row = 1;
  EXPECT_EQ(draft.keep_places(again), (std::vector<int32_t>{2 * 8}));
  target.begin({.rows = std::vector<Row>{{Row::proposal(0), 9, 0}}, .page_tables = {}}, &draft);
  EXPECT_EQ(target.rows()[0].token, Row::proposal(0));
  EXPECT_DEATH(
      target.begin({.rows = std::vector<Row>{{Row::proposal(1), 9, 2}}, .page_tables = {}}, &draft),
      "CHECK failed");
}

}  // namespace
}  // namespace lagoon::kernels
