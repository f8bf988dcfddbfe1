#include "kernels/toy_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lagoon::kernels {

ToyModel::ToyModel(Backend& backend, uint32_t seed) : backend_(backend), random_(seed) {
  full_rope_ = {.inverse_frequencies = {0.9f, 0.11f, 0.013f}, .attention_factor = 1.25f};
  for (int i = 0; i < kHeadDim / 2; ++i) {
    sliding_rope_.inverse_frequencies.push_back(std::pow(100.0f, -static_cast<float>(i) / 8));
  }
  table_ = make(Format::kBFloat16, kVocab, kHidden, 0, table_packed_);
  lm_head_ = make(Format::kBFloat16, kVocab, kHidden, 0, lm_head_packed_);
  for (auto& [head, norm] : {std::pair(&head_, &final_norm_), {&draft_head_, &draft_final_norm_}}) {
    head->norm_epsilon = kEpsilon;
    head->lm_head = lm_head_packed_.get();
    *norm = make(Format::kBFloat16, 1, kHidden, 1, head->norm);
  }
  attention_.push_back(make_attention(6, 2, 0, 0, Gate::kPerHead, full_rope_, layers_));
  ffn_.push_back(make_ffn(0, Format::kBFloat16, 0, -1));
  attention_.push_back(make_attention(4, 2, 5, 0, Gate::kPerElement, sliding_rope_, layers_));
  ffn_.push_back(make_ffn(6, Format::kNVFP4, 0, 0));
  attention_.push_back(make_attention(6, 3, 3, 1, Gate::kPerHead, sliding_rope_, layers_));
  ffn_.push_back(make_ffn(5, Format::kFP8, 1.5f, -1));
  attention_.push_back(make_attention(3, 1, 0, 1, Gate::kPerHead, full_rope_, layers_));
  ffn_.push_back(make_ffn(4, Format::kBFloat16, 0, 1));

  for (int i = 0; i < 2; ++i) {
    draft_attention_.push_back(
        make_attention(4, 2, 6, i, Gate::kPerHead, sliding_rope_, draft_layers_));
    draft_ffn_.push_back(make_ffn(0, Format::kBFloat16, 0, -1));
  }
  context_.norm_epsilon = kEpsilon;
  for (int i = 0; i < kTaps; ++i) {
    aux_norms_.push_back(make(Format::kBFloat16, 1, kHidden, 1, context_.aux_norms.emplace_back()));
  }
  fc_ = make(Format::kBFloat16, kHidden, int64_t{kTaps} * kHidden, 0, context_.fc);
  hidden_norm_ = make(Format::kBFloat16, 1, kHidden, 1, context_.hidden_norm);
}

// Norm weights lie around 1, matrices keep the size of what they multiply.
TestWeight ToyModel::make(Format format, int64_t rows, int64_t columns, float shift,
                          Weight& packed) {
  const float scale = shift != 0 ? 0.2f : 1 / std::sqrt(static_cast<float>(columns));
  TestWeight weight = random_.weight(format, rows, columns, scale, shift);
  packed = backend_.prepare(weight.host()).value();
  return weight;
}

ToyAttention ToyModel::make_attention(int heads, int kv_heads, int window, int cache, Gate gate,
                                      const Rope& rope, std::vector<AttentionLayer>& layers) {
  ToyAttention a;
  AttentionLayer& layer = layers.emplace_back();
  layer.heads = heads;
  layer.kv_heads = kv_heads;
  layer.head_dim = kHeadDim;
  layer.norm_epsilon = kEpsilon;
  layer.gate = gate;
  layer.cache = cache;
  layer.window = window;
  layer.rope = &rope;
  layer.k_scale = 0.03f;
  layer.v_scale = 0.02f;
  const Format format = Format::kBFloat16;
  const int64_t q = int64_t{heads} * kHeadDim;
  const int64_t kv = int64_t{kv_heads} * kHeadDim;
  a.input_norm = make(format, 1, kHidden, 1, layer.input_norm);
  a.q = make(format, q, kHidden, 0, layer.q);
  a.k = make(format, kv, kHidden, 0, layer.k);
  a.v = make(format, kv, kHidden, 0, layer.v);
  a.g = make(format, gate == Gate::kPerHead ? heads : q, kHidden, 0, layer.g);
  a.q_norm = make(format, 1, kHeadDim, 2, layer.q_norm);
  a.k_norm = make(format, 1, kHeadDim, 2, layer.k_norm);
  a.o = make(format, kHidden, q, 0, layer.o);
  return a;
}

ToyMlp ToyModel::make_mlp(Format format, int inner, SwiGlu& packed) {
  ToyMlp mlp;
  mlp.gate = make(format, inner, kHidden, 0, packed.gate);
  mlp.up = make(format, inner, kHidden, 0, packed.up);
  mlp.down = make(format, kHidden, inner, 0, packed.down);
  return mlp;
}

ToyFfn ToyModel::make_ffn(int experts, Format expert_format, float softcap, int tap) {
  ToyFfn f;
  f.layer.norm_epsilon = kEpsilon;
  f.layer.tap = tap;
  f.post_norm = make(Format::kBFloat16, 1, kHidden, 1, f.layer.post_norm);
  f.mlp = make_mlp(Format::kBFloat16, 40, f.layer.mlp);
  if (experts == 0) return f;
  f.layer.top_k = 3;
  f.layer.routed_scale = 2.5f;
  f.layer.router_softcap = softcap;
  f.router = make(Format::kBFloat16, experts, kHidden, 0, f.layer.router);
  f.router_bias = make(Format::kFloat32, 1, experts, 0, f.layer.router_bias);
  for (int e = 0; e < experts; ++e) {
    f.experts.push_back(make_mlp(expert_format, 32, f.layer.experts.emplace_back()));
  }
  return f;
}

StateShape ToyModel::target_shape(int max_rows, int sequences, int block_rows) const {
  StateShape shape;
  shape.hidden = kHidden;
  shape.vocab = kVocab;
  shape.taps = kTaps;
  shape.max_rows = max_rows;
  shape.sequences = sequences;
  shape.block_rows = block_rows;
  shape.pages = 16;
  shape.page_tokens = 16;
  shape.full = {{2, kHeadDim, 0}, {1, kHeadDim, 0}};
  shape.sliding = {{2, kHeadDim, 5}, {3, kHeadDim, 3}};
  return shape;
}

StateShape ToyModel::draft_shape(int max_rows, int sequences, int block_rows) const {
  StateShape shape;
  shape.hidden = kHidden;
  shape.vocab = kVocab;
  shape.max_rows = max_rows;
  shape.sequences = sequences;
  shape.block_rows = block_rows;
  shape.sliding = {{2, kHeadDim, 6}, {2, kHeadDim, 6}};
  return shape;
}

namespace {

Vector matrix_times(const TestWeight& weight, const Vector& x) {
  Vector y(weight.rows, 0);
  for (int64_t n = 0; n < weight.rows; ++n) {
    for (int64_t k = 0; k < weight.columns; ++k) y[n] += weight.at(n, k) * x[k];
  }
  return y;
}

double fp8_of(double x, float scale) {
  const uint8_t code = numeric::float_to_e4m3(static_cast<float>(x) / scale);
  return double{numeric::e4m3_to_float(code)} * scale;
}

double plain_softplus(double x) {
  return std::log1p(std::exp(x));
}

}  // namespace

PlainModel::PlainModel(const ToyModel& toy, Activations activations, CacheType cache_type)
    : toy_(toy),
      activations_(activations),
      cache_type_(cache_type),
      caches_(toy.attention_.size()),
      taps_(ToyModel::kTaps) {}

double PlainModel::round(double x) const {
  if (activations_ == Activations::kFloat32) return x;
  return numeric::round_to_bfloat16(static_cast<float>(x));
}

Vector PlainModel::norm(const Vector& x, const TestWeight& weight) const {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + ToyModel::kEpsilon);
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = round(x[i] / root * weight.values[i]);
  return out;
}

Vector PlainModel::norm_and_rotate(const Vector& heads, const TestWeight& weight, const Rope& rope,
                                   int32_t position) const {
  const size_t dim = weight.values.size();
  const size_t pairs = rope.inverse_frequencies.size();
  Vector out = heads;
  for (size_t first = 0; first < heads.size(); first += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += heads[first + i] * heads[first + i];
    const double root = std::sqrt(squares / static_cast<double>(dim) + ToyModel::kEpsilon);
    for (size_t i = 0; i < dim; ++i) out[first + i] = heads[first + i] / root * weight.values[i];
    for (size_t j = 0; j < pairs; ++j) {
      const double angle = double{rope.inverse_frequencies[j]} * position;
      const double c = std::cos(angle) * rope.attention_factor;
      const double s = std::sin(angle) * rope.attention_factor;
      const double a = out[first + j];
      const double b = out[first + j + pairs];
      out[first + j] = a * c - b * s;
      out[first + j + pairs] = a * s + b * c;
    }
  }
  for (double& value : out) value = round(value);
  return out;
}

void PlainModel::append(const AttentionLayer& layer, const ToyAttention& weights,
                        const Vector& normed, int32_t position, KeyValue& cache) const {
  cache.keys.push_back(
      norm_and_rotate(matrix_times(weights.k, normed), weights.k_norm, *layer.rope, position));
  cache.values.push_back(matrix_times(weights.v, normed));
  for (double& value : cache.values.back()) value = round(value);
  if (cache_type_ == CacheType::kFP8) {
    for (double& key : cache.keys.back()) key = fp8_of(key, layer.k_scale);
    for (double& value : cache.values.back()) value = fp8_of(value, layer.v_scale);
  }
}

void PlainModel::attention_half(const AttentionLayer& layer, const ToyAttention& weights,
                                int32_t position, KeyValue& cache, Vector& x) const {
  const int dim = layer.head_dim;
  const Vector normed = norm(x, weights.input_norm);
  const Vector q =
      norm_and_rotate(matrix_times(weights.q, normed), weights.q_norm, *layer.rope, position);
  const Vector gate = matrix_times(weights.g, normed);
  append(layer, weights, normed, position, cache);
  const int first = layer.window == 0 ? 0 : std::max(0, position - layer.window + 1);
  Vector attended(q.size(), 0);
  for (int h = 0; h < layer.heads; ++h) {
    const int kv = h / (layer.heads / layer.kv_heads) * dim;
    Vector exponentials;
    double sum = 0;
    for (int p = first; p <= position; ++p) {
      double score = 0;
      for (int i = 0; i < dim; ++i) score += q[h * dim + i] * cache.keys[p][kv + i];
      exponentials.push_back(std::exp(score / std::sqrt(dim)));
      sum += exponentials.back();
    }
    for (int i = 0; i < dim; ++i) {
      double& out = attended[h * dim + i];
      for (int p = first; p <= position; ++p) {
        out += exponentials[p - first] / sum * cache.values[p][kv + i];
      }
      out = round(out * plain_softplus(gate[layer.gate == Gate::kPerHead ? h : h * dim + i]));
    }
  }
  const Vector out = matrix_times(weights.o, attended);
  for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
}

Vector PlainModel::mlp(const ToyMlp& weights, const Vector& x) const {
  Vector inner = matrix_times(weights.gate, x);
  const Vector up = matrix_times(weights.up, x);
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i] = round(inner[i] / (1 + std::exp(-inner[i])) * up[i]);
  }
  return matrix_times(weights.down, inner);
}

void PlainModel::ffn_half(const ToyFfn& layer, Vector& x) const {
  const Vector normed = norm(x, layer.post_norm);
  Vector out = mlp(layer.mlp, normed);
  if (!layer.experts.empty()) {
    const double cap = layer.layer.router_softcap;
    std::vector<std::pair<double, size_t>> ranked;  // -(score + bias), expert
    Vector scores;
    for (const double logit : matrix_times(layer.router, normed)) {
      const double capped = cap > 0 ? cap * std::tanh(logit / cap) : logit;
      scores.push_back(1 / (1 + std::exp(-capped)));
      const size_t e = ranked.size();
      ranked.emplace_back(-(scores[e] + layer.router_bias.values[e]), e);
    }
    std::sort(ranked.begin(), ranked.end());
    double sum = 0;
    for (int j = 0; j < layer.layer.top_k; ++j) sum += scores[ranked[j].second];
    for (int j = 0; j < layer.layer.top_k; ++j) {
      const size_t e = ranked[j].second;
      const Vector expert = mlp(layer.experts[e], normed);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] += layer.layer.routed_scale * scores[e] / sum * expert[i];
      }
    }
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
}

Vector PlainModel::step(int32_t token) {
  const int32_t position = length();
  const auto row = toy_.table_.values.begin() + int64_t{token} * ToyModel::kHidden;
  Vector x(row, row + ToyModel::kHidden);
  for (size_t l = 0; l < toy_.attention_.size(); ++l) {
    attention_half(toy_.layers_[l], toy_.attention_[l], position, caches_[l], x);
    ffn_half(toy_.ffn_[l], x);
    if (toy_.ffn_[l].layer.tap >= 0) taps_[toy_.ffn_[l].layer.tap].push_back(x);
  }
  return matrix_times(toy_.lm_head_, norm(x, toy_.final_norm_));
}

std::vector<Vector> PlainModel::draft(std::span<const int32_t> block) const {
  const int32_t context = length();
  std::vector<KeyValue> caches(toy_.draft_attention_.size());
  for (int32_t p = 0; p < context; ++p) {
    Vector joined;
    for (int t = 0; t < ToyModel::kTaps; ++t) {
      const Vector normed = norm(taps_[t][p], toy_.aux_norms_[t]);
      joined.insert(joined.end(), normed.begin(), normed.end());
    }
    const Vector c = norm(matrix_times(toy_.fc_, joined), toy_.hidden_norm_);
    for (size_t l = 0; l < caches.size(); ++l) {
      const ToyAttention& weights = toy_.draft_attention_[l];
      append(toy_.draft_layers_[l], weights, norm(c, weights.input_norm), p, caches[l]);
    }
  }
  std::vector<Vector> logits;
  for (size_t i = 0; i < block.size(); ++i) {
    const auto row = toy_.table_.values.begin() + int64_t{block[i]} * ToyModel::kHidden;
    Vector x(row, row + ToyModel::kHidden);
    for (size_t l = 0; l < caches.size(); ++l) {
      attention_half(toy_.draft_layers_[l], toy_.draft_attention_[l],
                     context + static_cast<int32_t>(i), caches[l], x);
      ffn_half(toy_.draft_ffn_[l], x);
    }
    logits.push_back(matrix_times(toy_.lm_head_, norm(x, toy_.draft_final_norm_)));
  }
  return logits;
}

}  // namespace lagoon::kernels
