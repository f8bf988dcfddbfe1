// For tests: one layer of some shape, with quick random weights, on a backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/ops.h"
#include "kernels/test_weights.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {

// Random bytes of a matrix, quickly: values of about `scale`.
inline TestWeight quick_weight(Format format, int64_t rows, int64_t columns, float scale,
                               uint64_t seed) {
  TestWeight w;
  w.format = format;
  w.rows = rows;
  w.columns = columns;
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  const auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  };
  const int64_t n = rows * columns;
  const auto uniform = [&] { return (static_cast<float>(next() >> 8) * 0x1p-23f - 1) * scale; };
  switch (format) {
    case Format::kBFloat16:
      w.bytes.resize(static_cast<size_t>(n * 2));
      for (int64_t i = 0; i < n; ++i) {
        const uint16_t bits = numeric::to_bfloat16(uniform()).bits;
        std::memcpy(w.bytes.data() + i * 2, &bits, 2);
      }
      break;
    case Format::kFP8: {
      w.bytes.resize(static_cast<size_t>(n));
      for (auto& byte : w.bytes) byte = std::byte(numeric::float_to_e4m3(uniform() / scale));
      std::vector<float> scales(static_cast<size_t>((rows + 127) / 128 * ((columns + 127) / 128)));
      for (float& s : scales) s = scale * (0.5f + static_cast<float>(next() % 100) / 100);
      w.scales.resize(scales.size() * 4);
      std::memcpy(w.scales.data(), scales.data(), w.scales.size());
      break;
    }
    case Format::kNVFP4:
      w.global_scale = 2 / scale;
      w.bytes.resize(static_cast<size_t>(n / 2));
      for (auto& byte : w.bytes) byte = std::byte(next() & 0xff);
      w.scales.resize(static_cast<size_t>(n / 16));
      for (auto& s : w.scales) s = std::byte(0x28 + next() % 16);
      break;
    case Format::kFloat32:
      w.bytes.resize(static_cast<size_t>(n * 4));
      for (int64_t i = 0; i < n; ++i) {
        const float value = uniform();
        std::memcpy(w.bytes.data() + i * 4, &value, 4);
      }
      break;
  }
  return w;
}

struct Shape {
  const char* name;
  int hidden, heads, kv_heads, head_dim, window;
  Gate gate;
  int inner, experts, top_k, expert_inner;
  Format format;  // of the experts
};

// A layer with its weights on one backend. The same seed gives the same on any.
struct Layer {
  Layer(Backend& backend, const Shape& shape) {
    uint64_t seed = 1;
    const auto make = [&](Format format, int64_t rows, int64_t columns) {
      return backend
          .prepare(quick_weight(format, rows, columns,
                                1.7f / std::sqrt(static_cast<float>(columns)), ++seed)
                       .host())
          .value();
    };
    const auto norm = [&](int64_t columns) {
      return backend.prepare(quick_weight(Format::kBFloat16, 1, columns, 1, ++seed).host()).value();
    };
    const Format bf16 = Format::kBFloat16;
    for (int i = 0; i < shape.head_dim / 2; ++i) {
      rope.inverse_frequencies.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(shape.head_dim)));
    }
    const int64_t q = int64_t{shape.heads} * shape.head_dim;
    const int64_t kv = int64_t{shape.kv_heads} * shape.head_dim;
    attention.heads = shape.heads;
    attention.kv_heads = shape.kv_heads;
    attention.head_dim = shape.head_dim;
    attention.norm_epsilon = 1e-6f;
    attention.gate = shape.gate;
    attention.window = shape.window;
    attention.rope = &rope;
    attention.k_scale = 0.02f;
    attention.v_scale = 0.03f;
    attention.input_norm = norm(shape.hidden);
    attention.q = make(bf16, q, shape.hidden);
    attention.k = make(bf16, kv, shape.hidden);
    attention.v = make(bf16, kv, shape.hidden);
    attention.g = make(bf16, shape.gate == Gate::kPerHead ? shape.heads : q, shape.hidden);
    attention.q_norm = norm(shape.head_dim);
    attention.k_norm = norm(shape.head_dim);
    attention.o = make(bf16, shape.hidden, q);
    ffn.norm_epsilon = 1e-6f;
    ffn.post_norm = norm(shape.hidden);
    const auto mlp = [&](Format format, int64_t inner) {
      return SwiGlu{make(format, inner, shape.hidden), make(format, inner, shape.hidden),
                    make(format, shape.hidden, inner)};
    };
    ffn.mlp = mlp(bf16, shape.inner);
    if (shape.experts > 0) {
      ffn.top_k = shape.top_k;
      ffn.routed_scale = 2.5f;
      ffn.router = make(bf16, shape.experts, shape.hidden);
      ffn.router_bias =
          backend.prepare(quick_weight(Format::kFloat32, 1, shape.experts, 0.1f, ++seed).host())
              .value();
      for (int e = 0; e < shape.experts; ++e) {
        ffn.experts.push_back(mlp(shape.format, shape.expert_inner));
      }
    }
    table = make(bf16, kVocab, shape.hidden);
    lm_head = make(bf16, kVocab, shape.hidden);
    head.norm = norm(shape.hidden);
    head.norm_epsilon = 1e-6f;
    head.lm_head = lm_head.get();
  }
  static constexpr int kVocab = 500;
  Rope rope;
  AttentionLayer attention;
  FfnLayer ffn;
  Weight table, lm_head;
  Head head;
};

// The layer on a backend with a state: what it makes of tokens.
class Runner {
 public:
  Runner(std::unique_ptr<Backend> backend, const Shape& shape, CacheType cache, int positions,
         int max_rows)
      : backend_(std::move(backend)), layer_(*backend_, shape) {
    StateShape state;
    state.hidden = shape.hidden;
    state.vocab = Layer::kVocab;
    state.max_rows = max_rows;
    state.sequences = 1;
    state.page_tokens = kPageTokens;
    state.pages = positions / kPageTokens + 1;
    state.cache_type = cache;
    (shape.window > 0 ? state.sliding : state.full)
        .push_back({shape.kv_heads, shape.head_dim, shape.window});
    state_ = backend_->allocate(state).value();
    for (int i = 0; i < state.pages; ++i) pages_.push_back(state.pages - 1 - i);
  }
  // What rows [first, first + count) give after some halves: [count, kVocab] logits.
  enum Halves { kNone, kAttention, kFfn, kBoth };
  std::vector<float> run(int first, int count, bool keep = true, Halves halves = kBoth) {
    std::vector<Row> rows;
    for (int i = first; i < first + count; ++i) {
      rows.push_back({(i * 37 + i / 7) % Layer::kVocab, i, 0});
    }
    const std::vector<std::span<const int32_t>> tables = {pages_};
    backend_->begin(*state_, {rows, tables, nullptr});
    backend_->embed(*state_, *layer_.table);
    if (halves == kAttention || halves == kBoth) {
      backend_->attention_half(*state_, layer_.attention);
    }
    if (halves == kFfn || halves == kBoth) backend_->ffn_half(*state_, layer_.ffn);
    if (!keep) return {};
    std::vector<float> logits(static_cast<size_t>(count) * Layer::kVocab);
    std::vector<SampleRow> asked(static_cast<size_t>(count));
    for (int r = 0; r < count; ++r) asked[r].row = r;
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    backend_->head_sample(*state_, layer_.head, asked, {.tokens = tokens, .logits = logits});
    return logits;
  }
  ExpertUse expert_use() const { return backend_->expert_use(*state_); }

  // Memory for steps up to the last position that there are pages for.
  Result<void> reserve() {
    return backend_->reserve(*state_,
                             {.embedding = layer_.table.get(),
                              .attention = std::span(&layer_.attention, 1),
                              .ffn = std::span(&layer_.ffn, 1),
                              .head = &layer_.head,
                              .positions = static_cast<int64_t>(pages_.size()) * kPageTokens});
  }

  static constexpr int kPageTokens = 64;
  Backend& backend() { return *backend_; }
  State& state() { return *state_; }
  const AttentionLayer& attention() const { return layer_.attention; }
  const Head& head() const { return layer_.head; }
  std::span<const int32_t> pages() const { return pages_; }

 private:
  std::unique_ptr<Backend> backend_;
  Layer layer_;
  std::unique_ptr<State> state_;
  std::vector<int32_t> pages_;
};

inline std::unique_ptr<Backend> gpu() {
  return cuda::make_backend(Activations::kBFloat16).value();
}

inline double relative_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

inline constexpr Shape kPairFull = {"pair full",    256,  4, 2, 128, 0,
                                    Gate::kPerHead, 1024, 0, 0, 0,   Format::kBFloat16};
inline constexpr Shape kPairSliding = {"pair sliding", 256, 6,  2, 128, 128,
                                       Gate::kPerHead, 128, 32, 4, 128, Format::kNVFP4};
inline constexpr Shape kFull = {"full-size full", 3072,  48, 8, 128, 0,
                                Gate::kPerHead,   12288, 0,  0, 0,   Format::kBFloat16};
inline constexpr Shape kSliding = {"full-size sliding", 3072, 72, 8,  128,  512,
                                   Gate::kPerHead,      1024, 24, 10, 1024, Format::kNVFP4};
inline constexpr Shape kElements = {"gate by element, FP8 experts",
                                    192,
                                    3,
                                    3,
                                    64,
                                    40,
                                    Gate::kPerElement,
                                    200,
                                    40,
                                    6,
                                    96,
                                    Format::kFP8};
inline constexpr Shape kWide = {"256 experts of BF16", 256, 9,   1,  128, 512,
                                Gate::kPerElement,     128, 256, 10, 64,  Format::kBFloat16};

// A group of one head with a gate by element, which no released model has.
inline constexpr Shape kAlone = {"groups of one",   256, 2,  2, 128, 0,
                                 Gate::kPerElement, 128, 16, 3, 64,  Format::kFP8};
// As in the full-size model, with all of its experts.
inline constexpr Shape kSparse = {"full-size sparse", 3072, 72,  8,  128,  512,
                                  Gate::kPerHead,     1024, 256, 10, 1024, Format::kNVFP4};

inline std::span<const float> row_of(const std::vector<float>& logits, int row) {
  return std::span(logits).subspan(static_cast<size_t>(row) * Layer::kVocab, Layer::kVocab);
}

}  // namespace lagoon::kernels::cuda
