// Draws a token from logits. Every backend draws the same token for the same logits, so this file
// is part of the specification of kernels/ops.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::kernels {

// One block of Philox4x32 with 10 rounds: a bijection of the counter for each key. Salmon, Moraes,
// Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A number in [0, 1) with 53 random bits, fixed by (seed, position): Philox with key (low, high
// half of seed) and counter (position, 0, 0, 0) gives words w0, w1, ...; the result is the upper 53
// bits of w1 * 2^32 + w0, times 2^-53.
double uniform(uint64_t seed, int32_t position);

// The token at `position` (the position it will have, not the one of the row that predicts it).
// A NaN among the logits counts as -infinity. Where two logits are equal the lower id comes first.
//   temperature 0: the first largest logit.
//   else: order by falling logit and keep the first top_k (0: all). Their weights are
//     exp((logit - largest) / temperature); a logit equal to the largest weighs 1; a weight below
//     min_p becomes 0. Keep the shortest prefix whose weights reach top_p of the sum (at least one;
//     all if top_p >= 1). The token is the first whose running sum of weights exceeds
//     uniform(seed, position) * (sum of the kept).
// Where neither top_k nor top_p cuts anything, the running sum goes by id and nothing is sorted.
// The sum that top_p refers to is taken by id if top_k keeps all, else in falling order. All in
// FP64. `logits` must not be empty; temperature, top_k, top_p and min_p must not be negative or
// NaN, min_p at most 1. Any thread.
int32_t sample(std::span<const float> logits, const Sampling& sampling, int32_t position);

// Whether the token of the row is its largest logit and nothing else is asked for.
bool plain_greedy(const SampleRow& asked);

// What SampleRow asks for: `logits` are those of its row, `rows` all rows of the step (proposals
// resolved). Returns the token; writes asked.logprobs + 1 entries to `logprobs` if that is not -1.
// Any thread.
int32_t sample_row(std::span<const float> logits, const SampleRow& asked, std::span<const Row> rows,
                   std::span<TokenLogprob> logprobs);

// Where each asked row's entries begin in SampleResults::logprobs, and where they end: asked.size()
// + 1 numbers. CHECKs what of asked and results ops.h demands, for a step of `rows` rows.
std::vector<size_t> check_asked(std::span<const SampleRow> asked, const SampleResults& results,
                                size_t rows, int64_t vocab);

}  // namespace lagoon::kernels
