// The operations of kernels/ops.h that a forward pass is made of, each in a file of its name, and
// the scratch memory that each takes for a step.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "base/result.h"
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
  int ordinal = 0;  // among all tables
  // Which packings gate and up, and down, have.
  bool gate_packings[3] = {};
  bool down_packings[3] = {};
};

// The rows that a half's first products take, [rows, padded(hidden)]: the first buffer of the
// workspace of either half, so that ffn_half() can leave there what the next attention_half()
// begins with.
inline Bits16* take_normed(Cutter& cutter, int64_t rows, int64_t hidden) {
  CHECK(cutter.used() == 0);
  return cutter.take<Bits16>(rows * padded(hidden));
}

struct Machine {
  explicit Machine(Device& on) : device(on) {}

  Device& device;
  std::unordered_map<const SwiGlu*, ExpertTable> experts;  // by the first expert of a layer
  // The attention that follows the operation in hand, if that is known, and the one whose input is
  // normed already.
  const AttentionLayer* next = nullptr;
  const AttentionLayer* normed = nullptr;
  const Bits16* normed_rows = nullptr;  // where

  Stream stream() const { return device.stream(); }
};

// The norm that an attention layer begins with.
Norm norm_of(const CudaState& state, const AttentionLayer& layer, Bits16* normed);

// None of them does anything on the device once it has failed.
void attention_half(Machine& machine, CudaState& state, const AttentionLayer& layer);
void ffn_half(Machine& machine, CudaState& state, const FfnLayer& layer);
void head_sample(Machine& machine, CudaState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results);
void draft_context(Machine& machine, CudaState& draft, const CudaState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows);

// See Backend::reserve().
Result<void> reserve(Machine& machine, CudaState& state, const Layers& layers);

// Bytes of scratch for the largest step, of sequences of at most `positions` positions.
int64_t attention_bytes(const CudaState& state, const AttentionLayer& layer, int64_t positions);
int64_t ffn_bytes(const CudaState& state, const FfnLayer& layer);
int64_t head_bytes(const CudaState& state);
int64_t context_bytes(const CudaState& draft, const CudaState& target, const DraftContext& context,
                      std::span<const AttentionLayer> layers);
// Puts the experts of a layer into device memory, unless they are there. Error: no memory.
Result<void> collect_experts(Machine& machine, const FfnLayer& layer, int64_t hidden);
// Room for what goes to and from the device for head_sample() and draft_context(). False: no
// memory.
bool reserve_head(CudaState& state);
bool reserve_context(CudaState& draft, const CudaState& target);

}  // namespace lagoon::kernels::cuda
