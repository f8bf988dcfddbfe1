#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kernels/cuda/matrix.h"
#include "kernels/cuda/operations.h"
#include "kernels/sampling.h"

namespace lagoon::kernels::cuda {
namespace {

// Rows whose logits are in memory at a time.
constexpr int64_t kChunkRows = 64;

static_assert(sizeof(Logprob) == sizeof(TokenLogprob));

// Asked rows go through in batches, one but for rare ones that ask for very much: each batch is one
// copy to the device and one from it, of which the host has room for so much.
constexpr int64_t kRulesOfSequence = int64_t{1} << 20;  // bytes
constexpr int64_t kMoreLogprobs = int64_t{1} << 16;     // entries
struct Batch {
  int64_t rows, upload, logprobs;  // at most; upload in bytes
  explicit Batch(const StateShape& shape)
      : rows(shape.max_rows), logprobs(shape.vocab + 1 + kMoreLogprobs) {
    // Biases, bans and penalties of all tokens, and a mask.
    const int64_t largest_rules = 4 * (5 * int64_t{shape.vocab} + ceil_divide(shape.vocab, 32));
    upload = rows * static_cast<int64_t>(sizeof(Draw) + sizeof(int32_t)) + largest_rules +
             shape.sequences * std::min(largest_rules, kRulesOfSequence);
  }
};

// What is asked for, on the device.
struct Asked {
  const int32_t* rows = nullptr;
  const Draw* draws = nullptr;
  bool changes = false;  // any row has rules or a mask
  int64_t logprobs = 0;  // entries of log-probabilities
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
  int64_t bias_tokens = 0, biases = 0, banned = 0;
  int32_t banned_count = 0;
  int64_t seen_tokens = 0, seen_outputs = 0;
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
  std::vector<int32_t> banned(rules.banned.begin(), rules.banned.end());  // may name one twice
  std::ranges::sort(banned);
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  return {.bias_tokens = words.add(std::span<const int32_t>(tokens)),
          .biases = words.add(std::span<const float>(biases)),
          .banned = words.add(std::span<const int32_t>(banned)),
          .banned_count = static_cast<int32_t>(banned.size()),
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
  out.banned_count = bans ? at.banned_count : 0;
  out.seen_count = static_cast<int32_t>(rules.seen.size());
  out.first_recent = first_recent(rules, row, rows);
  out.repetition = rules.repetition;
  out.presence = rules.presence;
  out.frequency = rules.frequency;
  return out;
}

// The words of a batch, and where the rules and masks of its rows lie among them.
struct Request {
  Words words;                                           // numbers of rows first
  std::unordered_map<const LogitRules*, RulesAt> rules;  // several rows may share theirs
  std::unordered_map<const uint32_t*, int64_t> masks;

  explicit Request(std::span<const SampleRow> asked) {
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
  }
};

// Bytes that the rules of a row add to a batch, at most.
int64_t rule_bytes(const LogitRules& rules, int64_t vocab) {
  const auto words = 2 * static_cast<int64_t>(rules.bias.size() + rules.seen.size()) +
                     std::min(vocab, static_cast<int64_t>(rules.banned.size()));
  return words * 4;
}

// How many of the asked rows make the next batch.
size_t next_batch(std::span<const SampleRow> asked, const Batch& most, int64_t vocab) {
  int64_t upload = 0;
  int64_t logprobs = 0;
  std::unordered_set<const void*> known;
  for (size_t i = 0; i < asked.size(); ++i) {
    upload += static_cast<int64_t>(sizeof(Draw) + sizeof(int32_t));
    // Several rows may share their rules, and their mask.
    const LogitRules* rules = asked[i].given < 0 ? asked[i].rules : nullptr;
    if (rules != nullptr && known.insert(rules).second) upload += rule_bytes(*rules, vocab);
    const std::span<const uint32_t> mask = asked[i].allowed;
    if (asked[i].given < 0 && !mask.empty() && known.insert(mask.data()).second) {
      upload += static_cast<int64_t>(mask.size_bytes());
    }
    logprobs += asked[i].logprobs + 1;
    const bool full =
        static_cast<int64_t>(i) == most.rows || upload > most.upload || logprobs > most.logprobs;
    if (i > 0 && full) return i;
  }
  return asked.size();
}

// Nothing in it after a failure of the device.
Asked send(CudaState& state, std::span<const SampleRow> asked, std::span<const int32_t> places) {
  const std::span<const Row> rows = state.step().rows();
  const Request request(asked);
  const std::vector<uint32_t>& words = request.words.words();
  const size_t draw_bytes = asked.size() * sizeof(Draw);
  const auto bytes = static_cast<int64_t>(draw_bytes + words.size() * 4);
  uint8_t* to = state.draws().open(bytes);
  if (to == nullptr) return {};
  const uint8_t* mirror = state.draws().mirror();
  const auto* device_words = reinterpret_cast<const uint32_t*>(mirror + draw_bytes);
  Asked out = {.rows = reinterpret_cast<const int32_t*>(device_words),
               .draws = reinterpret_cast<const Draw*>(mirror)};
  for (size_t i = 0; i < asked.size(); ++i) {
    const SampleRow& row = asked[i];
    Draw draw;
    draw.temperature = row.sampling.temperature;
    draw.top_k = row.sampling.top_k;
    draw.top_p = row.sampling.top_p;
    draw.min_p = row.sampling.min_p;
    draw.seed = row.sampling.seed;
    draw.row = row.row;
    draw.position = rows[row.row].position + 1;
    draw.place = places[i];
    draw.given = row.given;
    draw.logprobs = row.logprobs;
    draw.logprobs_at = out.logprobs;
    if (row.given < 0 && row.rules != nullptr) {
      draw.has_rules = true;
      draw.rules =
          rules_on_device(*row.rules, request.rules.at(row.rules), device_words, row.row, rows);
    }
    if (row.given < 0 && !row.allowed.empty()) {
      draw.allowed = device_words + request.masks.at(row.allowed.data());
    }
    out.changes = out.changes || draw.changes();
    out.logprobs += row.logprobs + 1;
    std::memcpy(to + i * sizeof(Draw), &draw, sizeof draw);
  }
  std::memcpy(to + draw_bytes, words.data(), words.size() * 4);
  state.draws().send(bytes);
  return out;
}

struct Buffers {
  Bits16* normed;
  float *raw, *changed;
  int32_t* drawn;
  Logprob* logprobs;
  Buffers(Cutter& cutter, const StateShape& shape, int64_t count, bool changes, int64_t entries) {
    const int64_t most = std::min(count, kChunkRows);
    normed = cutter.take<Bits16>(most * padded(shape.hidden));
    raw = cutter.take<float>(most * shape.vocab);
    changed = changes ? cutter.take<float>(most * shape.vocab) : raw;
    drawn = cutter.take<int32_t>(count);
    logprobs = cutter.take<Logprob>(entries);
  }
};

int64_t bytes_of(const StateShape& shape, int64_t count, bool changes, int64_t entries) {
  Cutter cutter;
  const Buffers buffers(cutter, shape, count, changes, entries);
  static_cast<void>(buffers);
  return cutter.used();
}

// Logits of up to 64 rows of a batch, and what is drawn from them.
void compute_rows(Machine& machine, const CudaState& state, const Head& head, const Asked& sent,
                  int64_t first, int64_t rows, const Buffers& b) {
  const int64_t hidden = state.shape().hidden;
  const int64_t vocab = state.shape().vocab;
  const Draw* draws = sent.draws + first;
  norm_rows(machine.stream(),
            {.x = state.residual(),
             .x_stride = hidden,
             .ids = sent.rows + first,
             .weight = vector_of(head.norm, hidden),
             .n = hidden,
             .epsilon = head.norm_epsilon,
             .out = b.normed,
             .out_stride = padded(hidden),
             .zero_to = padded(hidden)},
            rows);
  const Product product = {
      .matrix = view_of(head.lm_head, vocab, hidden), .y = b.raw, .y_stride = vocab};
  multiply(machine.stream(), &product, 1, b.normed, rows);
  if (sent.changes) {
    change_logits(machine.stream(), b.raw, vocab, draws, rows, state.tokens(), b.changed);
  }
  sample(machine.stream(), b.raw, b.changed, vocab, draws, rows, b.drawn + first,
         state.proposals());
  if (sent.logprobs > 0) {
    log_probabilities(machine.stream(), b.raw, vocab, draws, rows, b.drawn + first, b.logprobs);
  }
}

// All that the launches of a batch depend on.
uint64_t key_of(const CudaState& state, const Head& head, const Asked& sent, int64_t count,
                const Buffers& b) {
  uint64_t key = mix(mix(0x68656164, static_cast<uint64_t>(count)), &head);
  key = mix(mix(key, sent.draws), sent.rows);
  key = mix(mix(key, state.tokens()), b.normed);
  return mix(key, static_cast<uint64_t>(sent.changes) * 2 + (sent.logprobs > 0 ? 1 : 0));
}

void compute(Machine& machine, CudaState& state, const Head& head, const Asked& sent, int64_t count,
             const Buffers& b, std::span<float> logits) {
  if (logits.empty() && count <= kChunkRows) {
    state.graphs().run(key_of(state, head, sent, count, b),
                       [&] { compute_rows(machine, state, head, sent, 0, count, b); });
    return;
  }
  const int64_t vocab = state.shape().vocab;
  for (int64_t first = 0; first < count; first += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, count - first);
    compute_rows(machine, state, head, sent, first, rows, b);
    if (logits.empty()) continue;
    copy_out(machine.device, logits.data() + first * vocab, b.raw,
             rows * vocab * static_cast<int64_t>(sizeof(float)));
  }
}

// Brings what was drawn to the host, with the counts of experts and the tokens of the step: one
// wait.
void fetch(Machine& machine, CudaState& state, const Buffers& b, int64_t count,
           const SampleResults& results) {
  constexpr auto kWord = static_cast<int64_t>(sizeof(int32_t));
  const int64_t step_words = 2 + state.rows();
  const auto logprob_bytes = static_cast<int64_t>(results.logprobs.size_bytes());
  uint8_t* host = state.drawn().open((step_words + count) * kWord + logprob_bytes);
  if (host == nullptr) return;
  uint8_t* drawn = host + step_words * kWord;
  uint8_t* logprobs = drawn + count * kWord;
  copy_out(machine.device, host, state.expert_use(), step_words * kWord);
  copy_out(machine.device, drawn, b.drawn, count * kWord);
  copy_out(machine.device, logprobs, b.logprobs, logprob_bytes);
  machine.device.wait();
  if (machine.device.failed()) return;
  const auto* words = reinterpret_cast<const int32_t*>(host);
  state.keep_counts_and_tokens({words, static_cast<size_t>(step_words)});
  std::copy_n(words + step_words, results.tokens.size(), results.tokens.begin());
  if (logprob_bytes > 0)
    std::memcpy(results.logprobs.data(), logprobs, results.logprobs.size_bytes());
}

void sample_batch(Machine& machine, CudaState& state, const Head& head,
                  std::span<const SampleRow> asked, std::span<const int32_t> places,
                  const SampleResults& results) {
  const Asked sent = send(state, asked, places);
  if (sent.draws == nullptr) return;
  const auto count = static_cast<int64_t>(asked.size());
  const StateShape& shape = state.shape();
  uint8_t* memory =
      machine.device.take_workspace(bytes_of(shape, count, sent.changes, sent.logprobs));
  if (memory == nullptr) return;
  Cutter cutter(memory);
  const Buffers b(cutter, shape, count, sent.changes, sent.logprobs);
  compute(machine, state, head, sent, count, b, results.logits);
  // Proposals that nobody asked for by value stay on the device.
  if (results.tokens.empty() && results.logits.empty() && results.logprobs.empty()) return;
  fetch(machine, state, b, count, results);
}

}  // namespace

int64_t head_bytes(const CudaState& state) {
  const Batch most(state.shape());
  return bytes_of(state.shape(), most.rows, true, most.logprobs);
}

bool reserve_head(CudaState& state) {
  const Batch most(state.shape());
  const int64_t words = 2 + 2 * most.rows;
  return state.draws().reserve(most.upload) &&
         state.drawn().reserve(words * 4 + most.logprobs * static_cast<int64_t>(sizeof(Logprob)));
}

void head_sample(Machine& machine, CudaState& state, const Head& head,
                 std::span<const SampleRow> asked, const SampleResults& results) {
  const auto vocab = static_cast<size_t>(state.shape().vocab);
  const std::vector<size_t> logprobs_at =
      check_asked(asked, results, static_cast<size_t>(state.rows()), state.shape().vocab);
  const std::vector<int32_t> places = state.step().keep_places(asked);
  const Batch most(state.shape());
  size_t first = 0;
  while (first < asked.size() && !machine.device.failed()) {
    const size_t count = next_batch(asked.subspan(first), most, state.shape().vocab);
    const size_t end = first + count;
    SampleResults of_batch;
    if (!results.tokens.empty()) of_batch.tokens = results.tokens.subspan(first, count);
    if (!results.logits.empty())
      of_batch.logits = results.logits.subspan(first * vocab, count * vocab);
    of_batch.logprobs =
        results.logprobs.subspan(logprobs_at[first], logprobs_at[end] - logprobs_at[first]);
    sample_batch(machine, state, head, asked.subspan(first, count),
                 std::span(places).subspan(first, count), of_batch);
    first = end;
  }
  if (!machine.device.failed()) return;
  // Something that is a token, at least.
  std::ranges::fill(results.tokens, 0);
  std::ranges::fill(results.logits, 0.0f);
  std::ranges::fill(results.logprobs, TokenLogprob());
}

}  // namespace lagoon::kernels::cuda
