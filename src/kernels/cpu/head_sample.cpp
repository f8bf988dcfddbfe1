#include <algorithm>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/sampling.h"

namespace lagoon::kernels::cpu {
namespace {

// Rows whose logits are in memory at a time.
constexpr size_t kChunkRows = 64;

}  // namespace

void head_sample(Machine& machine, CpuState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results) {
  const int64_t hidden = state.shape().hidden;
  const int64_t vocab = state.shape().vocab;
  const std::vector<size_t> logprobs_at = check_asked(asked, results, state.rows().size(), vocab);
  const std::span<float> logits = results.logits;
  std::vector<int32_t> own_tokens(results.tokens.empty() ? asked.size() : 0);
  const std::span<int32_t> tokens = results.tokens.empty() ? own_tokens : results.tokens;
  const Output outputs[] = {{&matrix_of(head.lm_head, vocab, hidden), nullptr}};
  const float* weight = vector_of(head.norm, hidden);
  const Vectors& v = vectors();
  for (size_t first = 0; first < asked.size(); first += kChunkRows) {
    const auto chunk = asked.subspan(first, std::min(kChunkRows, asked.size() - first));
    const auto rows = static_cast<int64_t>(chunk.size());
    float* normed = machine.buffers[0].floats(rows * hidden);
    Output output = outputs[0];
    output.y =
        logits.empty() ? machine.buffers[1].floats(rows * vocab) : logits.data() + first * vocab;
    machine.pool.run([&](int part) {
      const Range range = share(rows, part, machine.parts());
      for (int64_t r = range.begin; r < range.end; ++r) {
        v.rms_norm(state.residual(chunk[r].row), weight, hidden, head.norm_epsilon,
                   machine.rounds(), normed + r * hidden);
      }
      machine.pool.barrier();
      multiply_share({&output, 1}, normed, hidden, rows, part, machine.parts());
      machine.pool.barrier();
      for (int64_t r = part; r < rows; r += machine.parts()) {
        const float* row = output.y + r * vocab;
        const size_t at = first + r;
        const size_t logprobs = logprobs_at[at + 1] - logprobs_at[at];
        tokens[at] = plain_greedy(chunk[r])
                         ? static_cast<int32_t>(v.argmax(row, vocab))
                         : sample_row({row, static_cast<size_t>(vocab)}, chunk[r], state.rows(),
                                      results.logprobs.subspan(logprobs_at[at], logprobs));
      }
    });
  }
  state.keep_proposals(asked, tokens);
}

}  // namespace lagoon::kernels::cpu
