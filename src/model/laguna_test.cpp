// The model as the engine uses it: whatever the chunks, neighbours and proposals, the same bits.
#include "model/laguna.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

// Longer than two pages and many windows of 8.
std::vector<int32_t> long_prompt(int length, int seed) {
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  int i = 0;
  for (int32_t& token : tokens) {
    token = (i * i * 7 + i * seed + 11) % 64;
    ++i;
  }
  return tokens;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class LagunaTest : public ::testing::Test {
 protected:
  LagunaTest() {
    write_model(target_.path(), tiny_config(), tiny_tensors(ExpertFormat::kNVFP4));
    write_model(draft_.path(), tiny_draft_config(), tiny_draft_tensors());
  }
  Loaded load(const LoadOptions& options = {}) {
    Loaded loaded =
        load_reference(kernels::Activations::kBFloat16, target_.path(), draft_.path(), options);
    loaded.model->keep_logits(true);
    return loaded;
  }

  TempDir target_;
  TempDir draft_;
};

// The proposals after `anchor`, as a step resolves them.
std::vector<int32_t> proposals(Model& model, Sequence& sequence, int32_t anchor, int k) {
  sequence.draft(anchor, k);
  const std::vector<int32_t> tokens = {anchor};
  std::vector<int32_t> resolved =
      model.step({{sequence.segment(tokens, k, Sample::kNone)}})[0].tokens;
  resolved.erase(resolved.begin());
  return resolved;
}

TEST_F(LagunaTest, InfoDescribesTheModel) {
  LoadOptions options;
  options.slots = 3;
  options.max_rows = 100;
  options.max_length = 200;
  const Loaded loaded = load(options);
  const ModelInfo& info = loaded.model->info();
  EXPECT_EQ(info.vocab, 64);
  EXPECT_EQ(info.max_positions, 512);
  EXPECT_EQ(info.max_proposals, 5);
  EXPECT_EQ(info.max_rows, 100);
  EXPECT_EQ(info.slots, 3);
  EXPECT_EQ(info.pages, 3 * 4);
  EXPECT_EQ(info.page_tokens, 64);
  EXPECT_EQ(info.bos, 2);
  EXPECT_EQ(info.eos, (std::vector<int32_t>{2, 5}));
}

TEST_F(LagunaTest, ChunksDoNotChangeABit) {
  const Loaded loaded = load();
  const std::vector<int32_t> prompt = long_prompt(150, 3);
  Sequence whole(*loaded.model);
  const std::vector<float> expected = whole.prefill(prompt, 512, Sample::kAll).logits;
  const std::vector<int32_t> expected_proposals = proposals(*loaded.model, whole, 9, 5);
  for (const int chunk : {1, 2, 7, 8, 9, 64, 149}) {
    SCOPED_TRACE(chunk);
    Sequence sequence(*loaded.model);
    EXPECT_TRUE(same_bits(sequence.prefill(prompt, chunk, Sample::kAll).logits, expected));
    EXPECT_EQ(proposals(*loaded.model, sequence, 9, 5), expected_proposals);
  }
}

TEST_F(LagunaTest, FirstProposalsDoNotDependOnTheirNumber) {
  const Loaded loaded = load();
  Sequence sequence(*loaded.model);
  sequence.prefill(long_prompt(40, 5), 512, Sample::kLast);
  const std::vector<int32_t> all = proposals(*loaded.model, sequence, 9, 5);
  for (int k = 1; k < 5; ++k) {
    const std::vector<int32_t> few = proposals(*loaded.model, sequence, 9, k);
    EXPECT_TRUE(std::ranges::equal(few, std::vector<int32_t>(all.begin(), all.begin() + k)));
  }
}

TEST_F(LagunaTest, ProposalsCountLikeExplicitTokens) {
  const Loaded loaded = load();
  Sequence sequence(*loaded.model);
  sequence.prefill(long_prompt(40, 5), 512, Sample::kLast);
  sequence.draft(9, 4);
  const std::vector<int32_t> anchor = {9};
  const SegmentResult drafted =
      loaded.model->step({{sequence.segment(anchor, 4, Sample::kAll)}})[0];
  ASSERT_EQ(drafted.tokens.size(), 5u);
  const SegmentResult given =
      loaded.model->step({{sequence.segment(drafted.tokens, 0, Sample::kAll)}})[0];
  EXPECT_EQ(drafted.tokens, given.tokens);
  EXPECT_EQ(drafted.sampled, given.sampled);
  EXPECT_TRUE(same_bits(drafted.logits, given.logits));
}

// Rows that were computed and not committed leave no trace.
TEST_F(LagunaTest, RejectedRowsAreNeverRead) {
  const Loaded loaded = load();
  Sequence clean(*loaded.model);
  clean.prefill(long_prompt(70, 5), 512, Sample::kNone);
  const std::vector<int32_t> next = {1, 4, 16};
  const std::vector<float> expected =
      loaded.model->step({{clean.segment(next, 0, Sample::kAll)}})[0].logits;
  clean.commit(3);
  const std::vector<int32_t> expected_proposals = proposals(*loaded.model, clean, 9, 5);

  Sequence rejected(*loaded.model);
  rejected.prefill(long_prompt(70, 5), 512, Sample::kNone);
  const std::vector<int32_t> wrong = {33, 34, 35, 36, 37, 38};
  loaded.model->step({{rejected.segment(wrong, 0, Sample::kAll)}});
  EXPECT_TRUE(same_bits(loaded.model->step({{rejected.segment(next, 0, Sample::kAll)}})[0].logits,
                        expected));
  rejected.commit(3);
  EXPECT_EQ(proposals(*loaded.model, rejected, 9, 5), expected_proposals);
}

TEST_F(LagunaTest, NeighboursDoNotChangeABit) {
  LoadOptions options;
  options.slots = 3;
  const Loaded loaded = load(options);
  Model& model = *loaded.model;
  const std::vector<int32_t> next = {1, 4, 16};

  std::vector<std::vector<float>> alone;
  std::vector<std::vector<int32_t>> alone_proposals;
  for (int i = 0; i < 3; ++i) {
    Sequence sequence(model, 0);
    sequence.prefill(long_prompt(60 + 30 * i, i), 512, Sample::kNone);
    alone.push_back(model.step({{sequence.segment(next, 0, Sample::kAll)}})[0].logits);
    sequence.commit(3);
    alone_proposals.push_back(proposals(model, sequence, 9, 5));
  }

  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) {
    sequences.emplace_back(model, 2 - i, i, 3);
    sequences.back().prefill(long_prompt(60 + 30 * i, i), 512, Sample::kNone);
  }
  std::vector<Segment> segments;
  segments.reserve(sequences.size());
  for (const Sequence& s : sequences) segments.push_back(s.segment(next, 0, Sample::kAll));
  const std::vector<SegmentResult> together = model.step(segments);
  std::vector<Commit> commits;
  std::vector<Anchor> anchors;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(together[static_cast<size_t>(i)].logits, alone[static_cast<size_t>(i)]));
    const int32_t length = sequences[static_cast<size_t>(i)].length() + 3;
    commits.push_back({.slot = 2 - i, .length = length});
    anchors.push_back({.slot = 2 - i, .token = 9, .position = length});
  }
  model.commit(commits);
  model.draft(anchors, 5);
  const std::vector<int32_t> anchor = {9};
  for (int i = 0; i < 3; ++i) {
    Segment segment = sequences[static_cast<size_t>(i)].segment(anchor, 5, Sample::kNone);
    segment.position += 3;
    std::vector<int32_t> tokens = model.step({{segment}})[0].tokens;
    tokens.erase(tokens.begin());
    EXPECT_EQ(tokens, alone_proposals[static_cast<size_t>(i)]);
  }
}

TEST_F(LagunaTest, GreedyTextDoesNotDependOnProposals) {
  const Loaded loaded = load();
  const std::vector<int32_t> plain = greedy(*loaded.model, long_prompt(50, 3), 60, 0);
  for (const int k : {1, 3, 5}) EXPECT_EQ(greedy(*loaded.model, long_prompt(50, 3), 60, k), plain);
}

TEST_F(LagunaTest, WithoutADraftThereAreNoProposals) {
  const Loaded loaded = load_reference(kernels::Activations::kBFloat16, target_.path(), "");
  EXPECT_EQ(loaded.model->info().max_proposals, 0);
  const Loaded pair = load();
  const std::vector<int32_t> prompt = long_prompt(50, 3);
  EXPECT_EQ(greedy(*loaded.model, prompt, 20, 0), greedy(*pair.model, prompt, 20, 0));
}

using LagunaDeathTest = LagunaTest;

TEST_F(LagunaDeathTest, MisuseIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  LoadOptions options;
  options.max_rows = 16;
  options.max_length = 100;
  const Loaded loaded = load(options);
  Model& model = *loaded.model;
  Sequence sequence(model);
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  const std::vector<int32_t> one = {9};
  sequence.prefill(prompt, 16, Sample::kNone);
  const auto with = [&](auto change) {
    Segment segment = sequence.segment(one, 0, Sample::kLast);
    change(segment);
    model.step({{segment}});
  };

  EXPECT_DEATH(with([](Segment& s) { s.position = 3; }), "committed");
  EXPECT_DEATH(with([](Segment& s) { s.position = 5; }), "committed");
  EXPECT_DEATH(with([](Segment& s) { s.slot = 1; }), "slots");
  EXPECT_DEATH(with([](Segment& s) { s.page_table = {}; }), "page_table");
  EXPECT_DEATH(with([](Segment& s) { s.tokens = {}; }), "tokens");
  EXPECT_DEATH(with([](Segment& s) { s.proposals = 1; }), "proposals_from");
  const std::vector<int32_t> alien = {64};
  EXPECT_DEATH(with([&](Segment& s) { s.tokens = alien; }), "vocab");
  const std::vector<int32_t> many(17, 1);
  EXPECT_DEATH(with([&](Segment& s) { s.tokens = many; }), "max_rows");
  const Segment twice = sequence.segment(one, 0, Sample::kLast);
  EXPECT_DEATH(model.step({{twice, twice}}), "rows == 0");

  EXPECT_DEATH(sequence.commit(1), "position");    // never computed
  EXPECT_DEATH(sequence.commit(-1), "committed");  // stands already
  EXPECT_DEATH(sequence.draft(9, 6), "max_proposals");
  EXPECT_DEATH(sequence.draft(64, 5), "vocab");
  EXPECT_DEATH(model.draft({{Anchor{.slot = 0, .token = 9, .position = 3}}}, 5), "committed");
  const Loaded alone = load_reference(kernels::Activations::kBFloat16, target_.path(), "");
  EXPECT_DEATH(alone.model->draft({{Anchor{.slot = 0, .token = 9, .position = 0}}}, 1), "draft_");
}

}  // namespace
}  // namespace lagoon::model::testing
