#include "kernels/cuda/graphs.h"

#include <cuda_runtime_api.h>

namespace lagoon::kernels::cuda {
namespace {

// Of a state. Where a server meets more shapes than this it starts anew, so that model/warm_up.h,
// which computes up to 64 numbers of rows at each length of context, stays below.
constexpr size_t kMostGraphs = 512;

}  // namespace

void Graphs::clear() {
  if (graphs_.empty()) return;
  cudaStreamSynchronize(device_.stream());
  for (auto& [key, graph] : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
}

Graphs::Next Graphs::next_of(uint64_t key) {
  if (!device_.uses_graphs || device_.failed()) return Next::kLaunch;
  // Where memory was taken or given back, addresses may have changed.
  key_ = mix(key, static_cast<uint64_t>(memory_calls()));
  if (graphs_.size() >= kMostGraphs) clear();
  const auto [found, first_time] = graphs_.try_emplace(key_, nullptr);
  if (first_time) return Next::kLaunch;
  if (found->second != nullptr) return Next::kReplay;
  device_.check(cudaGetLastError(), "a launch");
  if (device_.failed()) return Next::kLaunch;
  device_.check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeRelaxed),
                "capturing a graph");
  return device_.failed() ? Next::kLaunch : Next::kCapture;
}

void Graphs::end_capture() {
  cudaGraph_t captured = nullptr;
  device_.check(cudaStreamEndCapture(device_.stream(), &captured), "capturing a graph");
  if (captured == nullptr) return;
  device_.check(cudaGraphInstantiate(&graphs_.at(key_), captured, 0), "making a graph");
  device_.check(cudaGraphDestroy(captured), "making a graph");
}

void Graphs::replay() {
  if (device_.failed()) return;
  device_.check(cudaGraphLaunch(graphs_.at(key_), device_.stream()), "a graph");
}

}  // namespace lagoon::kernels::cuda
