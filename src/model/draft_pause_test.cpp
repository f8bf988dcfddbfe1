// A draft that is asked now and then proposes what one does that is asked in every step, whatever
// sequences have done meanwhile. With the bundled pair on the CPU, which puts the draft's context
// off (kernels/cpu/pending_context.h).
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "checkpoint/model_dir.h"
#include "kernels/cpu/backend.h"
#include "model/laguna.h"

namespace lagoon::model {
namespace {

constexpr int kSequences = 4;
constexpr int kLength = 640;
constexpr int kPages = kLength / kPageTokens;  // of a sequence
constexpr int kProposals = 7;

class Rig {
 public:
  // Of so many slots few are used: the more there are, the less is put off for each.
  explicit Rig(int slots) {
    const std::string models = LAGOON_SOURCE_DIR "/models/";
    const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
    const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
    LoadOptions options;
    options.slots = slots;
    options.max_rows = std::max(slots, 512);
    options.max_length = kLength;
    options.pool_tokens = kSequences * kLength;
    model_ = load(target, &draft, *backend_, options).value();
  }

  struct Rows {
    int slot = 0;
    int32_t position = 0;
    std::vector<int32_t> tokens;
    int32_t kept = 0;     // of the tokens
    bool drafts = false;  // for the last of them, which is the only one
  };
  // What was proposed for each that drafts, one after the other.
  std::vector<int32_t> step(const std::vector<Rows>& all) {
    std::vector<Anchor> anchors;
    for (const Rows& rows : all) {
      if (rows.drafts) anchors.push_back({rows.slot, rows.tokens[0], rows.position});
    }
    if (!anchors.empty()) model_->draft(anchors, kProposals);
    std::vector<Segment> segments;
    std::vector<Commit> commits;
    for (const Rows& rows : all) {
      Segment segment;
      segment.slot = rows.slot;
      segment.position = rows.position;
      segment.tokens = rows.tokens;
      segment.proposals = rows.drafts ? kProposals : 0;
      segment.page_table = pages_[static_cast<size_t>(rows.slot)];
      segments.push_back(segment);
      commits.push_back({rows.slot, rows.position + rows.kept});
    }
    std::vector<int32_t> proposed;
    for (const SegmentResult& result : model_->step(segments)) {
      if (result.tokens.size() != kProposals + 1) continue;
      proposed.insert(proposed.end(), result.tokens.begin() + 1, result.tokens.end());
    }
    model_->commit(commits);
    return proposed;
  }
  int vocab() const { return model_->info().vocab; }

 private:
  static std::vector<std::vector<int32_t>> all_pages() {
    std::vector<std::vector<int32_t>> all(kSequences);
    int32_t next = 0;
    for (auto& of_one : all) {
      for (int i = 0; i < kPages; ++i) of_one.push_back(next++);
    }
    return all;
  }

  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::cpu::make_backend(kernels::Activations::kBFloat16, 1);
  std::unique_ptr<Model> model_;
  const std::vector<std::vector<int32_t>> pages_ = all_pages();
};

class DraftPause : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Slots, DraftPause, ::testing::Values(kSequences, 512));

TEST_P(DraftPause, ChangesNoProposal) {
  Rig always(GetParam());
  Rig sometimes(GetParam());
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  int32_t lengths[kSequences] = {};
  int compared = 0;
  int pause = 0;
  for (int step = 0; step < 900; ++step) {
    std::vector<Rig::Rows> all;
    for (int slot = 0; slot < kSequences; ++slot) {
      int32_t& length = lengths[slot];
      if (length > 0 && below(4) == 0) continue;  // not in this step
      if (length > kLength - 150 || below(120) == 0) length = 0;
      const bool prompt = length == 0 || below(30) == 0;
      Rig::Rows rows;
      rows.slot = slot;
      rows.position = length;
      const int count = prompt ? 1 + below(below(3) == 0 ? 120 : 9) : 1 + below(3) / 2 * below(7);
      for (int i = 0; i < count; ++i) rows.tokens.push_back(below(always.vocab()));
      rows.kept = prompt ? count : 1 + below(count);
      rows.drafts = !prompt && count == 1;
      length += rows.kept;
      all.push_back(rows);
    }
    if (all.empty()) continue;
    const std::vector<int32_t> expected = always.step(all);
    // All of them pause, or one is asked and the others are not.
    std::vector<Rig::Rows> fewer = all;
    if (--pause < -10) pause = below(90);
    const int only = below(kSequences + 1);
    for (Rig::Rows& rows : fewer) {
      rows.drafts = rows.drafts && pause < 0 && (only == kSequences || only == rows.slot);
    }
    const std::vector<int32_t> got = sometimes.step(fewer);
    size_t at = 0;
    size_t of_expected = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].drafts) continue;
      if (fewer[i].drafts) {
        ASSERT_TRUE(std::equal(got.begin() + static_cast<int64_t>(at),
                               got.begin() + static_cast<int64_t>(at + kProposals),
                               expected.begin() + static_cast<int64_t>(of_expected)))
            << "step " << step << ", slot " << all[i].slot << ", position " << all[i].position;
        at += kProposals;
        ++compared;
      }
      of_expected += kProposals;
    }
  }
  fmt::print("{} drafts compared\n", compared);
  EXPECT_GT(compared, 50);
}

}  // namespace
}  // namespace lagoon::model
