// What the engine sees of a model: steps over segments of sequences, drafts, commits. No requests,
// no templates, no stop strings here, and no device pointer comes out. Not thread-safe: one thread
// (the engine's) drives a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"

namespace lagoon::model {

// The class of a row follows its role in its request and is kept when the row is computed again.
// Inside a class a row's bits depend on its own prefix alone (docs/design.md, "The same text"). The
// backends there are compute both alike.
enum class RowClass { kPrompt, kGenerated };

enum class Sample { kNone, kLast, kAll };

// Consecutive positions of one sequence in a step: at least one explicit token, then the first
// `proposals` tokens that the last draft proposed after it. They begin where what is committed
// ends, or at position 0, which starts a new sequence in the slot. A step has one segment of a
// sequence at most.
struct Segment {
  int slot = 0;
  int32_t position = 0;  // of the first token
  std::span<const int32_t> tokens;
  int proposals = 0;
  RowClass row_class = RowClass::kPrompt;
  Sample sample = Sample::kNone;
  kernels::Sampling sampling;
  std::span<const int32_t> page_table;         // covers all positions of the segment
  const kernels::LogitRules* rules = nullptr;  // of all sampled rows; null: none
  int logprobs = -1;  // of sampled rows: the token's and the n best; -1: none
  // Of the sampled rows, the first given.size() draw nothing: the tokens after them are known, and
  // what is asked for is their log-probability, with that of the given_logprobs best.
  std::span<const int32_t> given = {};
  int given_logprobs = 0;

  int rows() const { return static_cast<int>(tokens.size()) + proposals; }
};

struct SegmentResult {
  std::vector<int32_t> tokens;   // what was computed, proposals resolved; rows() entries
  std::vector<int32_t> sampled;  // the token after each sampled row: 0, 1 or rows() entries
  std::vector<float> logits;     // [sampled, vocab], only where Model::keep_logits(true)
  // Of each sampled row, the token's and then the best; empty where none was asked for.
  std::vector<std::vector<kernels::TokenLogprob>> logprobs;
};

// Asks for proposals after `anchor`, the newest token of the sequence, which is at `position` and
// has not been computed yet. All lower positions must be committed.
struct Anchor {
  int slot = 0;
  int32_t token = 0;
  int32_t position = 0;
};

// Positions below `length` of the sequence stand, for good: a commit never takes one back. What was
// computed beyond is overwritten, never read.
struct Commit {
  int slot = 0;
  int32_t length = 0;
};

inline constexpr int kPageTokens = 64;  // positions of a page of keys and values

struct ModelInfo {
  int vocab = 0;
  int64_t max_positions = 0;  // longest sequence the checkpoint was made for
  int max_proposals = 0;      // 0 without a draft
  int max_rows = 0;           // of a step
  int slots = 0;
  int pages = 0;
  int page_tokens = 0;
  int32_t bos = -1;
  std::vector<int32_t> eos;
  kernels::CacheType cache_type = kernels::CacheType::kActivations;  // of the target
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;

  // One forward pass over at most info().max_rows rows. One result per segment.
  virtual std::vector<SegmentResult> step(std::span<const Segment> segments) = 0;

  // Makes `k` greedy proposals for each anchor. The first k' of k do not depend on k. The
  // proposals stay in the model until the next draft; step() names them by number.
  virtual void draft(std::span<const Anchor> anchors, int k) = 0;

  // Follows each step() that computed rows worth keeping, before the next step or draft. The
  // committed rows must have been computed by the last step (or before it).
  virtual void commit(std::span<const Commit> commits) = 0;

  // For timing: begins a new sequence in the slot whose positions below `length` count as computed
  // and committed, though nothing was: keys and values are what the caches hold
  // (LoadOptions::random_caches).
  virtual void take_as_computed(int slot, int32_t length) = 0;

  // How many experts the last step read, all its segments together.
  virtual kernels::ExpertUse expert_use() const { return {}; }

  // See kernels::Backend::failure().
  virtual const Error* failure() const { return nullptr; }

  // Gives the draft and its memory up: no proposals from now on.
  virtual void drop_draft() {}

  // Whether SegmentResult::logits is filled (tests).
  virtual void keep_logits(bool keep) = 0;
};

}  // namespace lagoon::model
