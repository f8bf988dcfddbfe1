#include "kernels/cuda/backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.h"

namespace lagoon::kernels::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<Device> device)
      : device_(std::move(device)), machine_(*device_) {}
  ~CudaBackend() override {
    finish_step();
    device_->wait();
  }

  int64_t waits() const { return device_->waits(); }

  std::string_view name() const override { return "cuda"; }

  Result<Weight> prepare(const HostMatrix& matrix) override {
    finish_step();
    LAGOON_ASSIGN(Weight weight, Matrix::pack(*device_, matrix));
    return weight;
  }

  Result<std::unique_ptr<State>> allocate(const StateShape& shape) override {
    finish_step();
    LAGOON_ASSIGN(std::unique_ptr<State> state, CudaState::allocate(*device_, shape));
    return state;
  }

  Result<void> reserve(State& state, const Layers& layers) override {
    finish_step();
    return cuda::reserve(machine_, as_cuda(state), layers);
  }

  // From here to what comes after the layers is one graph, if the step is one of those.
  void begin(State& state, const Batch& batch) override {
    finish_step();
    CudaState& cuda = as_cuda(state);
    cuda.begin(batch);
    if (const uint64_t key = cuda.key(); key != 0) cuda.graphs().open(key);
  }

  void embed(State& state, const PackedWeight& table) override {
    CudaState& cuda = as_cuda(state);
    const MatrixView& view = view_of(&table, cuda.shape().vocab, cuda.shape().hidden);
    if (cuda.rows() == 0 || device_->failed() || !wants(cuda, &table)) return;
    read_rows(machine_.stream(), view, cuda.tokens(), cuda.rows(), cuda.residual());
  }

  void attention_half(State& state, const AttentionLayer& layer) override {
    if (wants(as_cuda(state), &layer)) cuda::attention_half(machine_, as_cuda(state), layer);
  }

  void ffn_half(State& state, const FfnLayer& layer) override {
    if (wants(as_cuda(state), &layer)) cuda::ffn_half(machine_, as_cuda(state), layer);
  }

  void head_sample(State& state, const Head& head, std::span<const SampleRow> asked,
                   const SampleResults& results) override {
    finish_step();
    cuda::head_sample(machine_, as_cuda(state), head, asked, results);
  }

  void draft_context(State& draft, const State& target, const DraftContext& context,
                     std::span<const AttentionLayer> layers,
                     std::span<const ContextRow> rows) override {
    finish_step();
    cuda::draft_context(machine_, as_cuda(draft), as_cuda(target), context, layers, rows);
  }

  void read_tokens(const State& state, std::span<int32_t> out) const override {
    finish_step();
    const CudaState& cuda = as_cuda(state);
    CHECK(out.size() == static_cast<size_t>(cuda.rows()));
    const std::span<const int32_t> known = cuda.counts_and_tokens();
    if (!known.empty()) {
      std::ranges::copy(known.subspan(2), out.begin());
    } else {
      read(out.data(), cuda.tokens(), out.size_bytes());
    }
  }

  ExpertUse expert_use(const State& state) const override {
    finish_step();
    const CudaState& cuda = as_cuda(state);
    const std::span<const int32_t> known = cuda.counts_and_tokens();
    if (!known.empty()) return {.layers = known[0], .distinct = known[1]};
    int32_t use[2] = {};
    if (cuda.expert_use() != nullptr) read(use, cuda.expert_use(), sizeof use);
    return {.layers = use[0], .distinct = use[1]};
  }

  const Error* failure() const override { return device_->failure(); }

  void read_tap(const State& state, int tap, int row, std::span<float> out) const override {
    finish_step();
    const CudaState& cuda = as_cuda(state);
    CHECK(row >= 0 && row < cuda.rows());
    CHECK(out.size() == static_cast<size_t>(cuda.shape().hidden));
    read(out.data(), cuda.tap(tap) + int64_t{row} * cuda.shape().hidden, out.size_bytes());
  }

 private:
  // Runs what the last step's operations were collected for.
  void finish_step() const {
    if (device_->open_graphs != nullptr) device_->open_graphs->close();
  }
  // Whether an operation is to be put on the stream.
  bool wants(CudaState& state, const void* identity) const {
    return device_->open_graphs != &state.graphs() || state.graphs().wants(identity);
  }

  // Zeros after a failure.
  void read(void* to, const void* from, size_t bytes) const {
    std::memset(to, 0, bytes);
    copy_out(*device_, to, from, static_cast<int64_t>(bytes));
    device_->wait();
  }

  std::unique_ptr<Device> device_;
  Machine machine_;
};

}  // namespace

Counters counters(const Backend& backend) {
  const auto* cuda = dynamic_cast<const CudaBackend*>(&backend);
  CHECK(cuda != nullptr);
  return {.waits = cuda->waits(), .memory_calls = memory_calls()};
}

bool built() {
  return true;
}

Result<std::unique_ptr<Backend>> make_backend(Activations activations, bool graphs) {
  if (activations != Activations::kBFloat16) {
    return Error{ErrorCode::kUnsupported,
                 "activations in FP32 are not for a GPU: use the backend ref or cpu"};
  }
  LAGOON_ASSIGN(std::unique_ptr<Device> device, Device::open());
  device->uses_graphs = graphs;
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(std::move(device)));
}

}  // namespace lagoon::kernels::cuda
