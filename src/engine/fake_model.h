// Test only: a model whose next token is a pure function of the tokens before it, that keeps its
// "keys and values" in pages as a real one does, and that checks the contract of model/model.h on
// every call. What breaks it is a failure of the running test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "model/model.h"

namespace lagoon::engine {

// Hash of a token sequence, extended token by token.
uint64_t extend_chain(uint64_t chain, int32_t token);
constexpr uint64_t kEmptyChain = 0x9E3779B97F4A7C15u;

// What the fake's cache holds for a position: everything its row depends on.
uint64_t row_hash(uint64_t chain, model::RowClass row_class);

// How often each token of prompt and answer is in the answer.
using FakeHistory = std::map<int32_t, int>;

// What the next token depends on besides the tokens before it.
struct FakeRules {
  uint64_t salt = 0;  // of bias and penalties
  std::vector<int32_t> banned;
};

// The entries that the fake gives of `token` after the tokens of `chain`: its own and n more.
std::vector<kernels::TokenLogprob> fake_logprobs(uint64_t chain, int32_t token, int n);

// The text that the fake "knows".
class FakeTarget {
 public:
  // After `prompt` follows `answer`, whatever the sampling.
  void script(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer);

  // The token at `position`, after the tokens of `chain`. Greedy: the first of three candidates;
  // else one of them, drawn by (seed, position). With rules, other candidates.
  int32_t next(uint64_t chain, int32_t position, const kernels::Sampling& sampling,
               const FakeRules& rules = {}) const;

  // Plain decoding: the first `count` tokens after the prompt.
  std::vector<int32_t> generate(const std::vector<int32_t>& prompt,
                                const kernels::Sampling& sampling, int count) const;
  // The same with all that the request asks for; `eos` are the model's.
  std::vector<int32_t> generate(const Request& request, int count,
                                const std::vector<int32_t>& eos = {2, 5}) const;

  // What the cache holds after plain decoding of prompt and answer but for its newest token.
  static std::vector<uint64_t> cache_of(const std::vector<int32_t>& prompt,
                                        const std::vector<int32_t>& answer);

 private:
  std::map<uint64_t, int32_t> script_;  // by chain
};

struct FakeCall {
  enum class Kind { kStep, kDraft, kCommit };
  struct Part {  // of one sequence
    int slot = 0;
    int position = 0;  // kCommit: the length
    int rows = 0;      // kDraft: k
    int proposals = 0;
    model::RowClass row_class = model::RowClass::kPrompt;
    model::Sample sample = model::Sample::kNone;
  };
  Kind kind = Kind::kStep;
  std::vector<Part> parts;
};

// What the fake saw. The engine owns the model, so this is shared with the test; read it when no
// request runs.
struct FakeRecord {
  struct Sequence {
    int slot = 0;
    std::vector<uint64_t> cache;  // row_hash of each committed position
  };
  std::vector<FakeCall> calls;
  std::vector<Sequence> sequences;  // in order of their first step
};

struct FakeOptions {
  model::ModelInfo info = {4096, 512, 15, 64, 1, 32, 16, 2, {2, 5}};
  int draft_hits = 60;  // share of right proposals, in percent
  // Called at the start of step number n = 0, 1, ...
  std::function<void(int)> before_step;
  // Called at the end of a draft with its number of rows.
  std::function<void(int)> after_draft;
  // Called at the end of a step with its number of rows.
  std::function<void(int)> after_step;
  int fails_at_step = -1;  // failure() says so from the end of this step on
};

class FakeModel : public model::Model {
 public:
  FakeModel(FakeTarget target, FakeOptions options, std::shared_ptr<FakeRecord> record);

  const model::ModelInfo& info() const override { return options_.info; }
  std::vector<model::SegmentResult> step(std::span<const model::Segment> segments) override;
  void draft(std::span<const model::Anchor> anchors, int k) override;
  void commit(std::span<const model::Commit> commits) override;
  const Error* failure() const override { return failure_ ? &*failure_ : nullptr; }
  void keep_logits(bool) override {}
  // It reads back what steps wrote, so that there is nothing to take.
  void take_as_computed(int, int32_t) override { CHECK(false); }

 private:
  struct Cell {
    int slot = -1;
    int position = -1;
    int32_t token = -1;
    uint64_t row = 0;
  };
  struct Slot {
    int committed = 0;
    int computed = 0;            // positions the last step reached
    bool step_pending = false;   // computed by the last step, not committed yet
    size_t sequence = 0;         // in FakeRecord
    std::vector<int32_t> pages;  // of the last step
    int draft_position = -1;     // of the last draft since the last step
    int32_t draft_anchor = -1;
    std::vector<int32_t> proposals;
  };

  void check_pages(std::span<const model::Segment> segments) const;
  void check_segment(const model::Segment& segment) const;
  std::vector<int32_t> resolve(const model::Segment& segment) const;
  model::SegmentResult compute(const model::Segment& segment);
  void sample(const model::Segment& segment, uint64_t chain, int position,
              model::SegmentResult& result) const;
  Cell& cell(std::span<const int32_t> pages, int position);
  // Chain of the committed tokens below `length`, read from the cache and checked.
  uint64_t read_chain(int slot, std::span<const int32_t> pages, int length);

  FakeTarget target_;
  FakeOptions options_;
  std::shared_ptr<FakeRecord> record_;
  std::vector<Slot> slots_;
  std::vector<Cell> cells_;  // [pages, page_tokens]
  std::optional<Error> failure_;
  int steps_ = 0;
};

}  // namespace lagoon::engine
