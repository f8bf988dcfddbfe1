#include "kernels/cpu/backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/operations.h"

namespace lagoon::kernels::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Activations activations, int threads)
      : machine_(activations, threads), name_(fmt::format("cpu ({})", name_of(selected()))) {}

  std::string_view name() const override { return name_; }
  bool synchronous() const override { return true; }

  Result<Weight> prepare(const HostMatrix& matrix) override {
    LAGOON_ASSIGN(Weight packed, pack(matrix, {&machine_.pool, &memory_}));
    return Weight(std::make_unique<Prepared>(std::move(packed)));
  }

  Result<std::unique_ptr<State>> allocate(const StateShape& shape) override {
    LAGOON_ASSIGN(std::unique_ptr<State> state, CpuState::allocate(shape, machine_.activations));
    return state;
  }

  bool randomize_caches(State& state, uint64_t key) override {
    as_cpu(state).randomize_caches(key);
    return true;
  }

  void begin(State& state, const Batch& batch) override {
    CpuState& cpu = as_cpu(state);
    finish_context(machine_, cpu);
    cpu.begin(batch);
  }

  void embed(State& state, const PackedWeight& table) override {
    CpuState& cpu = as_cpu(state);
    const Matrix& matrix = matrix_of(&table, cpu.shape().vocab, cpu.shape().hidden);
    const std::span<const Row> rows = cpu.rows();
    machine_.pool.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) matrix.read_row(rows[r].token, cpu.residual(r));
    });
  }

  void attention_half(State& state, const AttentionLayer& layer) override {
    cpu::attention_half(machine_, as_cpu(state), layer);
  }

  void ffn_half(State& state, const FfnLayer& layer) override {
    cpu::ffn_half(machine_, as_cpu(state), layer);
  }

  void head_sample(State& state, const Head& head, std::span<const SampleRow> asked,
                   const SampleResults& results) override {
    cpu::head_sample(machine_, as_cpu(state), head, asked, results);
  }

  void draft_context(State& draft, const State& target, const DraftContext& context,
                     std::span<const AttentionLayer> layers,
                     std::span<const ContextRow> rows) override {
    cpu::draft_context(machine_, as_cpu(draft), as_cpu(target), context, layers, rows);
  }

  void read_tokens(const State& state, std::span<int32_t> out) const override {
    const std::span<const Row> rows = as_cpu(state).rows();
    CHECK(out.size() == rows.size());
    std::ranges::transform(rows, out.begin(), &Row::token);
  }

  ExpertUse expert_use(const State& state) const override { return as_cpu(state).expert_use(); }

  void read_tap(const State& state, int tap, int row, std::span<float> out) const override {
    const CpuState& cpu = as_cpu(state);
    CHECK(out.size() == static_cast<size_t>(cpu.shape().hidden));
    std::copy_n(cpu.tap(tap, row), out.size(), out.data());
  }

 private:
  Machine machine_;
  PanelMemory memory_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(Activations activations, int threads) {
  CHECK(threads >= 1);
  return std::make_unique<CpuBackend>(activations, threads);
}

}  // namespace lagoon::kernels::cpu
