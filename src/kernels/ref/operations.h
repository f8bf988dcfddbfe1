// The operations of kernels/ops.h that a forward pass is made of, each in a file of its name.
#pragma once

#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/ref/matrix.h"
#include "kernels/ref/state.h"
#include "kernels/ref/workers.h"

namespace lagoon::kernels::ref {

struct Machine {
  Activations activations = Activations::kBFloat16;
  Workers workers;
};

// A norm's weights, or another [1, n] matrix; n is CHECKed.
std::vector<float> read_vector(const Weight& weight, int64_t n);

// RMSNorm of `rows` rows [rows, n], rounded. out may be x.
void norm_rows(Machine& machine, const float* x, int64_t rows, int64_t n, const Weight& weight,
               float epsilon, float* out);

void attention_half(Machine& machine, RefState& state, const AttentionLayer& layer);
void ffn_half(Machine& machine, RefState& state, const FfnLayer& layer);
void head_sample(Machine& machine, RefState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results);
void draft_context(Machine& machine, RefState& draft, const RefState& target,
                   const DraftContext& context, std::span<const AttentionLayer> layers,
                   std::span<const ContextRow> rows);

}  // namespace lagoon::kernels::ref
