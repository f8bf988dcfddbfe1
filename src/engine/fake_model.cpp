#include "engine/fake_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

namespace lagoon::engine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Clear of special tokens and of the bytes' own.
int32_t candidate(uint64_t chain, int rank) {
  constexpr int kFirst = 300;
  constexpr int kCount = 1000;
  return kFirst + static_cast<int32_t>(mix(chain + static_cast<uint64_t>(rank)) % kCount);
}

uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

uint64_t salt_of(const FakeHistory& history, float repetition, float presence, float frequency) {
  uint64_t salt = mix(bits_of(repetition) + 3 * bits_of(presence) + 5 * bits_of(frequency));
  for (const auto& [token, outputs] : history) {
    salt = mix(salt + static_cast<uint64_t>(token) * 1000 + static_cast<uint64_t>(outputs));
  }
  return salt;
}

// In any order.
uint64_t salt_of(int32_t token, float bias) {
  return mix(static_cast<uint64_t>(token) * 7 + bits_of(bias));
}

// The rules of a row: seen tokens, and those of the segment up to it.
FakeRules rules_of(const kernels::LogitRules& rules, int position, std::span<const int32_t> tokens,
                   int first_position) {
  FakeRules made;
  for (const kernels::LogitBias& bias : rules.bias) made.salt += salt_of(bias.token, bias.bias);
  if (position < rules.banned_before) made.banned.assign(rules.banned.begin(), rules.banned.end());
  if (!rules.penalizes()) return made;
  FakeHistory history;
  for (const kernels::SeenToken& seen : rules.seen) {
    EXPECT_TRUE(history.emplace(seen.token, seen.outputs).second) << "seen twice";
  }
  for (int p = std::max(first_position, rules.seen_end); p < position; ++p) {
    ++history[tokens[static_cast<size_t>(p - first_position)]];
  }
  made.salt += salt_of(history, rules.repetition, rules.presence, rules.frequency);
  return made;
}

}  // namespace

std::vector<kernels::TokenLogprob> fake_logprobs(uint64_t chain, int32_t token, int n) {
  std::vector<kernels::TokenLogprob> entries;
  for (int i = -1; i < n; ++i) {
    const int32_t id = i < 0 ? token : candidate(chain, 10 + i);
    const uint64_t hash = mix(chain + static_cast<uint64_t>(id));
    entries.push_back({id, -static_cast<float>(hash % 1000) / 100,
                       i < 0 ? 1 + static_cast<int32_t>(hash % 50) : i + 1});
  }
  return entries;
}

uint64_t extend_chain(uint64_t chain, int32_t token) {
  return mix(chain * 0x100000001B3u + static_cast<uint64_t>(token) + 1);
}

uint64_t row_hash(uint64_t chain, model::RowClass row_class) {
  return mix(chain + (row_class == model::RowClass::kPrompt ? 1 : 2));
}

void FakeTarget::script(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
  uint64_t chain = kEmptyChain;
  for (const int32_t token : prompt) chain = extend_chain(chain, token);
  for (const int32_t token : answer) {
    script_[chain] = token;
    chain = extend_chain(chain, token);
  }
}

int32_t FakeTarget::next(uint64_t chain, int32_t position, const kernels::Sampling& sampling,
                         const FakeRules& rules) const {
  const auto banned = [&rules](int32_t token) {
    return std::ranges::find(rules.banned, token) != rules.banned.end();
  };
  if (const auto scripted = script_.find(chain);
      scripted != script_.end() && !banned(scripted->second)) {
    return scripted->second;
  }
  if (rules.salt != 0) chain = mix(chain + rules.salt);
  int rank = 0;
  if (sampling.temperature > 0) {
    const uint64_t drawn = mix(mix(sampling.seed) + static_cast<uint64_t>(position)) % 100;
    rank = drawn < 60 ? 0 : drawn < 85 ? 1 : 2;
  }
  while (banned(candidate(chain, rank))) ++rank;
  return candidate(chain, rank);
}

std::vector<int32_t> FakeTarget::generate(const Request& request, int count,
                                          const std::vector<int32_t>& eos) const {
  uint64_t chain = kEmptyChain;
  FakeHistory history;
  for (const int32_t token : request.prompt) {
    chain = extend_chain(chain, token);
    history.emplace(token, 0);
  }
  std::map<int32_t, float> bias;
  for (const auto& [token, value] : request.logit_bias) bias[token] = value;
  const Penalties& penalties = request.penalties;
  const bool penalizes =
      penalties.repetition != 1 || penalties.presence != 0 || penalties.frequency != 0;
  std::vector<int32_t> answer;
  while (static_cast<int>(answer.size()) < count) {
    FakeRules rules;
    for (const auto& [token, value] : bias) rules.salt += salt_of(token, value);
    if (penalizes) {
      rules.salt += salt_of(history, penalties.repetition, penalties.presence, penalties.frequency);
    }
    if (static_cast<int>(answer.size()) < request.min_tokens) {
      rules.banned = request.stop_tokens;
      if (!request.ignore_eos) rules.banned.insert(rules.banned.end(), eos.begin(), eos.end());
    }
    const auto position = static_cast<int32_t>(request.prompt.size() + answer.size());
    answer.push_back(next(chain, position, request.sampling, rules));
    chain = extend_chain(chain, answer.back());
    ++history[answer.back()];
  }
  return answer;
}

std::vector<int32_t> FakeTarget::generate(const std::vector<int32_t>& prompt,
                                          const kernels::Sampling& sampling, int count) const {
  uint64_t chain = kEmptyChain;
  for (const int32_t token : prompt) chain = extend_chain(chain, token);
  std::vector<int32_t> answer;
  auto position = static_cast<int32_t>(prompt.size());
  while (static_cast<int>(answer.size()) < count) {
    answer.push_back(next(chain, position++, sampling));
    chain = extend_chain(chain, answer.back());
  }
  return answer;
}

std::vector<uint64_t> FakeTarget::cache_of(const std::vector<int32_t>& prompt,
                                           const std::vector<int32_t>& answer) {
  std::vector<uint64_t> cache;
  uint64_t chain = kEmptyChain;
  for (const int32_t token : prompt) {
    chain = extend_chain(chain, token);
    cache.push_back(row_hash(chain, model::RowClass::kPrompt));
  }
  for (size_t i = 0; i + 1 < answer.size(); ++i) {
    chain = extend_chain(chain, answer[i]);
    cache.push_back(row_hash(chain, model::RowClass::kGenerated));
  }
  return cache;
}

FakeModel::FakeModel(FakeTarget target, FakeOptions options, std::shared_ptr<FakeRecord> record)
    : target_(std::move(target)),
      options_(std::move(options)),
      record_(std::move(record)),
      slots_(static_cast<size_t>(options_.info.slots)),
      cells_(static_cast<size_t>(options_.info.pages) *
             static_cast<size_t>(options_.info.page_tokens)) {}

std::vector<model::SegmentResult> FakeModel::step(std::span<const model::Segment> segments) {
  if (options_.before_step) options_.before_step(steps_);
  ++steps_;
  EXPECT_FALSE(segments.empty());
  FakeCall call{FakeCall::Kind::kStep, {}};
  std::set<int> in_step;
  int rows = 0;
  for (const model::Segment& segment : segments) {
    EXPECT_TRUE(in_step.insert(segment.slot).second) << "a slot twice in a step";
    check_segment(segment);
    rows += segment.rows();
    call.parts.push_back({segment.slot, segment.position, segment.rows(), segment.proposals,
                          segment.row_class, segment.sample});
  }
  EXPECT_LE(rows, options_.info.max_rows);
  check_pages(segments);
  record_->calls.push_back(std::move(call));

  std::vector<model::SegmentResult> results;
  for (const model::Segment& segment : segments) results.push_back(compute(segment));
  if (options_.after_step) options_.after_step(rows);
  if (options_.fails_at_step >= 0 && steps_ > options_.fails_at_step) {
    failure_ = Error{ErrorCode::kInternal, "the fake has failed"};
  }
  return results;
}

void FakeModel::check_pages(std::span<const model::Segment> segments) const {
  std::set<int32_t> held;
  for (const model::Segment& segment : segments) {
    const int64_t covered =
        static_cast<int64_t>(segment.page_table.size()) * options_.info.page_tokens;
    EXPECT_GE(covered, segment.position + segment.rows()) << "the pages do not cover the rows";
    for (const int32_t page : segment.page_table) {
      EXPECT_TRUE(page >= 0 && page < options_.info.pages) << page;
      EXPECT_TRUE(held.insert(page).second) << "page " << page << " is held twice";
    }
  }
}

void FakeModel::check_segment(const model::Segment& segment) const {
  ASSERT_TRUE(segment.slot >= 0 && segment.slot < options_.info.slots);
  const Slot& slot = slots_[static_cast<size_t>(segment.slot)];
  if (segment.position != 0) {  // at 0 a new sequence begins
    EXPECT_FALSE(slot.step_pending) << "the last step was not committed";
    EXPECT_EQ(segment.position, slot.committed);
  }
  EXPECT_GE(segment.tokens.size(), 1u);
  EXPECT_LE(segment.position + segment.rows(), options_.info.max_positions);
  for (const int32_t token : segment.tokens) {
    EXPECT_TRUE(token >= 0 && token < options_.info.vocab) << token;
  }
  if (segment.proposals > 0) {
    EXPECT_EQ(segment.tokens.size(), 1u);
    EXPECT_LE(segment.proposals, static_cast<int>(slot.proposals.size()));
    EXPECT_EQ(segment.position, slot.draft_position);
    EXPECT_EQ(segment.tokens[0], slot.draft_anchor);
  }
}

std::vector<int32_t> FakeModel::resolve(const model::Segment& segment) const {
  std::vector<int32_t> tokens(segment.tokens.begin(), segment.tokens.end());
  const auto& proposals = slots_[static_cast<size_t>(segment.slot)].proposals;
  tokens.insert(tokens.end(), proposals.begin(), proposals.begin() + segment.proposals);
  return tokens;
}

model::SegmentResult FakeModel::compute(const model::Segment& segment) {
  Slot& slot = slots_[static_cast<size_t>(segment.slot)];
  if (segment.position == 0) {
    slot = {};
    slot.sequence = record_->sequences.size();
    record_->sequences.push_back({segment.slot, {}});
  }
  model::SegmentResult result;
  result.tokens = resolve(segment);
  uint64_t chain = read_chain(segment.slot, segment.page_table, segment.position);
  int position = segment.position;
  for (const int32_t token : result.tokens) {
    chain = extend_chain(chain, token);
    cell(segment.page_table, position) = {segment.slot, position, token,
                                          row_hash(chain, segment.row_class)};
    ++position;
    const bool last = position == segment.position + segment.rows();
    if (segment.sample == model::Sample::kAll || (segment.sample == model::Sample::kLast && last)) {
      sample(segment, chain, position, result);
    }
  }
  slot.pages.assign(segment.page_table.begin(), segment.page_table.end());
  slot.computed = position;
  slot.step_pending = true;
  slot.draft_position = -1;
  slot.proposals.clear();
  return result;
}

// The token at `position`, after those of `chain`.
void FakeModel::sample(const model::Segment& segment, uint64_t chain, int position,
                       model::SegmentResult& result) const {
  const size_t index = result.sampled.size();
  int logprobs = segment.logprobs;
  if (index < segment.given.size()) {
    result.sampled.push_back(segment.given[index]);
    logprobs = segment.given_logprobs;
  } else {
    FakeRules rules;
    if (segment.rules != nullptr) {
      rules = rules_of(*segment.rules, position, result.tokens, segment.position);
    }
    result.sampled.push_back(target_.next(chain, position, segment.sampling, rules));
  }
  const bool any = segment.logprobs >= 0 || !segment.given.empty();
  if (any) {
    result.logprobs.push_back(logprobs < 0 ? std::vector<kernels::TokenLogprob>()
                                           : fake_logprobs(chain, result.sampled.back(), logprobs));
  }
}

FakeModel::Cell& FakeModel::cell(std::span<const int32_t> pages, int position) {
  const auto page_tokens = static_cast<size_t>(options_.info.page_tokens);
  const auto at = static_cast<size_t>(position);
  return cells_[static_cast<size_t>(pages[at / page_tokens]) * page_tokens + at % page_tokens];
}

uint64_t FakeModel::read_chain(int slot, std::span<const int32_t> pages, int length) {
  uint64_t chain = kEmptyChain;
  const auto& cache = record_->sequences[slots_[static_cast<size_t>(slot)].sequence].cache;
  for (int position = 0; position < length; ++position) {
    const Cell& read = cell(pages, position);
    EXPECT_EQ(read.slot, slot) << "position " << position << " was overwritten";
    EXPECT_EQ(read.position, position);
    if (position < static_cast<int>(cache.size())) {
      EXPECT_EQ(read.row, cache[static_cast<size_t>(position)]) << "committed row changed";
    }
    chain = extend_chain(chain, read.token);
  }
  return chain;
}

void FakeModel::draft(std::span<const model::Anchor> anchors, int k) {
  EXPECT_FALSE(anchors.empty());
  EXPECT_TRUE(k >= 1 && k <= options_.info.max_proposals) << k;
  FakeCall call{FakeCall::Kind::kDraft, {}};
  for (const model::Anchor& anchor : anchors) {
    Slot& slot = slots_[static_cast<size_t>(anchor.slot)];
    EXPECT_FALSE(slot.step_pending);
    EXPECT_EQ(anchor.position, slot.committed);
    call.parts.push_back({anchor.slot, anchor.position, k, k, {}, {}});
    slot.draft_position = anchor.position;
    slot.draft_anchor = anchor.token;
    slot.proposals.clear();
    uint64_t chain =
        extend_chain(read_chain(anchor.slot, slot.pages, anchor.position), anchor.token);
    for (int j = 0; j < k; ++j) {
      const int32_t right = target_.next(chain, anchor.position + 1 + j, {});
      const bool hit = static_cast<int>(mix(chain + 77) % 100) < options_.draft_hits;
      slot.proposals.push_back(hit ? right : (right + 1) % options_.info.vocab);
      chain = extend_chain(chain, slot.proposals.back());
    }
  }
  record_->calls.push_back(std::move(call));
  if (options_.after_draft) options_.after_draft(static_cast<int>(anchors.size()) * (k + 1));
}

void FakeModel::commit(std::span<const model::Commit> commits) {
  FakeCall call{FakeCall::Kind::kCommit, {}};
  for (const model::Commit& commit : commits) {
    Slot& slot = slots_[static_cast<size_t>(commit.slot)];
    EXPECT_TRUE(slot.step_pending) << "nothing to commit";
    EXPECT_GT(commit.length, slot.committed);
    EXPECT_LE(commit.length, slot.computed);
    call.parts.push_back({commit.slot, commit.length, 0, 0, {}, {}});
    auto& cache = record_->sequences[slot.sequence].cache;
    for (int position = slot.committed; position < commit.length; ++position) {
      cache.push_back(cell(slot.pages, position).row);
    }
    slot.committed = commit.length;
    slot.step_pending = false;
  }
  record_->calls.push_back(std::move(call));
}

}  // namespace lagoon::engine
