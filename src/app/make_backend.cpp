#include "app/make_backend.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"

namespace lagoon::app {
namespace {

constexpr int kMaxDefaultThreads = 8;

}  // namespace

Result<std::unique_ptr<kernels::Backend>> make_backend(const std::string& name, int threads,
                                                       bool graphs) {
  if (name == "ref") return kernels::ref::make_backend(kernels::Activations::kBFloat16, threads);
  if (name == "cuda" || (name == "auto" && kernels::cuda::built())) {
    auto backend = kernels::cuda::make_backend(kernels::Activations::kBFloat16, graphs);
    if (backend.ok() || name == "cuda") return backend;
    LOG(info, "on the processor, since {}", backend.error().message);
  }
  LAGOON_RETURN_IF_ERROR(kernels::cpu::select_from_environment());
  return kernels::cpu::make_backend(kernels::Activations::kBFloat16, threads);
}

int thread_count(int asked) {
  if (asked > 0) return asked;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxDefaultThreads);
}

}  // namespace lagoon::app
