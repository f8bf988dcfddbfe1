#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/operations.h"

namespace lagoon::kernels::cuda {

Result<void> reserve(Machine& machine, CudaState& state, const Layers& layers) {
  CHECK(layers.embedding != nullptr && layers.head != nullptr && layers.positions > 0);
  CHECK((layers.context == nullptr) == (layers.target == nullptr));
  LAGOON_RETURN_IF_ERROR(state.reserve(layers.positions, layers.attention));
  int64_t scratch = head_bytes(state);
  for (const AttentionLayer& layer : layers.attention) {
    scratch = std::max(scratch, attention_bytes(state, layer, layers.positions));
  }
  for (const FfnLayer& layer : layers.ffn) {
    LAGOON_RETURN_IF_ERROR(collect_experts(machine, layer, state.shape().hidden));
    scratch = std::max(scratch, ffn_bytes(state, layer));
  }
  bool room = reserve_head(state);
  if (layers.context != nullptr) {
    const CudaState& target = as_cuda(*layers.target);
    scratch = std::max(scratch, context_bytes(state, target, *layers.context, layers.attention));
    room = room && reserve_context(state, target);
  }
  if (!room) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("no memory was left for copies to and from {}: use fewer sequences, "
                             "or --backend cpu",
                             machine.device.name())};
  }
  LAGOON_RETURN_IF_ERROR(machine.device.reserve_workspace(scratch));
  if (const Error* failure = machine.device.failure()) return *failure;
  return {};
}

}  // namespace lagoon::kernels::cuda
