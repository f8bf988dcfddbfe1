#include "kernels/ref/backend.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ref/operations.h"

namespace lagoon::kernels::ref {
namespace {

class RefBackend final : public Backend {
 public:
  RefBackend(Activations activations, int threads)
      : machine_{.activations = activations, .workers = Workers(threads)} {}

  std::string_view name() const override { return "ref"; }
  bool synchronous() const override { return true; }

  Result<Weight> prepare(const HostMatrix& matrix) override {
    LAGOON_ASSIGN(Weight weight, Matrix::copy(matrix));
    return weight;
  }

  Result<std::unique_ptr<State>> allocate(const StateShape& shape) override {
    LAGOON_ASSIGN(std::unique_ptr<State> state, RefState::allocate(shape, machine_.activations));
    return state;
  }

  void begin(State& state, const Batch& batch) override { as_ref(state).begin(batch); }

  void embed(State& state, const PackedWeight& table) override {
    RefState& ref = as_ref(state);
    const Matrix& matrix = as_matrix(&table);
    CHECK(matrix.rows() == ref.shape().vocab && matrix.columns() == ref.shape().hidden);
    const std::span<const Row> rows = ref.rows();
    for (size_t r = 0; r < rows.size(); ++r) {
      matrix.read_row(rows[r].token, ref.residual(static_cast<int64_t>(r)));
    }
  }

  void attention_half(State& state, const AttentionLayer& layer) override {
    ref::attention_half(machine_, as_ref(state), layer);
  }

  void ffn_half(State& state, const FfnLayer& layer) override {
    ref::ffn_half(machine_, as_ref(state), layer);
  }

  void head_sample(State& state, const Head& head, std::span<const SampleRow> asked,
                   const SampleResults& results) override {
    ref::head_sample(machine_, as_ref(state), head, asked, results);
  }

  void draft_context(State& draft, const State& target, const DraftContext& context,
                     std::span<const AttentionLayer> layers,
                     std::span<const ContextRow> rows) override {
    ref::draft_context(machine_, as_ref(draft), as_ref(target), context, layers, rows);
  }

  void read_tokens(const State& state, std::span<int32_t> out) const override {
    const std::span<const Row> rows = as_ref(state).rows();
    CHECK(out.size() == rows.size());
    std::ranges::transform(rows, out.begin(), &Row::token);
  }

  ExpertUse expert_use(const State& state) const override { return as_ref(state).expert_use(); }

  void read_tap(const State& state, int tap, int row, std::span<float> out) const override {
    const RefState& ref = as_ref(state);
    CHECK(out.size() == static_cast<size_t>(ref.shape().hidden));
    std::copy_n(ref.tap(tap, row), out.size(), out.data());
  }

 private:
  Machine machine_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(Activations activations, int threads) {
  CHECK(threads >= 1);
  return std::make_unique<RefBackend>(activations, threads);
}

}  // namespace lagoon::kernels::ref
