// The operations of kernels/ops.h that a forward pass is made of, each in a file of its name.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/state.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cuda {

// The experts of a layer on the device.
struct ExpertTable {
  const ExpertView* views = nullptr;
  const uint8_t* first = nullptr;  // the weights of the first expert, which no other table has
  int64_t inner = 0;
  // Which packings gate and up, and down, have.
  bool gate_packings[3] = {};
  bool down_packings[3] = {};
};

struct Machine {
  explicit Machine(Device& on) : device(on) {}

  Device& device;
  // By the first expert of a layer. Filled when a layer is first computed.
  std::unordered_map<const SwiGlu*, ExpertTable> experts;
  Upload draws;    // rows asked for and how they are drawn
  Upload context;  // rows of draft_context()

  Stream stream() const { return device.stream(); }
};

void attention_half(Machine& machine, CudaState& state, const AttentionLayer& layer);
void ffn_half(Machine& machine, CudaState& state, const FfnLayer& layer);
void head_sample(Machine& machine, CudaState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results);
void draft_context(Machine& machine, CudaState& draft, const CudaState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows);

}  // namespace lagoon::kernels::cuda
