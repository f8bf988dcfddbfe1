// A small Laguna model with random weights for the tests, and what it computes in double precision
// by the plainest means: one position after the other, every key and value kept for ever.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/test_weights.h"

namespace lagoon::kernels {

struct ToyMlp {
  TestWeight gate, up, down;
};

struct ToyAttention {
  TestWeight input_norm, q, k, v, g, q_norm, k_norm, o;
};

struct ToyFfn {
  FfnLayer layer;
  TestWeight post_norm, router, router_bias;
  ToyMlp mlp;
  std::vector<ToyMlp> experts;
};

// Four layers: full and dense; sliding, gate by element, NVFP4 experts, tap 0; sliding with another
// window, softcap, FP8 experts; full with other heads, BF16 experts, tap 1. A draft of two sliding
// layers.
class ToyModel {
 public:
  static constexpr int kHidden = 48;
  static constexpr int kVocab = 37;
  static constexpr int kHeadDim = 16;
  static constexpr int kTaps = 2;
  static constexpr float kEpsilon = 1e-5f;

  // Prepares the weights on `backend`. The same seed gives the same weights on any.
  ToyModel(Backend& backend, uint32_t seed);
  ToyModel(const ToyModel&) = delete;
  ToyModel& operator=(const ToyModel&) = delete;

  StateShape target_shape(int max_rows, int sequences, int block_rows) const;
  StateShape draft_shape(int max_rows, int sequences, int block_rows) const;

  const PackedWeight& table() const { return *table_packed_; }
  const Head& head() const { return head_; }
  const Head& draft_head() const { return draft_head_; }
  const DraftContext& draft_context() const { return context_; }
  std::span<const AttentionLayer> attention() const { return layers_; }
  std::span<const ToyFfn> ffn() const { return ffn_; }
  std::span<const AttentionLayer> draft_attention() const { return draft_layers_; }
  std::span<const ToyFfn> draft_ffn() const { return draft_ffn_; }

 private:
  friend class PlainModel;
  ToyAttention make_attention(int heads, int kv_heads, int window, int cache, Gate gate,
                              const Rope& rope, std::vector<AttentionLayer>& layers);
  ToyFfn make_ffn(int experts, Format expert_format, float softcap, int tap);
  ToyMlp make_mlp(Format format, int inner, SwiGlu& packed);
  TestWeight make(Format format, int64_t rows, int64_t columns, float shift, Weight& packed);

  Backend& backend_;
  TestRandom random_;
  Rope full_rope_, sliding_rope_;
  TestWeight table_, lm_head_, final_norm_, draft_final_norm_;
  Weight table_packed_, lm_head_packed_;
  Head head_, draft_head_;
  std::vector<ToyAttention> attention_, draft_attention_;
  std::vector<ToyFfn> ffn_, draft_ffn_;
  std::vector<AttentionLayer> layers_, draft_layers_;  // of attention_ and draft_attention_
  DraftContext context_;
  std::vector<TestWeight> aux_norms_;
  TestWeight fc_, hidden_norm_;
};

using Vector = std::vector<double>;

// One sequence. With kBFloat16 values are rounded where kernels/ops.h says.
class PlainModel {
 public:
  PlainModel(const ToyModel& toy, Activations activations,
             CacheType cache_type = CacheType::kActivations);

  // Computes a token at the next position and returns its logits.
  Vector step(int32_t token);
  // Tap `tap` of position `position`.
  const Vector& tap(int tap, int32_t position) const { return taps_[tap][position]; }
  int32_t length() const { return static_cast<int32_t>(taps_[0].size()); }

  // The logits of each token of a draft's block at positions length(), length() + 1, ... with the
  // context of all positions below.
  std::vector<Vector> draft(std::span<const int32_t> block) const;

 private:
  struct KeyValue {
    std::vector<Vector> keys, values;  // by position
  };
  double round(double x) const;
  Vector norm(const Vector& x, const TestWeight& weight) const;
  Vector norm_and_rotate(const Vector& heads, const TestWeight& weight, const Rope& rope,
                         int32_t position) const;
  void append(const AttentionLayer& layer, const ToyAttention& weights, const Vector& normed,
              int32_t position, KeyValue& cache) const;
  void attention_half(const AttentionLayer& layer, const ToyAttention& weights, int32_t position,
                      KeyValue& cache, Vector& x) const;
  Vector mlp(const ToyMlp& weights, const Vector& x) const;
  void ffn_half(const ToyFfn& layer, Vector& x) const;

  const ToyModel& toy_;
  Activations activations_;
  CacheType cache_type_;
  std::vector<KeyValue> caches_;           // by layer
  std::vector<std::vector<Vector>> taps_;  // by tap and position
};

}  // namespace lagoon::kernels
