#include "model/laguna.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "checkpoint/config.h"
#include "checkpoint/quantization.h"
#include "model/dflash.h"
#include "model/random_source.h"
#include "model/tensor_loader.h"
#include "model/weights.h"

namespace lagoon::model {
namespace {

using checkpoint::DraftConfig;
using checkpoint::ModelDir;
using checkpoint::TargetConfig;

// What the model remembers of a sequence.
struct Slot {
  int32_t committed = 0;  // positions below it stand
  // Rows of the last step: [first_row, first_row + rows) at positions [position, position + rows).
  int32_t position = 0;
  int32_t first_row = 0;
  int32_t rows = 0;
  // Of the last draft: as many tokens, for positions proposals_from + 0, 1 ...
  int32_t proposals_from = -1;
  int32_t proposals = 0;
};

class Laguna : public Model {
 public:
  Laguna(ModelInfo info, int64_t max_length, TargetWeights weights,
         std::unique_ptr<kernels::State> state, std::unique_ptr<DFlash> draft,
         kernels::Backend& backend)
      : info_(std::move(info)),
        max_length_(max_length),
        weights_(std::move(weights)),
        state_(std::move(state)),
        draft_(std::move(draft)),
        backend_(backend),
        slots_(static_cast<size_t>(info_.slots)),
        page_tables_(slots_.size()) {}

  const ModelInfo& info() const override { return info_; }
  void keep_logits(bool keep) override { keep_logits_ = keep; }
  void take_as_computed(int slot, int32_t length) override {
    CHECK(length >= 1 && length < max_length_);
    this->slot(slot) = Slot{.committed = length};
  }
  kernels::ExpertUse expert_use() const override { return backend_.expert_use(*state_); }
  const Error* failure() const override { return backend_.failure(); }
  void drop_draft() override {
    draft_.reset();
    info_.max_proposals = 0;
  }

  std::vector<SegmentResult> step(std::span<const Segment> segments) override;
  void draft(std::span<const Anchor> anchors, int k) override;
  void commit(std::span<const Commit> commits) override;

 private:
  Slot& slot(int index) {
    CHECK(index >= 0 && index < info_.slots);
    return slots_[static_cast<size_t>(index)];
  }
  void check_segment(const Segment& segment) const;
  SegmentResult add_rows(const Segment& segment);
  void ask(const Segment& segment, int32_t first_row, size_t count);
  void forward(const kernels::SampleResults& results);
  void resolve(std::span<const Segment> segments, std::vector<SegmentResult>& results);

  ModelInfo info_;
  int64_t max_length_;
  TargetWeights weights_;
  std::unique_ptr<kernels::State> state_;
  std::unique_ptr<DFlash> draft_;  // null without a draft
  kernels::Backend& backend_;
  bool keep_logits_ = false;
  std::vector<Slot> slots_;
  // The step being built.
  std::vector<kernels::Row> rows_;
  std::vector<kernels::SampleRow> asked_;
  std::vector<std::span<const int32_t>> page_tables_;
};

// The target's forward pass.
void Laguna::forward(const kernels::SampleResults& results) {
  backend_.begin(*state_, {.rows = rows_,
                           .page_tables = page_tables_,
                           .proposals = draft_ ? &draft_->state() : nullptr});
  backend_.embed(*state_, *weights_.embedding);
  for (size_t i = 0; i < weights_.attention.size(); ++i) {
    backend_.attention_half(*state_, weights_.attention[i]);
    backend_.ffn_half(*state_, weights_.ffn[i]);
  }
  if (!asked_.empty()) backend_.head_sample(*state_, weights_.head, asked_, results);
}

void Laguna::check_segment(const Segment& segment) const {
  CHECK(!segment.tokens.empty() && segment.proposals >= 0);
  CHECK(std::ranges::all_of(segment.tokens, [&](int32_t t) { return t >= 0 && t < info_.vocab; }));
  const int64_t end = int64_t{segment.position} + segment.rows();
  CHECK(segment.position >= 0 && end <= max_length_);
  CHECK(static_cast<int64_t>(segment.page_table.size()) * info_.page_tokens >= end);
  CHECK(std::ranges::all_of(segment.page_table,
                            [&](int32_t page) { return page >= 0 && page < info_.pages; }));
}

// Appends the segment's rows to the step; the result has its tokens, proposals as zeros.
SegmentResult Laguna::add_rows(const Segment& segment) {
  check_segment(segment);
  Slot& sequence = slot(segment.slot);
  CHECK(sequence.rows == 0);                     // one segment of a sequence in a step
  if (segment.position == 0) sequence = Slot{};  // a new sequence
  CHECK(segment.position == sequence.committed);
  sequence.position = segment.position;
  sequence.first_row = static_cast<int32_t>(rows_.size());
  sequence.rows = segment.rows();
  page_tables_[static_cast<size_t>(segment.slot)] = segment.page_table;

  SegmentResult result;
  result.tokens.assign(segment.tokens.begin(), segment.tokens.end());
  int32_t position = segment.position;
  for (const int32_t token : segment.tokens) {
    rows_.push_back({.token = token, .position = position++, .sequence = segment.slot});
  }
  if (segment.proposals > 0) {
    CHECK(position == sequence.proposals_from);
    CHECK(segment.proposals <= sequence.proposals);
  }
  for (int j = 0; j < segment.proposals; ++j) {
    rows_.push_back(
        {.token = kernels::Row::proposal(j), .position = position++, .sequence = segment.slot});
    result.tokens.push_back(0);
  }
  CHECK(static_cast<int>(rows_.size()) <= info_.max_rows);

  const int32_t end = sequence.first_row + sequence.rows;
  int32_t first_sampled = end;
  if (segment.sample == Sample::kLast) first_sampled = end - 1;
  if (segment.sample == Sample::kAll) first_sampled = sequence.first_row;
  result.sampled.resize(static_cast<size_t>(end - first_sampled));
  ask(segment, first_sampled, result.sampled.size());
  return result;
}

// Asks for the tokens after `count` rows of the segment.
void Laguna::ask(const Segment& segment, int32_t first_row, size_t count) {
  CHECK(segment.given.size() <= count);
  for (size_t i = 0; i < count; ++i) {
    kernels::SampleRow row = {.row = first_row + static_cast<int32_t>(i),
                              .sampling = segment.sampling};
    if (i < segment.given.size()) {
      row.given = segment.given[i];
      row.logprobs = segment.given_logprobs;
    } else {
      row.rules = segment.rules;
      row.logprobs = segment.logprobs;
    }
    asked_.push_back(row);
  }
}

// Puts the proposals into the results, once the step is over: before that, nobody waits for them.
void Laguna::resolve(std::span<const Segment> segments, std::vector<SegmentResult>& results) {
  if (std::ranges::none_of(segments, [](const Segment& s) { return s.proposals > 0; })) return;
  std::vector<int32_t> computed(rows_.size());
  backend_.read_tokens(*state_, computed);
  auto next = computed.cbegin();
  for (SegmentResult& result : results) {
    const auto end = next + static_cast<int64_t>(result.tokens.size());
    result.tokens.assign(next, end);
    next = end;
  }
}

std::vector<SegmentResult> Laguna::step(std::span<const Segment> segments) {
  if (segments.empty()) return {};
  rows_.clear();
  asked_.clear();
  for (Slot& sequence : slots_) sequence.rows = 0;
  std::ranges::fill(page_tables_, std::span<const int32_t>());
  std::vector<SegmentResult> results;
  results.reserve(segments.size());
  for (const Segment& segment : segments) results.push_back(add_rows(segment));

  const auto vocab = static_cast<size_t>(info_.vocab);
  size_t entries = 0;
  for (const kernels::SampleRow& row : asked_) entries += static_cast<size_t>(row.logprobs + 1);
  std::vector<int32_t> sampled(asked_.size());
  std::vector<float> logits(keep_logits_ ? asked_.size() * vocab : 0);
  std::vector<kernels::TokenLogprob> logprobs(entries);
  forward({.tokens = sampled, .logits = logits, .logprobs = logprobs});
  resolve(segments, results);

  size_t next = 0;
  auto next_entry = logprobs.begin();
  for (SegmentResult& result : results) {
    const size_t count = result.sampled.size();
    std::copy_n(sampled.begin() + static_cast<int64_t>(next), count, result.sampled.begin());
    if (keep_logits_) {
      const auto first = logits.begin() + static_cast<int64_t>(next * vocab);
      result.logits.assign(first, first + static_cast<int64_t>(count * vocab));
    }
    for (size_t i = next; entries > 0 && i < next + count; ++i) {
      const auto end = next_entry + asked_[i].logprobs + 1;
      result.logprobs.emplace_back(next_entry, end);
      next_entry = end;
    }
    next += count;
  }
  return results;
}

void Laguna::draft(std::span<const Anchor> anchors, int k) {
  CHECK(draft_ != nullptr);
  if (anchors.empty()) return;
  for (Slot& sequence : slots_) sequence.proposals_from = -1;
  for (const Anchor& anchor : anchors) {
    Slot& sequence = slot(anchor.slot);
    CHECK(sequence.proposals_from == -1);  // one anchor of a sequence
    CHECK(anchor.token >= 0 && anchor.token < info_.vocab);
    CHECK(anchor.position >= 1 && anchor.position == sequence.committed);
    sequence.proposals_from = anchor.position + 1;
  }
  draft_->propose(anchors, k);
  for (const Anchor& anchor : anchors) slot(anchor.slot).proposals = k;
}

void Laguna::commit(std::span<const Commit> commits) {
  std::vector<kernels::ContextRow> context;
  for (const Commit& commit : commits) {
    Slot& sequence = slot(commit.slot);
    if (commit.length == sequence.committed) continue;
    CHECK(commit.length > sequence.committed);
    CHECK(commit.length <= sequence.position + sequence.rows);
    const int32_t begin =
        draft_ ? draft_->first_useful(sequence.committed, commit.length) : commit.length;
    for (int32_t position = begin; position < commit.length; ++position) {
      context.push_back({.row = sequence.first_row + position - sequence.position,
                         .position = position,
                         .sequence = commit.slot});
    }
    sequence.committed = commit.length;
  }
  if (!context.empty()) draft_->extend_context(*state_, context);
}

// ---- Loading

// `pages` of kPageTokens positions.
kernels::StateShape target_shape(const TargetConfig& config, const DraftConfig* draft,
                                 const LoadOptions& options, int pages) {
  kernels::StateShape shape;
  shape.hidden = config.hidden;
  shape.vocab = config.vocab;
  shape.taps = draft ? static_cast<int>(draft->tap_layers.size()) : 0;
  shape.max_rows = options.max_rows;
  shape.sequences = options.slots;
  // Beyond the row of the newest token, which stands.
  shape.block_rows = draft ? draft->block_size : options.foreign_proposals;
  shape.pages = pages;
  shape.page_tokens = kPageTokens;
  shape.cache_type = options.cache_type;
  for (const checkpoint::LayerConfig& layer : config.layers) {
    (layer.sliding ? shape.sliding : shape.full)
        .push_back({.kv_heads = config.kv_heads,
                    .head_dim = config.head_dim,
                    .window = layer.sliding ? config.window : 0});
  }
  return shape;
}

Result<ModelInfo> make_info(const TargetConfig& config, const DraftConfig* draft,
                            int64_t max_length, const LoadOptions& options) {
  CHECK(options.slots >= 1 && options.max_rows >= 1 && options.pool_tokens >= 0);
  const auto pages_of = [](int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; };
  const int64_t pages = options.pool_tokens > 0 ? pages_of(options.pool_tokens)
                                                : options.slots * pages_of(max_length);
  if (pages > std::numeric_limits<int>::max()) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("a cache of {} pages of {} tokens is too large; ask for fewer "
                             "sequences or a shorter --max-model-len",
                             pages, kPageTokens)};
  }
  ModelInfo info;
  info.vocab = config.vocab;
  info.max_positions = config.max_positions;
  info.max_proposals = draft ? draft->block_size - 1 : options.foreign_proposals;
  info.max_rows = options.max_rows;
  info.slots = options.slots;
  info.pages = static_cast<int>(pages);
  info.page_tokens = kPageTokens;
  info.bos = config.bos;
  info.eos = config.eos;
  info.cache_type = options.cache_type;
  return info;
}

Result<int64_t> resolve_max_length(const TargetConfig& config, const ModelDir& dir,
                                   const LoadOptions& options) {
  CHECK(options.max_length >= 0);
  if (options.max_length > config.max_positions) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("a context of {} tokens is longer than the {} positions the model "
                    "was made for (max_position_embeddings in {})",
                    options.max_length, config.max_positions, dir.file_path("config.json"))};
  }
  return options.max_length > 0 ? options.max_length : config.max_positions;
}

Result<checkpoint::QuantizationScheme> scheme_of(const ModelDir& dir) {
  return checkpoint::QuantizationScheme::parse(dir.config_json(), dir.file_path("config.json"));
}

// The reading, and with it the checking of what a tensor's header does not tell, begins before
// memory is taken. Random weights need no reader.
struct Readers {
  OpenWeights target;
  OpenWeights draft;
};

Result<Readers> open_readers(const ModelDir& target, const TargetConfig& target_config,
                             const ModelDir* draft, const DraftConfig* draft_config,
                             const LoadOptions& options) {
  Readers readers;
  if (options.random) return readers;
  const checkpoint::ReadOptions read{.progress = options.progress};
  LAGOON_ASSIGN(readers.target, open_target_weights(target, target_config, read));
  if (draft_config != nullptr) {
    LAGOON_ASSIGN(readers.draft, open_draft_weights(*draft, *draft_config, read));
  }
  if (options.progress != nullptr) {
    options.progress->set_total(readers.target.bytes + readers.draft.bytes);
  }
  return readers;
}

void enter(const LoadOptions& options, checkpoint::LoadPhase phase) {
  if (options.progress != nullptr) options.progress->enter(phase);
}

Result<TargetWeights> load_target(const ModelDir& dir, const TargetConfig& config,
                                  OpenWeights stored, const LoadOptions& options,
                                  kernels::Backend& backend) {
  enter(options, checkpoint::LoadPhase::kReadingTarget);
  const std::optional<RandomOptions>& random = options.random;
  if (!random) {
    TensorLoader loader(dir, *stored.reader, backend);
    LAGOON_ASSIGN(TargetWeights weights, read_target(loader, config));
    if (options.progress != nullptr) options.progress->set_method(stored.reader->method());
    return weights;
  }
  LAGOON_ASSIGN(const auto scheme, scheme_of(dir));
  LAGOON_ASSIGN(const RandomModel model, random_target_model(config, *random));
  RandomLoader loader(scheme, model, random->seed, backend);
  return read_target(loader, config);
}

Result<DraftWeights> load_draft(const ModelDir& dir, const DraftConfig& config, OpenWeights stored,
                                const LoadOptions& options, kernels::Backend& backend) {
  enter(options, checkpoint::LoadPhase::kReadingDraft);
  const std::optional<RandomOptions>& random = options.random;
  if (!random) {
    TensorLoader loader(dir, *stored.reader, backend);
    return read_draft(loader, config);
  }
  LAGOON_ASSIGN(const auto scheme, scheme_of(dir));
  RandomLoader loader(scheme, random_draft_model(), random->seed, backend);
  return read_draft(loader, config);
}

}  // namespace

kernels::StateShape target_state_shape(const TargetConfig& config, const DraftConfig* draft,
                                       const LoadOptions& options) {
  CHECK(options.pool_tokens > 0);
  return target_shape(config, draft, options,
                      static_cast<int>((options.pool_tokens + kPageTokens - 1) / kPageTokens));
}

Result<void> check_draft(const ModelDir& target, const ModelDir& draft,
                         const LoadOptions& options) {
  const std::string path = draft.file_path("config.json");
  LAGOON_ASSIGN(
      const TargetConfig target_config,
      checkpoint::parse_target_config(target.config_json(), target.file_path("config.json")));
  LAGOON_ASSIGN(const DraftConfig config,
                checkpoint::parse_draft_config(draft.config_json(), path));
  LAGOON_RETURN_IF_ERROR(checkpoint::check_pair(target_config, config));
  if (options.random) return {};
  return check_draft_tensors(draft, config);
}

Result<std::unique_ptr<Model>> load(const ModelDir& target, const ModelDir* draft,
                                    kernels::Backend& backend, const LoadOptions& options) {
  LAGOON_ASSIGN(
      TargetConfig target_config,
      checkpoint::parse_target_config(target.config_json(), target.file_path("config.json")));
  std::optional<DraftConfig> draft_config;
  if (draft != nullptr) {
    LAGOON_RETURN_IF_ERROR(check_draft(target, *draft, options));
    LAGOON_ASSIGN(draft_config, checkpoint::parse_draft_config(draft->config_json(),
                                                               draft->file_path("config.json")));
  }
  const DraftConfig* pair = draft_config ? &*draft_config : nullptr;
  LAGOON_ASSIGN(int64_t max_length, resolve_max_length(target_config, target, options));
  LAGOON_ASSIGN(ModelInfo info, make_info(target_config, pair, max_length, options));

  LAGOON_ASSIGN(Readers readers, open_readers(target, target_config, draft, pair, options));

  // The caches first: where memory is short, that is known before the weights are read.
  LAGOON_ASSIGN(std::unique_ptr<kernels::State> state,
                backend.allocate(target_shape(target_config, pair, options, info.pages)));
  LAGOON_ASSIGN(TargetWeights weights,
                load_target(target, target_config, std::move(readers.target), options, backend));
  if (pair != nullptr) set_taps(weights, pair->tap_layers);
  LAGOON_RETURN_IF_ERROR(backend.reserve(*state, {.embedding = weights.embedding.get(),
                                                  .attention = weights.attention,
                                                  .ffn = weights.ffn,
                                                  .head = &weights.head,
                                                  .positions = max_length}));
  std::unique_ptr<DFlash> dflash;
  if (pair != nullptr) {
    LAGOON_ASSIGN(DraftWeights draft_weights,
                  load_draft(*draft, *pair, std::move(readers.draft), options, backend));
    draft_weights.head.lm_head = weights.lm_head.get();
    LAGOON_ASSIGN(dflash, DFlash::create(*pair, std::move(draft_weights), *weights.embedding,
                                         *state, options.slots, max_length, backend));
  }
  if (options.random_caches) {
    const uint64_t key = options.random ? options.random->seed : 0;
    if (!backend.randomize_caches(*state, key) ||
        (dflash != nullptr && !backend.randomize_caches(dflash->state(), key + 1))) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("the backend {} has no random keys and values: use another", backend.name())};
    }
  }
  enter(options, checkpoint::LoadPhase::kPreparing);
  return std::unique_ptr<Model>(std::make_unique<Laguna>(std::move(info), max_length,
                                                         std::move(weights), std::move(state),
                                                         std::move(dflash), backend));
}

}  // namespace lagoon::model
