#include <algorithm>
#include <vector>

#include "kernels/ref/elementwise.h"
#include "kernels/ref/operations.h"
#include "kernels/sampling.h"

namespace lagoon::kernels::ref {
namespace {

// Rows whose logits are in memory at a time.
constexpr size_t kChunkRows = 16;

}  // namespace

void head_sample(Machine& machine, RefState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results) {
  const int64_t hidden = state.shape().hidden;
  const int64_t vocab = state.shape().vocab;
  const std::vector<size_t> logprobs_at = check_asked(asked, results, state.rows().size(), vocab);
  const std::span<float> logits = results.logits;
  std::vector<int32_t> own_tokens(results.tokens.empty() ? asked.size() : 0);
  const std::span<int32_t> tokens = results.tokens.empty() ? own_tokens : results.tokens;
  std::vector<float> own_logits(logits.empty() ? std::min(asked.size(), kChunkRows) * vocab : 0);
  std::vector<float> normed(std::min(asked.size(), kChunkRows) * hidden);
  for (size_t first = 0; first < asked.size(); first += kChunkRows) {
    const auto chunk = asked.subspan(first, std::min(kChunkRows, asked.size() - first));
    const auto rows = static_cast<int64_t>(chunk.size());
    float* out = logits.empty() ? own_logits.data() : logits.data() + first * vocab;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(state.residual(chunk[r].row), hidden, normed.data() + r * hidden);
    }
    norm_rows(machine, normed.data(), rows, hidden, head.norm, head.norm_epsilon, normed.data());
    const Product product[] = {make_product(head.lm_head, vocab, hidden, rows, normed.data(), out)};
    multiply(machine.workers, product);
    machine.workers.for_each(rows, [&](int64_t r, Buffer&) {
      const size_t at = first + r;
      const size_t logprobs = logprobs_at[at + 1] - logprobs_at[at];
      tokens[at] = sample_row({out + r * vocab, static_cast<size_t>(vocab)}, chunk[r], state.rows(),
                              results.logprobs.subspan(logprobs_at[at], logprobs));
    });
  }
  state.keep_proposals(asked, tokens);
}

}  // namespace lagoon::kernels::ref
