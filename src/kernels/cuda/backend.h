// The CUDA backend: serves on an NVIDIA GPU. docs/kernels.md says how.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/ops.h"

namespace lagoon::kernels::cuda {

// Whether this build has the backend.
bool built();

// On the first GPU that the driver shows (the environment variable CUDA_VISIBLE_DEVICES chooses).
// Errors, each one sentence: a build without CUDA, no driver or one that is too old, no GPU or one
// that this build has no code for, kFloat32 activations. Nothing of the device is touched before,
// and programs with this backend start on machines without a driver.
//
// Compared with kernels/ref: sums go in another order and softmax is in powers of two, so that
// single results differ by rounding. head_dim is 16, 64 or 128; pages are of a multiple of 16
// positions; matrices (not vectors) are BF16, FP8 or NVFP4; at most 1,024 experts. Drawing sums
// probabilities in another order (FP64), so that a number within about 1e-13 of a border may fall
// to the other side.
// `graphs`: steps of up to 64 rows become CUDA graphs when their shape comes the second time.
Result<std::unique_ptr<Backend>> make_backend(Activations activations, bool graphs = true);

// For tests: what a server that has started does once a step (it waits), and never (it takes or
// gives back memory of a device; counted for the whole process).
struct Counters {
  int64_t waits = 0;
  int64_t memory_calls = 0;
};
Counters counters(const Backend& backend);

}  // namespace lagoon::kernels::cuda
