// For tests: a backend that shows what a model does not let out.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::model::testing {

// Another backend; taps of the target and logits of its draft can be read.
class WatchedBackend : public kernels::Backend {
 public:
  explicit WatchedBackend(std::unique_ptr<kernels::Backend> backend)
      : backend_(std::move(backend)) {}

  // [vocab] of the first proposal of the last draft.
  const std::vector<float>& draft_logits() const { return draft_logits_; }
  // [taps, hidden] at a row of the last step.
  std::vector<float> taps(int row) const {
    const auto hidden = static_cast<size_t>(target_shape_.hidden);
    std::vector<float> values(static_cast<size_t>(target_shape_.taps) * hidden);
    for (int tap = 0; tap < target_shape_.taps; ++tap) {
      backend_->read_tap(*target_, tap, row,
                         std::span(values).subspan(static_cast<size_t>(tap) * hidden, hidden));
    }
    return values;
  }

  // From now on matrices of that format are not taken.
  void refuse(kernels::Format format) { refused_ = format; }

  std::string_view name() const override { return backend_->name(); }
  Result<kernels::Weight> prepare(const kernels::HostMatrix& matrix) override {
    if (refused_ == matrix.format && matrix.rows > 1) {
      return Error{ErrorCode::kUnsupported, "it cannot be used here"};
    }
    return backend_->prepare(matrix);
  }
  Result<std::unique_ptr<kernels::State>> allocate(const kernels::StateShape& shape) override {
    auto state = backend_->allocate(shape);
    if (state && shape.taps > 0) {
      target_ = state->get();
      target_shape_ = shape;
    }
    return state;
  }
  Result<void> reserve(kernels::State& state, const kernels::Layers& layers) override {
    return backend_->reserve(state, layers);
  }
  bool randomize_caches(kernels::State& state, uint64_t key) override {
    return backend_->randomize_caches(state, key);
  }
  void begin(kernels::State& state, const kernels::Batch& batch) override {
    backend_->begin(state, batch);
  }
  void embed(kernels::State& state, const kernels::PackedWeight& table) override {
    backend_->embed(state, table);
  }
  void attention_half(kernels::State& state, const kernels::AttentionLayer& layer) override {
    backend_->attention_half(state, layer);
  }
  void ffn_half(kernels::State& state, const kernels::FfnLayer& layer) override {
    backend_->ffn_half(state, layer);
  }
  void head_sample(kernels::State& state, const kernels::Head& head,
                   std::span<const kernels::SampleRow> asked,
                   const kernels::SampleResults& results) override {
    if (&state == target_) {
      backend_->head_sample(state, head, asked, results);
      return;
    }
    const auto vocab = static_cast<size_t>(target_shape_.vocab);
    draft_logits_.resize(asked.size() * vocab);
    backend_->head_sample(state, head, asked, {.tokens = results.tokens, .logits = draft_logits_});
    draft_logits_.resize(vocab);
  }
  void draft_context(kernels::State& draft, const kernels::State& target,
                     const kernels::DraftContext& context,
                     std::span<const kernels::AttentionLayer> layers,
                     std::span<const kernels::ContextRow> rows) override {
    backend_->draft_context(draft, target, context, layers, rows);
  }
  void read_tokens(const kernels::State& state, std::span<int32_t> out) const override {
    backend_->read_tokens(state, out);
  }
  kernels::ExpertUse expert_use(const kernels::State& state) const override {
    return backend_->expert_use(state);
  }
  const Error* failure() const override { return backend_->failure(); }
  void read_tap(const kernels::State& state, int tap, int row,
                std::span<float> out) const override {
    backend_->read_tap(state, tap, row, out);
  }

 private:
  std::unique_ptr<kernels::Backend> backend_;
  std::optional<kernels::Format> refused_;
  const kernels::State* target_ = nullptr;
  kernels::StateShape target_shape_;
  std::vector<float> draft_logits_;
};

}  // namespace lagoon::model::testing
