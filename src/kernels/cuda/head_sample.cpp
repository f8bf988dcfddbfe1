#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/sampling.h"

namespace lagoon::kernels::cuda {
namespace {

// Rows whose logits are in memory at a time.
constexpr int64_t kChunkRows = 64;

static_assert(sizeof(Logprob) == sizeof(TokenLogprob));

// What is asked for, on the device.
struct Asked {
  const int32_t* rows = nullptr;
  const Draw* draws = nullptr;
  bool changes = false;   // any row has rules or a mask
  bool logprobs = false;  // any row asks for log-probabilities
};

// Words of 32 bits on their way to the device. Where a piece will lie there is known once all are
// in.
class Words {
 public:
  template <typename T>
  int64_t add(std::span<const T> values) {
    static_assert(sizeof(T) == 4);
    const auto at = static_cast<int64_t>(words_.size());
    words_.resize(words_.size() + values.size());
    if (!values.empty()) std::memcpy(words_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  std::vector<uint32_t> words_;
};

// Where the pieces of rules begin among the words.
struct RulesAt {
  int64_t bias_tokens, biases, banned, seen_tokens, seen_outputs;
};

RulesAt add_rules(const LogitRules& rules, Words& words) {
  std::vector<int32_t> tokens;
  std::vector<float> biases;
  for (const LogitBias& bias : rules.bias) {
    tokens.push_back(bias.token);
    biases.push_back(bias.bias);
  }
  std::vector<int32_t> seen, outputs;
  for (const SeenToken& token : rules.seen) {
    seen.push_back(token.token);
    outputs.push_back(token.outputs);
  }
  return {.bias_tokens = words.add(std::span<const int32_t>(tokens)),
          .biases = words.add(std::span<const float>(biases)),
          .banned = words.add(rules.banned),
          .seen_tokens = words.add(std::span<const int32_t>(seen)),
          .seen_outputs = words.add(std::span<const int32_t>(outputs))};
}

// The first row of the step that is a token of the answer and not in `seen`.
int32_t first_recent(const LogitRules& rules, int32_t row, std::span<const Row> rows) {
  int32_t first = row + 1;
  while (first > 0 && rows[first - 1].sequence == rows[row].sequence &&
         rows[first - 1].position >= rules.seen_end) {
    --first;
  }
  return first;
}

Rules rules_on_device(const LogitRules& rules, const RulesAt& at, const uint32_t* words,
                      int32_t row, std::span<const Row> rows) {
  const auto ids = [words](int64_t first) {
    return reinterpret_cast<const int32_t*>(words + first);
  };
  Rules out;
  out.bias_tokens = ids(at.bias_tokens);
  out.biases = reinterpret_cast<const float*>(words + at.biases);
  out.banned = ids(at.banned);
  out.seen_tokens = ids(at.seen_tokens);
  out.seen_outputs = ids(at.seen_outputs);
  out.bias_count = static_cast<int32_t>(rules.bias.size());
  const bool bans = rows[row].position + 1 < rules.banned_before;
  out.banned_count = bans ? static_cast<int32_t>(rules.banned.size()) : 0;
  out.seen_count = static_cast<int32_t>(rules.seen.size());
  out.first_recent = first_recent(rules, row, rows);
  out.repetition = rules.repetition;
  out.presence = rules.presence;
  out.frequency = rules.frequency;
  return out;
}

Asked send(Machine& machine, const CudaState& state, std::span<const SampleRow> asked,
           std::span<const size_t> logprobs_at) {
  const std::span<const Row> rows = state.step().rows();
  const size_t count = asked.size();
  Words words;
  std::unordered_map<const LogitRules*, RulesAt> rules;  // several rows may share theirs
  std::unordered_map<const uint32_t*, int64_t> masks;
  for (const SampleRow& row : asked) words.add(std::span(&row.row, 1));
  for (const SampleRow& row : asked) {
    if (row.given >= 0) continue;
    if (row.rules != nullptr && !rules.contains(row.rules)) {
      rules.emplace(row.rules, add_rules(*row.rules, words));
    }
    if (!row.allowed.empty() && !masks.contains(row.allowed.data())) {
      masks.emplace(row.allowed.data(), words.add(row.allowed));
    }
  }
  const size_t draw_bytes = count * sizeof(Draw);
  const auto bytes = static_cast<int64_t>(draw_bytes + words.words().size() * 4);
  uint8_t* to = machine.draws.open(bytes);
  const uint8_t* mirror = machine.draws.mirror();
  const auto* device_words = reinterpret_cast<const uint32_t*>(mirror + draw_bytes);
  Asked out = {.rows = reinterpret_cast<const int32_t*>(device_words),
               .draws = reinterpret_cast<const Draw*>(mirror)};
  for (size_t i = 0; i < count; ++i) {
    const SampleRow& row = asked[i];
    Draw draw;
    draw.temperature = row.sampling.temperature;
    draw.top_k = row.sampling.top_k;
    draw.top_p = row.sampling.top_p;
    draw.min_p = row.sampling.min_p;
    draw.seed = row.sampling.seed;
    draw.row = row.row;
    draw.position = rows[row.row].position + 1;
    draw.given = row.given;
    draw.logprobs = row.logprobs;
    draw.logprobs_at = static_cast<int64_t>(logprobs_at[i]);
    if (row.given < 0 && row.rules != nullptr) {
      draw.has_rules = true;
      draw.rules = rules_on_device(*row.rules, rules.at(row.rules), device_words, row.row, rows);
    }
    if (row.given < 0 && !row.allowed.empty()) {
      draw.allowed = device_words + masks.at(row.allowed.data());
    }
    out.changes = out.changes || draw.changes();
    out.logprobs = out.logprobs || row.logprobs >= 0;
    std::memcpy(to + i * sizeof(Draw), &draw, sizeof draw);
  }
  std::memcpy(to + draw_bytes, words.words().data(), words.words().size() * 4);
  machine.draws.send(machine.stream(), bytes);
  return out;
}

void copy_out(Machine& machine, void* to, const void* from, size_t bytes) {
  check_device(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, machine.stream()),
               "a copy of results");
}

}  // namespace

void head_sample(Machine& machine, CudaState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results) {
  const int64_t hidden = state.shape().hidden;
  const int64_t vocab = state.shape().vocab;
  const std::vector<size_t> logprobs_at =
      check_asked(asked, results, static_cast<size_t>(state.rows()), vocab);
  const MatrixView& lm_head = view_of(head.lm_head, vocab, hidden);
  const auto count = static_cast<int64_t>(asked.size());
  if (count == 0) return;
  Device& device = machine.device;
  device.scratch.clear();
  const Asked sent = send(machine, state, asked, logprobs_at);
  const int64_t most = std::min(count, kChunkRows);
  auto* normed = device.scratch_of<Bits16>(most * padded(hidden));
  auto* raw = device.scratch_of<float>(most * vocab);
  auto* changed = sent.changes ? device.scratch_of<float>(most * vocab) : raw;
  auto* drawn = device.scratch_of<int32_t>(count + 2);  // the counts of experts behind the tokens
  auto* logprobs = device.scratch_of<Logprob>(static_cast<int64_t>(results.logprobs.size()));
  for (int64_t first = 0; first < count; first += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, count - first);
    const Draw* draws = sent.draws + first;
    norm_rows(machine.stream(),
              {.x = state.residual(),
               .x_stride = hidden,
               .ids = sent.rows + first,
               .weight = vector_of(head.norm, hidden),
               .n = hidden,
               .epsilon = head.norm_epsilon,
               .out = normed,
               .out_stride = padded(hidden),
               .zero_to = padded(hidden)},
              rows);
    const Product product = {.matrix = lm_head, .y = raw, .y_stride = vocab};
    multiply(machine.stream(), &product, 1, normed, rows);
    if (sent.changes) {
      change_logits(machine.stream(), raw, vocab, draws, rows, state.tokens(), changed);
    }
    sample(machine.stream(), raw, changed, vocab, draws, rows, drawn + first);
    if (sent.logprobs) {
      log_probabilities(machine.stream(), raw, vocab, draws, rows, drawn + first, logprobs);
    }
    if (results.logits.empty()) continue;
    copy_out(machine, results.logits.data() + first * vocab, raw,
             static_cast<size_t>(rows * vocab) * sizeof(float));
  }
  check_device(cudaMemcpyAsync(drawn + count, state.expert_use(), 2 * sizeof(int32_t),
                               cudaMemcpyDeviceToDevice, machine.stream()),
               "a copy of counts");
  std::vector<int32_t> drawn_and_use(static_cast<size_t>(count + 2));
  copy_out(machine, drawn_and_use.data(), drawn, drawn_and_use.size() * sizeof(int32_t));
  if (sent.logprobs) {
    copy_out(machine, results.logprobs.data(), logprobs, results.logprobs.size_bytes());
  }
  device.wait();
  std::copy_n(drawn_and_use.begin(), count, results.tokens.begin());
  state.keep_expert_use({.layers = drawn_and_use[count], .distinct = drawn_and_use[count + 1]});
  state.step().keep_proposals(asked, results.tokens);
}

}  // namespace lagoon::kernels::cuda
