// The reference backend: scalar, obvious, the specification of kernels/ops.h.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace lagoon::kernels::ref {

// `threads` >= 1 share rows and heads; results do not depend on their number.
std::unique_ptr<Backend> make_backend(Activations activations, int threads);

}  // namespace lagoon::kernels::ref
