#include "model/dflash.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/laguna.h"

namespace lagoon::model {

DFlash::DFlash(const checkpoint::DraftConfig& config, DraftWeights weights,
               const kernels::PackedWeight& embedding, kernels::Backend& backend)
    : block_size_(config.block_size),
      window_(config.window),
      mask_token_(config.mask_token),
      weights_(std::move(weights)),
      embedding_(embedding),
      backend_(backend) {}

kernels::StateShape draft_state_shape(const checkpoint::DraftConfig& config, int slots) {
  kernels::StateShape shape;
  shape.hidden = config.hidden;
  shape.vocab = config.vocab;
  shape.max_rows = slots * config.block_size;
  shape.sequences = slots;
  shape.block_rows = config.block_size;
  shape.sliding.assign(
      static_cast<size_t>(config.layers),
      {.kv_heads = config.kv_heads, .head_dim = config.head_dim, .window = config.window});
  return shape;
}

Result<std::unique_ptr<DFlash>> DFlash::create(const checkpoint::DraftConfig& config,
                                               DraftWeights weights,
                                               const kernels::PackedWeight& embedding,
                                               const kernels::State& target, int slots,
                                               int64_t max_length, kernels::Backend& backend) {
  // parse_draft_config() refuses others: attention here is causal, and pages are none.
  CHECK(config.causal && config.window > 0);
  std::unique_ptr<DFlash> draft(new DFlash(config, std::move(weights), embedding, backend));
  LAGOON_ASSIGN(draft->state_, backend.allocate(draft_state_shape(config, slots)));
  LAGOON_RETURN_IF_ERROR(
      backend.reserve(*draft->state_, {.embedding = &embedding,
                                       .attention = draft->weights_.attention,
                                       .ffn = draft->weights_.ffn,
                                       .head = &draft->weights_.head,
                                       .positions = max_length + config.block_size,
                                       .context = &draft->weights_.context,
                                       .target = &target}));
  draft->no_pages_.resize(static_cast<size_t>(slots));
  return draft;
}

void DFlash::propose(std::span<const Anchor> anchors, int k) {
  CHECK(k >= 1 && k <= max_proposals());
  rows_.clear();
  asked_.clear();
  for (const Anchor& anchor : anchors) {
    rows_.push_back({.token = anchor.token, .position = anchor.position, .sequence = anchor.slot});
    // Row j stands at the position of proposal j and predicts the token there, not the next one.
    for (int j = 1; j <= k; ++j) {
      asked_.push_back({.row = static_cast<int32_t>(rows_.size()), .sampling = {}});
      rows_.push_back(
          {.token = mask_token_, .position = anchor.position + j, .sequence = anchor.slot});
    }
  }

  backend_.begin(*state_, {.rows = rows_, .page_tables = no_pages_, .proposals = nullptr});
  backend_.embed(*state_, embedding_);
  for (size_t i = 0; i < weights_.attention.size(); ++i) {
    backend_.attention_half(*state_, weights_.attention[i]);
    backend_.ffn_half(*state_, weights_.ffn[i]);
  }
  backend_.head_sample(*state_, weights_.head, asked_, {.tokens = {}});
}

int32_t DFlash::first_useful(int32_t begin, int32_t end) const {
  return std::max(begin, end - (window_ - 1));
}

void DFlash::extend_context(const kernels::State& target,
                            std::span<const kernels::ContextRow> rows) {
  backend_.draft_context(*state_, target, weights_.context, weights_.attention, rows);
}

}  // namespace lagoon::model
