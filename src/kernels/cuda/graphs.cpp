#include "kernels/cuda/graphs.h"

#include <cuda_runtime_api.h>

#include "base/check.h"

namespace lagoon::kernels::cuda {
namespace {

// Of a state. A server meets some dozens of shapes; where it meets more, it starts anew.
constexpr size_t kMostGraphs = 512;

}  // namespace

Graphs::~Graphs() {
  if (mode_ == Mode::kCapture) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(device_.stream(), &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
  }
  if (device_.open_graphs == this) device_.open_graphs = nullptr;
  clear();
}

void Graphs::clear() {
  if (graphs_.empty()) return;
  cudaStreamSynchronize(device_.stream());
  for (auto& [key, graph] : graphs_) {
    if (graph.steps != nullptr) cudaGraphExecDestroy(graph.steps);
  }
  graphs_.clear();
}

void Graphs::open(uint64_t key) {
  CHECK(mode_ == Mode::kClosed && device_.open_graphs == nullptr);
  device_.open_graphs = this;
  operations_ = 0;
  mode_ = Mode::kLaunch;
  if (!device_.uses_graphs || device_.failed()) return;
  // Memory that moved makes another key.
  key_ = mix(key, static_cast<uint64_t>(memory_calls()));
  if (graphs_.size() >= kMostGraphs) clear();
  const auto [found, first_time] = graphs_.try_emplace(key_);
  if (first_time) return;
  if (found->second.steps != nullptr) {
    mode_ = Mode::kReplay;
    return;
  }
  device_.check(cudaGetLastError(), "a launch");
  device_.check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeRelaxed),
                "capturing a graph");
  if (!device_.failed()) mode_ = Mode::kCapture;
}

bool Graphs::wants(const void* identity) {
  CHECK(mode_ != Mode::kClosed);
  operations_ = mix(operations_, identity);
  return mode_ != Mode::kReplay;
}

void Graphs::close() {
  CHECK(mode_ != Mode::kClosed && device_.open_graphs == this);
  device_.open_graphs = nullptr;
  const Mode mode = mode_;
  mode_ = Mode::kClosed;
  if (mode == Mode::kLaunch) return;
  Graph& graph = graphs_.at(key_);
  if (mode == Mode::kCapture) capture_ended(graph);
  if (device_.failed()) return;
  CHECK(graph.operations == operations_);
  device_.check(cudaGraphLaunch(graph.steps, device_.stream()), "a graph");
}

void Graphs::capture_ended(Graph& graph) {
  cudaGraph_t captured = nullptr;
  device_.check(cudaStreamEndCapture(device_.stream(), &captured), "capturing a graph");
  if (captured == nullptr) return;
  device_.check(cudaGraphInstantiate(&graph.steps, captured, 0), "making a graph");
  device_.check(cudaGraphDestroy(captured), "making a graph");
  graph.operations = operations_;
}

}  // namespace lagoon::kernels::cuda
