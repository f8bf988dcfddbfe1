// Every backend against the specification: what a DFlash draft needs, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/backend_rig.h"

// GCC and clang each say it in their own way.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LAGOON_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LAGOON_SANITIZED
#endif
#endif

namespace lagoon::kernels {
namespace {

using Draft = BackendTest;
using DraftDeathTest = BackendTest;
using StepDeathTest = BackendTest;
using Steps = BackendTest;
using Allocate = BackendTest;
using Prepare = BackendTest;

// The target and a draft of it.
class Pair : public Machinery {
 public:
  Pair(Activations activations, int threads, int max_rows, int sequences, int draft_rows)
      : Machinery(activations, threads, max_rows, sequences, draft_rows),
        draft(backend->allocate(toy.draft_shape(draft_rows * sequences, sequences, draft_rows))
                  .value()) {}

  // Makes context of rows of the last step.
  void context(const std::vector<ContextRow>& rows) {
    backend->draft_context(*draft, *target, toy.draft_context(), toy.draft_attention(), rows);
  }

  // Runs a block; the logits of all its rows, whose tokens become proposals but for row 0 of each
  // sequence.
  std::vector<float> propose(const std::vector<Row>& rows) {
    backend->begin(*draft, {rows, {}, nullptr});
    backend->embed(*draft, toy.table());
    for (size_t l = 0; l < toy.draft_attention().size(); ++l) {
      backend->attention_half(*draft, toy.draft_attention()[l]);
      backend->ffn_half(*draft, toy.draft_ffn()[l].layer);
    }
    std::vector<SampleRow> all(rows.size()), asked;
    for (size_t i = 0; i < rows.size(); ++i) {
      all[i].row = static_cast<int32_t>(i);
      if (i > 0 && rows[i - 1].sequence == rows[i].sequence) asked.push_back(all[i]);
    }
    std::vector<int32_t> drawn(rows.size());
    std::vector<float> logits(rows.size() * kVocab);
    backend->head_sample(*draft, toy.draft_head(), all, {.tokens = drawn, .logits = logits});
    proposals.resize(asked.size());
    std::reverse(asked.begin(), asked.end());  // proposals are in order of row all the same
    backend->head_sample(*draft, toy.draft_head(), asked, {.tokens = proposals});
    std::reverse(proposals.begin(), proposals.end());
    return logits;
  }

  std::unique_ptr<State> draft;
  std::vector<int32_t> proposals;
};

std::vector<ContextRow> context_of(const std::vector<Row>& rows, int first, int count) {
  std::vector<ContextRow> context;
  for (int i = first; i < first + count; ++i) {
    context.push_back({i, rows[i].position, rows[i].sequence});
  }
  return context;
}

// An anchor and masks.
std::vector<Row> block_of(int32_t anchor, int32_t position, int count, int32_t sequence) {
  constexpr int32_t kMask = 3;
  std::vector<Row> rows(count);
  for (int i = 0; i < count; ++i) rows[i] = {i == 0 ? anchor : kMask, position + i, sequence};
  return rows;
}

// Blocks of a draft between steps of its target: contexts of many chunks, block rows overwritten.
TEST_P(Draft, AgreesWithDoublePrecisionInFP32) {
  LAGOON_NOT_WITH_CUDA();
  Pair pair(Activations::kFloat32, 2, 11, 1, 4);
  PlainModel plain(pair.toy, Activations::kFloat32);
  const std::vector<int32_t> tokens = random_tokens(11, 60);
  const std::vector<int32_t> block = {5, 3, 3, 3};
  int done = 0;
  for (const int count : {11, 1, 3, 11, 2, 9, 1, 1}) {
    const std::vector<Row> rows = rows_of(tokens, done, count);
    pair.step(rows);
    pair.context(context_of(rows, 0, count));
    for (int i = 0; i < count; ++i) plain.step(tokens[done + i]);
    done += count;
    std::vector<Row> block_rows(4);
    for (int i = 0; i < 4; ++i) block_rows[i] = {block[i], done + i, 0};
    const std::vector<float> logits = pair.propose(block_rows);
    const std::vector<Vector> expected = plain.draft(block);
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(relative_error(row_of(logits, i), expected[i]), 2e-5) << done << " " << i;
    }
  }
}

TEST_P(Draft, AShorterBlockAndOtherSequencesDoNotChangeARow) {
  const std::vector<int32_t> tokens[2] = {random_tokens(12, 20), random_tokens(13, 20)};
  std::vector<float> expected[2];
  for (int s = 0; s < 2; ++s) {
    Pair alone(Activations::kBFloat16, 1, 20, 1, 5);
    const std::vector<Row> rows = rows_of(tokens[s], 0, 18);
    alone.step(rows);
    alone.context(context_of(rows, 0, 18));
    expected[s] = alone.propose(block_of(tokens[s][18], 18, 5, 0));
  }
  Pair both(Activations::kBFloat16, 2, 36, 2, 5);
  std::vector<Row> rows = rows_of(tokens[1], 0, 18, 1);
  const std::vector<Row> more = rows_of(tokens[0], 0, 18, 0);
  rows.insert(rows.end(), more.begin(), more.end());
  both.step(rows);
  both.context(context_of(rows, 0, 36));
  std::vector<Row> block = block_of(tokens[0][18], 18, 3, 0);
  const std::vector<Row> more_block = block_of(tokens[1][18], 18, 5, 1);
  block.insert(block.end(), more_block.begin(), more_block.end());
  const std::vector<float> logits = both.propose(block);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(row_of(logits, i), row_of(expected[0], i)));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(row_of(logits, 3 + i), row_of(expected[1], i)));
}

// A backend may put context off: a draft that was not asked for long proposes what one does that
// was asked all the time, also in a slot that another sequence had before.
TEST_P(Draft, ProposesTheSameAfterALongPause) {
  const std::vector<int32_t> tokens[2] = {random_tokens(15, 150), random_tokens(16, 150)};
  std::vector<float> logits[2];
  for (const bool always : {false, true}) {
    Pair pair(Activations::kBFloat16, 1, 12, 2, 3);
    int done[2] = {};
    for (int step = 0; step < 60; ++step) {
      // Sequence 0 goes on by one row, sequence 1 by up to four; it begins anew now and then.
      if (step == 20 || step == 23 || step == 50) done[1] = 0;
      std::vector<Row> rows = rows_of(tokens[0], done[0], 1, 0);
      const std::vector<Row> more = rows_of(tokens[1], done[1], 1 + step % 3, 1);
      rows.insert(rows.end(), more.begin(), more.end());
      done[0] += 1;
      done[1] += 1 + step % 3;
      if (done[1] > 50) done[1] = 0;
      pair.step(rows);
      pair.context(context_of(rows, 0, static_cast<int>(rows.size())));
      if (done[1] == 0 || !(always || step == 59)) continue;
      std::vector<Row> block = block_of(tokens[0][done[0]], done[0], 3, 0);
      const std::vector<Row> other = block_of(tokens[1][done[1]], done[1], 3, 1);
      block.insert(block.end(), other.begin(), other.end());
      logits[always] = pair.propose(block);
    }
  }
  ASSERT_EQ(logits[0].size(), 6u * kVocab);
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

TEST_P(Draft, ProposalsStandForTheirTokens) {
  const std::vector<int32_t> tokens = random_tokens(14, 20);
  std::vector<float> logits[2];
  for (const bool by_number : {false, true}) {
    Pair pair(Activations::kBFloat16, 1, 20, 2, 5);
    for (const int32_t s : {0, 1}) {
      const std::vector<Row> rows = rows_of(tokens, 0, 10 + s, s);
      pair.step(rows);
      pair.context(context_of(rows, 0, 10 + s));
    }
    std::vector<Row> block = block_of(tokens[1], 11, 5, 1);
    const std::vector<Row> more_block = block_of(tokens[0], 10, 5, 0);
    block.insert(block.end(), more_block.begin(), more_block.end());
    pair.propose(block);
    std::vector<Row> rows = block;
    for (int i = 0; i < 4; ++i) {
      rows[1 + i].token = by_number ? Row::proposal(i) : pair.proposals[i];
      rows[6 + i].token = by_number ? Row::proposal(i) : pair.proposals[4 + i];
    }
    logits[by_number] = pair.step(rows, pair.draft.get());
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

TEST_P(DraftDeathTest, AProposalThatDoesNotExistIsABug) {
  Pair pair(Activations::kBFloat16, 1, 4, 1, 3);
  const std::vector<Row> rows = {{1, 0, 0}};
  pair.step(rows);
  pair.context({{0, 0, 0}});
  const std::vector<Row> proposed = {{2, 1, 0}, {Row::proposal(1), 2, 0}};
  EXPECT_DEATH(pair.step(proposed, pair.draft.get()), "CHECK failed");  // before any draft
  pair.propose({{2, 1, 0}, {3, 2, 0}, {3, 3, 0}});
  pair.step(proposed, pair.draft.get());
  EXPECT_DEATH(pair.step(proposed), "CHECK failed");
  EXPECT_DEATH(pair.step({{Row::proposal(2), 1, 0}}, pair.draft.get()), "CHECK failed");
}

TEST_P(DraftDeathTest, ContextOfARowThatWasNotComputedIsABug) {
  Pair pair(Activations::kBFloat16, 1, 4, 1, 3);
  pair.step({{1, 0, 0}, {2, 1, 0}});
  EXPECT_DEATH(pair.context({{2, 2, 0}}), "CHECK failed");
  EXPECT_DEATH(pair.context({{1, 0, 0}}), "CHECK failed");
}

TEST_P(StepDeathTest, RowsThatBreakTheContractAreBugs) {
  Machinery machinery(Activations::kBFloat16, 1, 3, 2);
  EXPECT_DEATH(machinery.step({{1, 0, 0}, {1, 1, 0}, {1, 2, 0}, {1, 3, 0}}), "CHECK failed");
  EXPECT_DEATH(machinery.step({{1, 0, 0}, {1, 2, 0}}), "CHECK failed");
  EXPECT_DEATH(machinery.step({{1, 0, 0}, {1, 0, 1}, {1, 1, 0}}), "CHECK failed");
  EXPECT_DEATH(machinery.step({{kVocab, 0, 0}}), "CHECK failed");
  EXPECT_DEATH(machinery.step({{1, 0, 2}}), "CHECK failed");
  EXPECT_DEATH(machinery.step({{1, -1, 0}}), "CHECK failed");
  if (is_ref()) {
    EXPECT_DEATH(machinery.step({{1, 1, 0}}), "CHECK failed");  // position 0 was never computed
  }
  EXPECT_DEATH(machinery.step({{1, 128, 0}}), "CHECK failed");  // beyond the page table
  machinery.tables[0][0] = 16;
  EXPECT_DEATH(machinery.step({{1, 0, 0}}), "CHECK failed");
}

TEST_P(StepDeathTest, WeightsOfTheWrongShapeAreBugs) {
  Machinery machinery(Activations::kBFloat16, 1, 3);
  machinery.step({{1, 0, 0}});
  EXPECT_DEATH(machinery.backend->embed(*machinery.target, *machinery.toy.draft_context().fc),
               "CHECK failed");
  AttentionLayer layer;
  layer.heads = 3;
  layer.kv_heads = 2;
  EXPECT_DEATH(machinery.backend->attention_half(*machinery.target, layer), "CHECK failed");
}

TEST_P(Steps, OfNoRowsDoesNothing) {
  Machinery machinery(Activations::kBFloat16, 2, 3);
  EXPECT_TRUE(machinery.step({}).empty());
}

// With these sanitizers a failed allocation ends the program.
#ifndef LAGOON_SANITIZED
TEST_P(Allocate, SaysHowMuchWasTooMuch) {
  const auto backend = make_backend(Activations::kBFloat16, 1);
  const ToyModel toy(*backend, 1);
  StateShape shape = toy.target_shape(1, 1, 0);
  shape.pages = 1 << 30;
  shape.page_tokens = 1 << 12;
  const auto state = backend->allocate(shape);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(state.error().message.find("MiB of keys and values"), std::string::npos);
}
INSTANTIATE_TEST_SUITE_P(Backends, Allocate, testing::ValuesIn(kinds()), name_of);
#endif

TEST_P(Prepare, PassesOnWhatTheFormatRefuses) {
  const auto backend = make_backend(Activations::kBFloat16, 1);
  const std::vector<std::byte> bytes(64);
  const auto weight = backend->prepare({Format::kNVFP4, 2, 8, bytes.data(), bytes.data(), 1});
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().code, ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, Draft, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, DraftDeathTest, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, StepDeathTest, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, Steps, testing::ValuesIn(kinds()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, Prepare, testing::ValuesIn(kinds()), name_of);

}  // namespace
}  // namespace lagoon::kernels
