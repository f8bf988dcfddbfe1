// Steps of the full-size Laguna-S-2.1 on a GPU, by the backend alone: the first layers of the model
// and its head with random weights, each matrix in memory of its own, from `begin` to the drawn
// tokens. For each number of rows the median time of a step, the bytes that it has to read, and
// their rate as a fraction of a copy on the device.
// usage: layers_bench [LAYERS] [CONTEXT] [STEPS]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/layer_rig.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kHidden = 3072, kVocab = 100352, kHeadDim = 128, kKeyHeads = 8, kWindow = 512;
constexpr int kDense = 12288, kInner = 1024, kExperts = 256, kTopK = 10;
constexpr int kPageTokens = 64;

// Weights of one shape are the same numbers, packed anew each time.
class Weights {
 public:
  explicit Weights(Backend& backend) : backend_(backend) {}
  // Values of about `scale`; 0: such that a product keeps the size of what it reads.
  Weight make(Format format, int64_t rows, int64_t columns, float scale = 0) {
    bytes_ += format == Format::kNVFP4     ? rows * columns * 9 / 16
              : format == Format::kFloat32 ? rows * columns * 4
                                           : rows * columns * 2;
    for (const TestWeight& known : known_) {
      if (known.format == format && known.rows == rows && known.columns == columns) {
        return backend_.prepare(known.host()).value();
      }
    }
    if (scale == 0) scale = 1.7f / std::sqrt(static_cast<float>(columns));
    known_.push_back(quick_weight(format, rows, columns, scale, known_.size() + 1));
    return backend_.prepare(known_.back().host()).value();
  }
  int64_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  std::vector<TestWeight> known_;
  int64_t bytes_ = 0;
};

struct Model {
  Rope rope;
  std::vector<AttentionLayer> attention;
  std::vector<FfnLayer> ffn;
  Weight table, lm_head;
  Head head;
  int64_t weight_bytes = 0;
  int64_t step_bytes = 0;    // that every step reads
  int64_t expert_bytes = 0;  // of an expert

  Model(Backend& backend, int layers) {
    Weights weights(backend);
    const Format bf16 = Format::kBFloat16;
    for (int i = 0; i < kHeadDim / 2; ++i) {
      rope.inverse_frequencies.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / kHeadDim));
    }
    // Large embeddings keep rows apart, so that they choose experts of their own.
    lm_head = weights.make(bf16, kVocab, kHidden, 4);
    step_bytes = weights.bytes();
    table = weights.make(bf16, kVocab, kHidden);
    head.norm = weights.make(bf16, 1, kHidden, 1);
    head.norm_epsilon = 1e-6f;
    head.lm_head = lm_head.get();
    constexpr float kSmall = 1e-3f;  // so are what halves add to them
    const auto mlp = [&](Format format, int inner) {
      return SwiGlu{weights.make(format, inner, kHidden), weights.make(format, inner, kHidden),
                    weights.make(format, kHidden, inner, kSmall)};
    };
    for (int i = 0; i < layers; ++i) {
      const int64_t before = weights.bytes();
      AttentionLayer a;
      const bool full = i % 4 == 0;
      a.heads = full ? 48 : 72;
      a.kv_heads = kKeyHeads;
      a.head_dim = kHeadDim;
      a.norm_epsilon = 1e-6f;
      a.window = full ? 0 : kWindow;
      a.cache = full ? i / 4 : i - i / 4 - 1;
      a.rope = &rope;
      a.k_scale = 0.02f;
      a.v_scale = 0.03f;
      a.input_norm = weights.make(bf16, 1, kHidden, 1);
      a.q = weights.make(bf16, int64_t{a.heads} * kHeadDim, kHidden);
      a.k = weights.make(bf16, int64_t{kKeyHeads} * kHeadDim, kHidden);
      a.v = weights.make(bf16, int64_t{kKeyHeads} * kHeadDim, kHidden);
      a.g = weights.make(bf16, a.heads, kHidden);
      a.q_norm = weights.make(bf16, 1, kHeadDim, 1);
      a.k_norm = weights.make(bf16, 1, kHeadDim, 1);
      a.o = weights.make(bf16, kHidden, int64_t{a.heads} * kHeadDim, kSmall);
      attention.push_back(std::move(a));
      FfnLayer f;
      f.norm_epsilon = 1e-6f;
      f.post_norm = weights.make(bf16, 1, kHidden, 1);
      f.mlp = mlp(bf16, i == 0 ? kDense : kInner);
      if (i > 0) {
        f.top_k = kTopK;
        f.routed_scale = 2.5f;
        f.router = weights.make(bf16, kExperts, kHidden);
        f.router_bias = weights.make(Format::kFloat32, 1, kExperts);
      }
      step_bytes += weights.bytes() - before;
      if (i > 0) {
        const int64_t before_experts = weights.bytes();
        for (int e = 0; e < kExperts; ++e) f.experts.push_back(mlp(Format::kNVFP4, kInner));
        expert_bytes = (weights.bytes() - before_experts) / kExperts;
      }
      ffn.push_back(std::move(f));
    }
    weight_bytes = weights.bytes();
  }
};

struct Timing {
  double median_us = 0, expert_count = 0;
};

Timing time_steps(Backend& backend, State& state, const Model& model,
                  std::span<const int32_t> pages, int rows, int context, int steps) {
  std::mt19937 random(7);
  std::vector<double> times;
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  std::vector<SampleRow> asked(static_cast<size_t>(rows));
  for (int r = 0; r < rows; ++r) asked[r].row = r;
  int64_t experts = 0;
  for (int s = 0; s < steps + 8; ++s) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Row> step;
    step.reserve(static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r) {
      step.push_back({static_cast<int32_t>(random() % kVocab), context + s + r, 0});
    }
    const std::vector<std::span<const int32_t>> tables = {pages};
    backend.begin(state, {step, tables, nullptr});
    backend.embed(state, *model.table);
    for (size_t i = 0; i < model.attention.size(); ++i) {
      backend.attention_half(state, model.attention[i]);
      backend.ffn_half(state, model.ffn[i]);
    }
    backend.head_sample(state, model.head, asked, {.tokens = tokens});
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (s < 8) continue;  // until everything has been met
    times.push_back(took.count());
    experts += backend.expert_use(state).distinct;
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], static_cast<double>(experts) / steps};
}

int run(int layers, int context, int steps) {
  auto backend = make_backend(Activations::kBFloat16).value();
  const Model model(*backend, layers);
  StateShape shape;
  shape.hidden = kHidden;
  shape.vocab = kVocab;
  shape.max_rows = 64;
  shape.sequences = 1;
  shape.block_rows = 16;
  shape.page_tokens = kPageTokens;
  shape.pages = (context + steps + 128) / kPageTokens + 1;
  shape.cache_type = CacheType::kFP8;
  for (const AttentionLayer& a : model.attention) {
    (a.window > 0 ? shape.sliding : shape.full).push_back({kKeyHeads, kHeadDim, a.window});
  }
  const auto state = backend->allocate(shape).value();
  std::vector<int32_t> pages(static_cast<size_t>(shape.pages));
  std::iota(pages.begin(), pages.end(), 0);
  const auto reserved = backend->reserve(*state, {.embedding = model.table.get(),
                                                  .attention = model.attention,
                                                  .ffn = model.ffn,
                                                  .head = &model.head,
                                                  .positions = int64_t{shape.pages} * kPageTokens});
  if (!reserved.ok()) {
    fmt::print("{}\n", reserved.error().message);
    return 1;
  }
  const double copy = backend->measure_read_rate(int64_t{4} << 30).value();
  fmt::print("{} layers, {:.1f} GB of weights, context {}, copy {:.0f} GB/s\n", layers,
             static_cast<double>(model.weight_bytes) / 1e9, context, copy / 1e9);
  double of_one = 0;
  for (const int rows : {1, 2, 4, 7, 8, 16}) {
    const Timing t = time_steps(*backend, *state, model, pages, rows, context, steps);
    double bytes = static_cast<double>(model.step_bytes) +
                   t.expert_count * static_cast<double>(model.expert_bytes);
    for (const AttentionLayer& a : model.attention) {
      bytes += 2.0 * kKeyHeads * kHeadDim * (a.window > 0 ? std::min(a.window, context) : context);
    }
    const double per_byte = t.median_us / bytes;
    if (rows == 1) of_one = per_byte;
    fmt::print(
        "{:3} rows {:9.1f} us, {:6.1f} experts a layer, {:7.1f} MB, {:5.0f} GB/s, {:.3f} of "
        "the copy, {:.2f} of one row's time per byte\n",
        rows, t.median_us, t.expert_count / std::max(1, layers - 1), bytes / 1e6,
        bytes / t.median_us / 1e3, bytes / t.median_us * 1e6 / copy, per_byte / of_one);
  }
  if (const Error* failure = backend->failure()) {
    fmt::print("{}\n", failure->message);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lagoon::kernels::cuda

int main(int argc, char** argv) try {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  return lagoon::kernels::cuda::run(number(1, 5), number(2, 2048), number(3, 256));
} catch (const std::exception& error) {
  std::fprintf(stderr, "layers_bench: %s\n", error.what());
  return 1;
}
