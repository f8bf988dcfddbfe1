// The CPU backend: what ref defines, with the instruction set at hand.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// `threads` >= 1 share panels of matrices, rows and heads; results do not depend on their number.
// The instruction set is the selected one (kernels/cpu/instruction_set.h).
std::unique_ptr<Backend> make_backend(Activations activations, int threads);

}  // namespace lagoon::kernels::cpu
