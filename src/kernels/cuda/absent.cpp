// In place of the backend in builds without CUDA.
#include "kernels/cuda/backend.h"

namespace lagoon::kernels::cuda {

bool built() {
  return false;
}

Result<std::unique_ptr<Backend>> make_backend(Activations, bool) {
  return Error{
      ErrorCode::kUnsupported,
      "this build has no CUDA backend: build it on a machine with an NVIDIA GPU and nvcc, or "
      "with -DLAGOON_CUDA=ON, or use --backend cpu"};
}

Counters counters(const Backend&) {
  return {};
}

}  // namespace lagoon::kernels::cuda
