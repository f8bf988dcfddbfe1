// What runs on the device: each function puts a few kernels on the stream and returns. Rows
// of activations for products are BF16 with a distance of padded(columns), zero behind the columns.
// Nothing here allocates or waits. Any error is kept by the runtime for Device::wait().
#pragma once

#include <cstdint>

#include "kernels/cuda/layout.h"

struct CUstream_st;

namespace lagoon::kernels::cuda {

using Stream = CUstream_st*;
using Bits16 = uint16_t;  // BF16

// Counters of a state where a kernel's blocks meet: of tiles and key heads, or of rows. Where a
// launch would need more, a kernel of its own does what the last block would.
inline constexpr int64_t kMostArrivals = 16384;

// Places of a state where the choices of layers are announced: more than there are layers under way
// at a time. Two steps of one layer may not follow each other without a copy or a graph's border
// between them, which every step begins with.
inline constexpr int kMostChoices = 1024;

// A packed matrix in device memory.
struct MatrixView {
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;  // FP8 and NVFP4: layout.h
  int32_t rows = 0;
  int32_t columns = 0;
  float divisor = 1;  // of NVFP4: the global scale
  Packing packing = Packing::kBFloat16;
};

// ---- pack.cu

// Looks for the build's code for the current device: cudaSuccess, or the runtime's error.
int find_code();

// Packs rows [first_row, first_row + rows) of a matrix, first_row a multiple of 16, from
// checkpoint order in device memory. `packed` and `packed_scales` are those of the whole matrix.
// Sets *flag to 1 where an FP8 code is a NaN.
void pack(Stream stream, const uint8_t* values, const uint8_t* scales, int64_t first_row,
          int64_t rows, const MatrixView& matrix, uint8_t* packed, uint8_t* packed_scales,
          int32_t* flag);

// What kernels::RandomMatrix says, of BF16 and NVFP4.
struct RandomView {
  Packing packing = Packing::kBFloat16;
  int64_t columns = 0;
  uint64_t values = 0;  // keys
  uint64_t scales = 0;
  float scale = 1;
};
// Rows [first_row, first_row + rows) in checkpoint order: `values` as they are stored, `scales` of
// NVFP4.
void make_random(Stream stream, const RandomView& random, int64_t first_row, int64_t rows,
                 uint8_t* values, uint8_t* scales);

// `count` keys or values of a cache: e4m3 codes, or about N(0, 1) in BF16.
void random_cache(Stream stream, uint64_t key, bool fp8, int64_t count, uint8_t* out);

// out[r] = row ids[r] of the matrix, [rows, columns] in FP32.
void read_rows(Stream stream, const MatrixView& matrix, const int32_t* ids, int64_t rows,
               float* out);

// A token below zero is Row::proposal(place): becomes proposals[place].
void resolve_proposals(Stream stream, const int32_t* proposals, int32_t* tokens, int64_t rows);

// ---- matrix.cu

// y[r * y_stride + n] = sum_k W_nk x_rk, or is added to what is there. `copy`, if any, gets what
// stands in y then, at the same distance.
struct Product {
  MatrixView matrix;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool add = false;
  float* copy = nullptr;
};
inline constexpr int kMostProducts = 4;
// Products of the same rows; matrices of the same columns. With `settles`, the kernel that follows
// does not begin before what came before this one is complete: it may read that at once, past the
// first-level cache.
void multiply(Stream stream, const Product* products, int count, const Bits16* x, int64_t rows,
              bool settles = false);

// ---- rows.cu

// RMSNorm of rows [rows, n] at x_stride; row r is row ids[r] of x if ids is not null. Rounded to
// BF16 into `out` at out_stride (columns n ... zero_to - 1 become zero) or, rounded all the same,
// FP32 into `out_float` [rows, n].
struct Norm {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* ids = nullptr;
  const float* weight = nullptr;
  int64_t n = 0;
  float epsilon = 0;
  Bits16* out = nullptr;
  int64_t out_stride = 0;
  int64_t zero_to = 0;
  float* out_float = nullptr;
};
void norm_rows(Stream stream, const Norm& norm, int64_t rows);

// cos and sin of position * frequency, times `factor`: [rows, pairs] pairs of FP32.
inline constexpr int kMostPairs = 128;
struct Frequencies {
  float values[kMostPairs] = {};
  int pairs = 0;
  float factor = 1;
};
void rotations(Stream stream, const Frequencies& frequencies, const int32_t* positions,
               int64_t rows, float* out);

// Keys or values: [blocks, kv_heads, block_tokens, head_dim], BF16 or e4m3. A block is a page, or
// the ring of a sequence.
struct CacheView {
  uint8_t* keys = nullptr;
  uint8_t* values = nullptr;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_tokens = 0;
  int32_t window = 0;  // 0: pages
  bool fp8 = false;
  float k_scale = 1, v_scale = 1;
};
// Where the rows of a step stand.
struct RowsView {
  const int32_t* positions = nullptr;      // [rows]
  const int32_t* sequences = nullptr;      // [rows]
  const int32_t* table_offsets = nullptr;  // [sequences] of the page table of a sequence
  const int32_t* pages = nullptr;          // all page tables
  int64_t rows = 0;
};
// Norms and rotates q (left as BF16 [rows, heads, head_dim]) and k, and puts k and v into the
// cache. heads may be 0.
struct Store {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const float* rotations = nullptr;
  int heads = 0;
  int pairs = 0;
  float epsilon = 0;
  Bits16* q_out = nullptr;
  CacheView cache;
  RowsView rows;
};
void rotate_and_store(Stream stream, const Store& store);

// ---- experts.cu

struct ExpertView {
  MatrixView gate, up, down;
};
// Which experts the rows of a step chose. Entry e = row * top_k + j is choice j of a row.
struct Routing {
  int32_t* experts = nullptr;   // [entries]
  float* weights = nullptr;     // [entries]
  int32_t* order = nullptr;     // [entries] entries sorted by expert, then by themselves
  int32_t* slots = nullptr;     // [experts + 1, 2]: of each chosen expert, its number and first
                                // place in `order`; behind the last one: (-1, entries)
  int32_t* count = nullptr;     // [1] chosen experts
  ExpertView* views = nullptr;  // [experts] of the chosen experts
  // Whether a multiply() that settles comes between this and the experts: they ask for their
  // weights while the product runs.
  bool settled = false;
  // If not null: where a 1 is written as soon as the choice is there, for which the experts wait in
  // place of the kernel that makes it. A zero before, and again after add_routed().
  int32_t* made = nullptr;
};
// h[e] = BF16(silu(gate x_r) * (up x_r)) of the expert of each entry e of row r. `most_slots`
// bounds the number of chosen experts. Experts of another packing are passed over.
void expert_gate_and_up(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                        const Routing& routing, int top_k, int64_t most_slots, const Bits16* x,
                        Bits16* h);
// y[e] = down h[e], [entries, hidden]. The kernel before lets nobody start until the choice is
// there, as expert_gate_and_up() does.
void expert_down(Stream stream, Packing packing, int64_t inner, int64_t hidden,
                 const Routing& routing, int64_t most_slots, const Bits16* h, float* y);

// ---- routing.cu

inline constexpr int kMostExperts = 1024;
// The experts of each row from logits [rows, experts], then their order. use[0] += 1 and use[1] +=
// the number of chosen experts.
struct RouteArgs {
  const float* logits = nullptr;
  const float* bias = nullptr;
  const ExpertView* table = nullptr;  // [experts]
  int64_t rows = 0;
  int experts = 0;
  int top_k = 0;
  float softcap = 0;  // 0: none
  Routing routing;
  int32_t* use = nullptr;
  // [kRouteZeros] zeros between kernels, where one that multiplies with the router, too, has its
  // blocks meet.
  int32_t* zeros = nullptr;
};
inline constexpr int kRouteZeros = 64 + 8 * 256;
void route(Stream stream, const RouteArgs& args);
// Whether one block can.
bool routes_in_a_block(const RouteArgs& args);

// residual += mlp + scale * sum_j w_j y_j in order of j; `tap`, if any, gets the residual too.
struct AddRouted {
  const float* mlp = nullptr;  // [rows, hidden]
  const float* y = nullptr;    // [entries, hidden]
  Routing routing;
  int top_k = 0;
  float scale = 1;
  int64_t hidden = 0;
  float* residual = nullptr;
  float* tap = nullptr;
  int32_t* arrived = nullptr;  // [kMostArrivals] zeros, if there is a norm
};
// Then what norm_rows() does with the residual, if norm.out is not null.
void add_routed(Stream stream, const AddRouted& args, const Norm& norm, int64_t rows);

// ---- stream.cu

// h = BF16(silu(gate x) * (up x)), [rows, padded(inner)], of up to kStreamedRows rows. Both
// matrices of one packing.
void gate_and_up(Stream stream, const MatrixView& gate, const MatrixView& up, const Bits16* x,
                 int64_t rows, Bits16* h);

// ---- shared_expert.cu

// The shared expert and route() in one kernel: h as gate_and_up() gives it, y = down h and logits
// with the bits of multiply(). route.routing.made becomes 1 once experts are chosen, which is
// earlier. Its blocks wait for each other, so one process may have one backend at work on a device.
// Returns false, having done nothing, if that is not for such matrices or this device.
struct SharedExpert {
  MatrixView gate, up, down, router;
  const Bits16* x = nullptr;
  Bits16* h = nullptr;
  float* y = nullptr;  // [rows, down.rows]
};
bool shared_expert_and_route(Stream stream, const SharedExpert& shared, const RouteArgs& route);

// ---- matrix.cu

// The same bits from products that are there, [rows, inner] each: for more rows, where multiply()
// reads a matrix less often.
void swiglu_rows(Stream stream, const float* gate, const float* up, int64_t rows, int64_t inner,
                 Bits16* h);

// ---- attention.cu

// Rows of a step at consecutive positions of one sequence.
struct Group {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t sequence = 0;
  int32_t first_position = 0;
};
struct Attention {
  const Bits16* q = nullptr;  // [rows, heads, head_dim]
  CacheView cache;
  RowsView rows;
  // Some of the step's groups: rows [first_row, first_row + row_count).
  const Group* groups = nullptr;
  int64_t first_row = 0;
  int64_t row_count = 0;
  int heads = 0;
  // Of kQueryTile queries, these groups together, for one key head; perhaps more than there are,
  // and then an empty group follows.
  int query_tiles = 0;
  int most_chunks = 0;       // that a row sees
  int most_tile_chunks = 0;  // that a tile sees
  float* partial = nullptr;  // of rows, heads and most_chunks: [.., head_dim], then [.., 2]
  // [kMostArrivals] zeros, which are zeros again when the launch is over: blocks count themselves
  // by tile and key head, and the last one of each resets it. Null: a second kernel combines
  // chunks, as it does where there are many chunks or tiles.
  int32_t* arrived = nullptr;
  const float* gate = nullptr;  // [rows, heads] or [rows, heads, head_dim]
  bool gate_per_head = true;
  Bits16* out = nullptr;  // [rows, padded(heads * head_dim)]
};
// The gated attention output. head_dim is 16, 64 or 128.
void attend(Stream stream, const Attention& attention);

// ---- attention_few.cu

// The same bits for few rows of FP8 with heads of 128, if that is a kernel for these and this
// device; else nothing is done, and false is returned. `score`: what makes scores powers of two.
bool attend_few(Stream stream, const Attention& attention, float score);

// ---- sample.cu

// What a row's logits go through before a token is drawn, in device memory; kernels/ops.h.
struct Rules {
  const int32_t* bias_tokens = nullptr;
  const float* biases = nullptr;
  const int32_t* banned = nullptr;
  const int32_t* seen_tokens = nullptr;
  const int32_t* seen_outputs = nullptr;
  int32_t bias_count = 0;
  int32_t banned_count = 0;
  int32_t seen_count = 0;
  int32_t first_recent = 0;  // rows [first_recent, row] of the step are tokens of the answer, too
  float repetition = 1;
  float presence = 0;
  float frequency = 0;
};
// How a token is drawn, and what is asked for with it; kernels/ops.h.
struct Draw {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  int32_t row = 0;       // of the step
  int32_t position = 0;  // that the token will have
  int32_t place = 0;     // of the token among the proposals
  int32_t given = -1;
  int32_t logprobs = -1;
  int64_t logprobs_at = 0;  // its first entry
  uint64_t seed = 0;
  const uint32_t* allowed = nullptr;  // null: all
  bool has_rules = false;
  Rules rules;
  bool changes() const { return has_rules || allowed != nullptr; }
};
// As kernels::TokenLogprob.
struct Logprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;
};
// changed[i] = logits[i] after mask and rules, for rows that have any. step_tokens: of all rows of
// the step.
void change_logits(Stream stream, const float* logits, int64_t vocab, const Draw* draws,
                   int64_t rows, const int32_t* step_tokens, float* changed);
// tokens[i] from changed[i] where draws[i] has mask or rules, else from logits[i], [rows, vocab];
// also into proposals[draws[i].place], if there are any.
void sample(Stream stream, const float* logits, const float* changed, int64_t vocab,
            const Draw* draws, int64_t rows, int32_t* tokens, int32_t* proposals);
// Log-probabilities of tokens[i] and the best under logits[i], of rows that ask for them.
void log_probabilities(Stream stream, const float* logits, int64_t vocab, const Draw* draws,
                       int64_t rows, const int32_t* tokens, Logprob* out);

}  // namespace lagoon::kernels::cuda
