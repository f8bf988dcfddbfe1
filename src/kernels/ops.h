// THE list of operations. A model (src/model) is written in these; a backend implements them. `ref`
// is the specification: what each operation computes and where values are rounded. Every other
// backend is compared with it.
//
// Shapes are row-major, [rows, columns]. A matrix W [N, K] maps a row x [K] to y [N]: y_n = sum_k
// W_nk x_k, summed in FP32 in an order that depends on W alone, so a row's bits never depend on the
// other rows.
//
// Rounding. The residual stream, taps, router logits, softplus gates, softmax and all sums are
// FP32. With Activations::kBFloat16 these are rounded to BF16: the output of every RMSNorm of a
// hidden row; q and k once, after RMSNorm and RoPE; v; the gated attention output; silu(gate) * up.
// Key and value caches hold BF16. With Activations::kFloat32 nothing is rounded and caches hold
// FP32 (for comparison with vectors). With CacheType::kFP8 caches hold e4m3 codes in either mode:
// of k / k_scale and v / v_scale, after the rounding above, to the nearest, saturating at +-448;
// what is read is code * scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lagoon::kernels {

enum class Activations { kBFloat16, kFloat32 };

// What key and value caches hold.
enum class CacheType { kActivations, kFP8 };

// How a matrix is stored in a checkpoint; the weight it stands for is exact in each but kFP8, where
// the product is rounded to FP32.
enum class Format {
  kBFloat16,
  kFloat32,
  kFP8,    // e4m3 * scale, one scale per block of [128, 128]
  kNVFP4,  // e2m1 * e4m3 scale per 16 columns / one global scale
};

// A matrix on the host, valid during the call it is passed to.
struct HostMatrix {
  Format format = Format::kBFloat16;
  int64_t rows = 0;
  int64_t columns = 0;
  const std::byte* values = nullptr;  // [rows, columns]; kNVFP4: two codes a byte, low nibble first
  const std::byte* scales =
      nullptr;  // kFP8: FP32 [ceil(rows/128), ceil(columns/128)]; kNVFP4: e4m3 [rows, columns/16]
  float global_scale = 1;  // kNVFP4: a divisor
};

// A matrix of random numbers (numeric/random_numbers.h): rows [first_row, first_row + rows) of a
// larger one. Element i of that, row after row, is
//   kBFloat16   scale * values.normal(i), rounded
//   kNVFP4      code random_e2m1_codes(values.word(i / 8)), from the low end, i % 8; its block's
//               scale scales.block_scale(i / 16), the global scale `scale`
struct RandomMatrix {
  Format format = Format::kBFloat16;
  int64_t rows = 0;
  int64_t columns = 0;  // kNVFP4: a multiple of 16
  int64_t first_row = 0;
  uint64_t values = 0;  // the key of its numbers
  uint64_t scales = 0;  // kNVFP4: of its scales
  float scale = 1;
};

// A matrix in the backend's own layout.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  PackedWeight() = default;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;
};
using Weight = std::unique_ptr<PackedWeight>;

// Rotates pairs (j, j + rotary/2) of the first `rotary` = 2 * inverse_frequencies.size() dimensions
// of a head; the rest passes through. cos and sin are multiplied by attention_factor.
struct Rope {
  std::vector<float> inverse_frequencies;
  float attention_factor = 1;
};

enum class Gate { kPerHead, kPerElement };

// x += o( gate * attention( rope(norm(q(n))), rope(norm(k(n))), v(n) ) ),  n = RMSNorm(x),
// gate = softplus(g(n)) by head or by element.
struct AttentionLayer {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float norm_epsilon = 0;
  Gate gate = Gate::kPerHead;
  int cache = 0;   // index among StateShape::full (window == 0) or StateShape::sliding
  int window = 0;  // keys at positions (p - window, p] are seen; 0: all up to p
  const Rope* rope = nullptr;
  float k_scale = 1, v_scale = 1;  // of CacheType::kFP8; positive and finite
  Weight input_norm;               // [1, hidden]
  Weight q;                        // [heads * head_dim, hidden]
  Weight k, v;                     // [kv_heads * head_dim, hidden]
  Weight g;                        // [heads, hidden] or [heads * head_dim, hidden]
  Weight q_norm, k_norm;           // [1, head_dim]
  Weight o;                        // [hidden, heads * head_dim]
};

// down( silu(gate x) * (up x) )
struct SwiGlu {
  Weight gate, up;  // [intermediate, hidden]
  Weight down;      // [hidden, intermediate]
};

// Dense (experts empty): x += mlp(m), m = RMSNorm(x).
// Sparse: l = router m; if softcap > 0: l = softcap * tanh(l / softcap); s = sigmoid(l). The top_k
// experts by s + bias (ties to the lowest index); weights s_j / sum of the chosen s.
// x += routed_scale * sum_j w_j expert_j(m) + mlp(m), the sum in order of falling s + bias.
struct FfnLayer {
  float norm_epsilon = 0;
  Weight post_norm;  // [1, hidden]
  SwiGlu mlp;        // the dense one, or the shared expert
  std::vector<SwiGlu> experts;
  Weight router;       // [experts, hidden]
  Weight router_bias;  // [1, experts]
  int top_k = 0;
  float routed_scale = 1;
  float router_softcap = 0;
  int tap = -1;  // >= 0: the residual after this half is kept as this tap of the step
};

// logits = lm_head( RMSNorm(x) )
struct Head {
  float norm_epsilon = 0;
  Weight norm;                            // [1, hidden]
  const PackedWeight* lm_head = nullptr;  // [vocab, hidden]
};

// How a DFlash draft makes the context of a position from the target's taps there:
// c = RMSNorm( fc( concatenation over i of RMSNorm(tap_i; aux_norms[i]) ); hidden_norm ).
struct DraftContext {
  float norm_epsilon = 0;
  std::vector<Weight> aux_norms;  // each [1, hidden]
  Weight fc;                      // [hidden, taps * hidden]
  Weight hidden_norm;             // [1, hidden]
};

// The memory of one model: its key and value caches and the rows of a step.
struct CacheShape {
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // sliding layers only
};
struct StateShape {
  int hidden = 0;
  int vocab = 0;
  int taps = 0;
  int max_rows = 0;   // rows of a step, all sequences together
  int sequences = 0;  // sequence slots; each has a ring per sliding layer
  int block_rows =
      0;          // rows a sequence may write beyond what it commits (draft blocks, rejected rows)
  int pages = 0;  // pages of full-attention layers, shared by all sequences
  int page_tokens = 0;  // positions a page holds, in every full layer; a multiple of 16 (ref: any)
  CacheType cache_type = CacheType::kActivations;
  std::vector<CacheShape> full;
  // Rings of window + block_rows positions and those of the rows that a backend takes at a time,
  // at most max_rows.
  std::vector<CacheShape> sliding;
};
class State {
 public:
  virtual ~State() = default;
};

// A token to compute. Rows of one sequence are contiguous in a batch, at consecutive positions;
// what is cached for lower positions is read, what is cached at or above them is overwritten.
struct Row {
  int32_t token = 0;  // an id, or proposal(j)
  int32_t position = 0;
  int32_t sequence = 0;  // slot, 0..sequences-1

  // Stands for proposal j (0-based) of the last draft of the row's sequence.
  static constexpr int32_t proposal(int j) { return -1 - j; }
};

// page_tables[slot]: page ids in order of position; entry i holds positions [i, i+1) * page_tokens.
struct Batch {
  std::span<const Row> rows;
  std::span<const std::span<const int32_t>> page_tables;
  const State* proposals = nullptr;  // the draft's state, where a row names a proposal
};

// temperature 0 is argmax (ties to the lowest id). Else the distribution is softmax(logits /
// temperature), cut to the tokens whose probability is at least min_p of the largest, to the top_k
// largest (0: all; ties at the border by lowest id), then to the smallest set of the largest with
// probability >= top_p of what is left. The token is drawn by a generator keyed with (seed,
// position of the token): the same key and logits give the same token, alone or in any batch.
// kernels/sampling.h says it to the bit.
struct Sampling {
  float temperature = 0;
  int top_k = 0;
  float top_p = 1;
  uint64_t seed = 0;
  float min_p = 0;  // 0..1; 0: cuts nothing
};

struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // finite
};

// A token that a sequence holds.
struct SeenToken {
  int32_t token = 0;
  int32_t outputs = 0;  // how often in the answer; 0: in the prompt alone
};

// What logits go through before a token is drawn from them, in this order, which is that of vLLM V1
// (vllm/v1/sample/sampler.py, logits_processor/builtin.py). l is a token's logit, FP32; a NaN is
// -infinity from the start.
//   1. Not in SampleRow::allowed: -infinity.
//   2. In `bias`: l + bias, in FP32.
//   3. In `banned`, if the drawn token's position is below banned_before: -infinity.
//   4. In prompt or answer: l > 0 ? l / repetition : l * repetition, in FP32.
//   5. c > 0 times in the answer: (l - frequency * c) - presence, in FP64, then rounded.
// The prompt and the answer are `seen`, and each row of this step that is of the same sequence, at
// position seen_end or above and not after the asked row is one more token of the answer: proposals
// too, since a row's token is drawn as if all rows before it stood. Where 4 and 5 would change
// nothing, `seen` need not be there. All of it need be valid during the call alone.
struct LogitRules {
  std::span<const LogitBias> bias;  // each token once
  std::span<const int32_t> banned;
  int32_t banned_before = 0;
  float repetition = 1;             // above 0
  float presence = 0;               // finite
  float frequency = 0;              // finite
  std::span<const SeenToken> seen;  // each token once
  int32_t seen_end = 0;             // `seen` is of the positions below it

  bool penalizes() const { return repetition != 1 || presence != 0 || frequency != 0; }
};

// Asks for the token that follows batch row `row`.
struct SampleRow {
  int32_t row = 0;
  Sampling sampling;
  const LogitRules* rules = nullptr;  // null: none
  // Token t may be drawn where bit t % 32 of word t / 32 is set; empty: all may.
  std::span<const uint32_t> allowed = {};
  int32_t given = -1;  // not -1: the token is this one; nothing is drawn, rules do not matter
  int logprobs = -1;   // n >= 0: log-probabilities of the token and of the n best; -1: none
};

// A log-probability under the raw logits (no rules, no temperature): log softmax, summed in FP64 in
// an order that depends on the vocabulary alone, rounded to FP32. A logit that is the largest
// differs from it by 0, also where both are infinite; a NaN is -infinity.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  // 1: the best; equal logits in order of id
};

// Where head_sample writes.
struct SampleResults {
  std::span<int32_t> tokens;     // [asked]; empty: not wanted, they are proposals alone
  std::span<float> logits = {};  // raw, [asked, vocab]; empty: not wanted
  // Of each asked row with logprobs = n >= 0, n at most vocab, 1 + n entries: the token, then the n
  // best by rank.
  std::span<TokenLogprob> logprobs = {};
};

// Position `position` of `sequence` was computed as row `row` of the target's last step.
struct ContextRow {
  int32_t row = 0;
  int32_t position = 0;
  int32_t sequence = 0;
};

// How many experts the sparse layers of one step read.
struct ExpertUse {
  int64_t layers = 0;    // sparse layers computed; 0 where a backend does not count
  int64_t distinct = 0;  // experts with at least one row, summed over these layers
};

// Memory of a device that is not the host's, in bytes.
struct DeviceMemory {
  int64_t free = 0;
  int64_t total = 0;
};

// What the steps of a state are made of.
struct Layers {
  const PackedWeight* embedding = nullptr;
  std::span<const AttentionLayer> attention;
  std::span<const FfnLayer> ffn;
  const Head* head = nullptr;
  int64_t positions = 0;  // that a sequence may have
  // Of a draft: draft_context() is called with the state of this target and all of its rows at
  // most.
  const DraftContext* context = nullptr;
  const State* target = nullptr;
};

// Not thread-safe: one thread drives a backend.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Whether an operation is over when its function returns, so that its time can be taken there.
  virtual bool synchronous() const { return false; }

  // Copies a matrix into the backend's layout.
  virtual Result<Weight> prepare(const HostMatrix& matrix) = 0;
  // Makes a matrix where it will lie; null where the backend makes none, or none of this format:
  // then its bytes are made by the caller, for prepare(). Error: no memory.
  virtual Result<Weight> prepare_random(const RandomMatrix& matrix) {
    static_cast<void>(matrix);
    return Weight();
  }
  virtual Result<std::unique_ptr<State>> allocate(const StateShape& shape) = 0;

  // Takes all memory that steps of these layers need, whatever their shapes, so that they take none
  // later. Without it they take what they need when they need it. Errors: no memory.
  virtual Result<void> reserve(State& state, const Layers& layers) {
    static_cast<void>(state);
    static_cast<void>(layers);
    return {};
  }

  // For timing: fills key and value caches with random numbers, about as large as keys and values
  // are and none a NaN, as if all positions had been computed. False where a backend does not.
  virtual bool randomize_caches(State& state, uint64_t key) {
    static_cast<void>(state);
    static_cast<void>(key);
    return false;
  }

  // Begins a step: takes over rows and page tables, resolving proposals to tokens.
  virtual void begin(State& state, const Batch& batch) = 0;
  // residual = rows of the table [vocab, hidden].
  virtual void embed(State& state, const PackedWeight& table) = 0;
  // Writes the step's keys and values to the caches, then attends (causally, by position).
  virtual void attention_half(State& state, const AttentionLayer& layer) = 0;
  virtual void ffn_half(State& state, const FfnLayer& layer) = 0;
  // The next token of each asked row, and what was asked for with it. The tokens are also kept:
  // they are the state's proposals if it is a draft's, in order of row, and replace those of the
  // sequences that were asked for.
  virtual void head_sample(State& state, const Head& head, std::span<const SampleRow> asked,
                           const SampleResults& results) = 0;
  // Keys and values of every draft layer for committed positions, from the taps of the target's
  // last step: u = RMSNorm(c; layer.input_norm), k = rope(RMSNorm(k u)), v = v u. The layers are
  // sliding ones; the rows may be more than draft's max_rows. A backend may do it no sooner than
  // the draft's next step begins, so context and layers must outlive that, or the state.
  virtual void draft_context(State& draft, const State& target, const DraftContext& context,
                             std::span<const AttentionLayer> layers,
                             std::span<const ContextRow> rows) = 0;

  // The tokens of the rows of the last step, proposals resolved: [rows]. Free after head_sample();
  // before it, a backend may have to wait for its device.
  virtual void read_tokens(const State& state, std::span<int32_t> out) const = 0;

  // Of the last step. A backend that proposals and rows never leave may not count.
  virtual ExpertUse expert_use(const State& state) const {
    static_cast<void>(state);
    return {};
  }

  // Whether steps are quicker once steps of their shape have been computed (they are graphs then),
  // so that it is worth while to compute some before there is a request (model/warm_up.h).
  virtual bool replays_steps() const { return false; }

  // Seconds that whoever drives the backend has waited for its device so far: the rest of a step's
  // time is work of the host. Any thread. None where the host computes.
  virtual std::optional<double> waited_seconds() const { return std::nullopt; }

  // Why the backend cannot go on (a device was lost, say), or null. Once it is set, what the last
  // step computed and what later ones do means nothing; the operations return all the same.
  virtual const Error* failure() const { return nullptr; }

  // What the device has; none where it shares the host's memory.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }
  // Bytes per second that the device's memory copies, read and written together, measured now by
  // copying so many; none where computing reads the host's memory, or where so much is not free.
  virtual std::optional<double> measure_read_rate(int64_t bytes) {
    static_cast<void>(bytes);
    return std::nullopt;
  }

  // For tests: tap i of row r of the last step, [hidden].
  virtual void read_tap(const State& state, int tap, int row, std::span<float> out) const = 0;
};

}  // namespace lagoon::kernels
