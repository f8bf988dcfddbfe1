// The backend that computes, by its name on the command line.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kernels/ops.h"

namespace lagoon::app {

// "cpu", "cuda", "ref", or "auto": cuda where there is a GPU that this build has code for, else
// cpu. `graphs`: steps on a GPU become CUDA graphs. Errors say in one sentence why it cannot run
// here.
Result<std::unique_ptr<kernels::Backend>> make_backend(const std::string& name, int threads,
                                                       bool graphs = true);

// Threads that compute, for --threads: as many as the machine has, at most 8, where it is 0.
int thread_count(int asked);

}  // namespace lagoon::app
