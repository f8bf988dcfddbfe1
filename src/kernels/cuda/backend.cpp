#include "kernels/cuda/backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
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

  Result<Weight> prepare_random(const RandomMatrix& matrix) override {
    finish_step();
    LAGOON_ASSIGN(Weight weight, Matrix::make(*device_, matrix));
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

  void begin(State& state, const Batch& batch) override {
    finish_step();
    CudaState& cuda = as_cuda(state);
    cuda.begin(batch);
    cuda.operations().clear();
    if (cuda.key() != 0) device_->collecting = &cuda;
  }

  void embed(State& state, const PackedWeight& table) override {
    CudaState& cuda = as_cuda(state);
    add(cuda, {.table = &view_of(&table, cuda.shape().vocab, cuda.shape().hidden)});
  }

  void attention_half(State& state, const AttentionLayer& layer) override {
    add(as_cuda(state), {.attention = &layer});
  }

  void ffn_half(State& state, const FfnLayer& layer) override {
    add(as_cuda(state), {.ffn = &layer});
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

  std::optional<double> waited_seconds() const override { return device_->waited(); }

  bool replays_steps() const override { return device_->uses_graphs; }

  const Error* failure() const override { return device_->failure(); }

  std::optional<DeviceMemory> device_memory() const override {
    if (device_->shares_host_memory()) return std::nullopt;
    return DeviceMemory{.free = device_->free_bytes(), .total = device_->total_bytes()};
  }

  bool randomize_caches(State& state, uint64_t key) override {
    finish_step();
    as_cuda(state).randomize_caches(key);
    return true;
  }

  std::optional<double> measure_read_rate(int64_t bytes) override {
    finish_step();
    constexpr int kCopies = 10;
    uint8_t* memory = take_device_memory(2 * bytes);
    if (memory == nullptr) return std::nullopt;
    const auto copy = [&](int times) {
      for (int i = 0; i < times; ++i) {
        device_->check(cudaMemcpyAsync(memory + bytes, memory, static_cast<size_t>(bytes),
                                       cudaMemcpyDeviceToDevice, device_->stream()),
                       "a copy on the device");
      }
      device_->wait();
    };
    copy(1);
    const auto begin = std::chrono::steady_clock::now();
    copy(kCopies);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    give_device_memory(memory);
    if (device_->failed()) return std::nullopt;
    return 2.0 * static_cast<double>(bytes) * kCopies / seconds.count();
  }

  void read_tap(const State& state, int tap, int row, std::span<float> out) const override {
    finish_step();
    const CudaState& cuda = as_cuda(state);
    CHECK(row >= 0 && row < cuda.rows());
    CHECK(out.size() == static_cast<size_t>(cuda.shape().hidden));
    read(out.data(), cuda.tap(tap) + int64_t{row} * cuda.shape().hidden, out.size_bytes());
  }

 private:
  // Operations of steps of few rows are collected until something else is asked for, since they are
  // one graph.
  void add(CudaState& state, const CudaState::Operation& operation) {
    if (device_->collecting == &state) {
      state.operations().push_back(operation);
    } else {
      run(state, operation);
    }
  }
  void finish_step() const {
    if (device_->collecting == nullptr) return;
    CudaState& state = *device_->collecting;
    device_->collecting = nullptr;
    if (state.operations().empty()) return;
    uint64_t key = state.key();
    for (const CudaState::Operation& operation : state.operations()) {
      key = mix(mix(mix(key, operation.table), operation.attention), operation.ffn);
    }
    state.graphs().run(key, [&] {
      const std::vector<CudaState::Operation>& operations = state.operations();
      for (size_t i = 0; i < operations.size(); ++i) {
        machine_.next = i + 1 < operations.size() ? operations[i + 1].attention : nullptr;
        run(state, operations[i]);
      }
      machine_.next = nullptr;
      machine_.normed = nullptr;
    });
  }
  void run(CudaState& state, const CudaState::Operation& operation) const {
    if (operation.attention != nullptr) {
      cuda::attention_half(machine_, state, *operation.attention);
    } else if (operation.ffn != nullptr) {
      cuda::ffn_half(machine_, state, *operation.ffn);
    } else if (state.rows() > 0 && !device_->failed()) {
      read_rows(machine_.stream(), *operation.table, state.tokens(), state.rows(),
                state.residual());
    }
  }

  // Zeros after a failure.
  void read(void* to, const void* from, size_t bytes) const {
    std::memset(to, 0, bytes);
    copy_out(*device_, to, from, static_cast<int64_t>(bytes));
    device_->wait();
  }

  std::unique_ptr<Device> device_;
  mutable Machine machine_;  // what it knows of experts grows as they are met
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
