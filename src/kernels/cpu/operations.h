// The operations of kernels/ops.h that a forward pass is made of, each in a file of its name. An
// operation is one run of all threads, with barriers between its steps; each thread takes a fixed
// share of the rows, heads or panels of a step.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/state.h"
#include "kernels/cpu/vectors.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// A weight of this backend.
class Prepared final : public PackedWeight {
 public:
  explicit Prepared(Weight packed);
  const Matrix& matrix() const { return *matrix_; }
  // The weights of a matrix of one row.
  const std::vector<float>& row() const { return row_; }

 private:
  Weight packed_;
  const Matrix* matrix_;  // packed_
  std::vector<float> row_;
};

// Another backend's weight, or one of another shape, is a bug.
const Matrix& matrix_of(const PackedWeight* weight, int64_t rows, int64_t columns);
const Matrix& matrix_of(const PackedWeight* weight);
const float* vector_of(const Weight& weight, int64_t n);

// Memory that grows to the largest size asked for and keeps nothing between operations.
class Buffer {
 public:
  // `count` values, unspecified, until the next call.
  float* floats(int64_t count);

 private:
  std::unique_ptr<float[]> values_;
  int64_t size_ = 0;
};

struct Choice {
  int32_t expert = 0;
  float weight = 0;
};

// A thread's own.
struct alignas(64) Scratch {
  Buffer floats;
  std::vector<int32_t> places;
  std::vector<int32_t> firsts;
  std::vector<int32_t> order;
};

struct Machine {
  Machine(Activations mode, int threads) : activations(mode), pool(threads), scratch(threads) {}

  bool rounds() const { return activations == Activations::kBFloat16; }
  int parts() const { return pool.threads(); }

  Activations activations;
  ThreadPool pool;
  std::vector<Scratch> scratch;  // by part
  std::array<Buffer, 8> buffers;
  std::vector<Choice> choices;
};

// The share of [0, count) that a part takes.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Range share(int64_t count, int part, int parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

// Steps over panels, dealt to the parts by what a panel costs.
class Panels {
 public:
  Panels(int part, int parts, int64_t total_cost)
      : first_(total_cost * part / parts), last_(total_cost * (part + 1) / parts) {}
  // The part's share of the next `panels` panels.
  Range next(int64_t panels, int64_t cost) {
    const Range range = {clamp(first_ - done_, panels, cost), clamp(last_ - done_, panels, cost)};
    done_ += panels * cost;
    return range;
  }

 private:
  static int64_t clamp(int64_t at, int64_t panels, int64_t cost) {
    if (at <= 0) return 0;
    return std::min((at + cost - 1) / cost, panels);
  }
  int64_t first_, last_;
  int64_t done_ = 0;
};

// y = W x for several W and the same rows x, y [m, W.rows()].
struct Output {
  const Matrix* matrix = nullptr;
  float* y = nullptr;
};
// The part's share of the outputs.
void multiply_share(std::span<const Output> outputs, const float* x, int64_t x_stride, int64_t m,
                    int part, int parts);

// Rows of [rows, n] that the part takes: RMSNorm, rounded. out may be x.
void norm_share(const Machine& machine, const float* x, int64_t rows, int64_t n,
                const float* weight, float epsilon, float* out, int part);

// The row's key and value [kv_heads, head_dim] of one head, from projections, into the cache.
struct KeyValue {
  const AttentionLayer* layer = nullptr;
  Cache* cache = nullptr;
  const Rotation* rotation = nullptr;
};
void store_key_value(const Machine& machine, const KeyValue& into, int64_t row, int64_t entry,
                     int kv_head, const float* key, const float* value, float* scratch);

void attention_half(Machine& machine, CpuState& state, const AttentionLayer& layer);
void ffn_half(Machine& machine, CpuState& state, const FfnLayer& layer);
void head_sample(Machine& machine, CpuState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results);
void draft_context(Machine& machine, CpuState& draft, const CpuState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows);
// What draft_context() has put off; before the draft's next step begins.
void finish_context(Machine& machine, CpuState& draft);

// The experts of one row, as ref::choose_experts; scratch: 2 * logits.size() floats.
void choose_experts(const Vectors& vectors, std::span<const float> logits, const float* bias,
                    float softcap, std::span<Choice> choices, float* scratch);

}  // namespace lagoon::kernels::cpu
