// Draws tokens from logits as kernels/sampling.h says: a block for each row.
//
// Candidates are ordered by falling logit, then rising id. The first kSorted of them are selected
// by radix (as integers), sorted, and summed in order by one thread, as the specification does.
// Where a cut lies beyond them, borders are found by bisection over sums of weights. Where nothing
// is cut, sums go by id in pieces.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kBlockWarps = kThreads / kLanes;
constexpr int kSorted = 1024;

struct Shared {
  uint64_t ranks[kSorted];
  double weights[kSorted];
  double pieces[kThreads];
  uint32_t counts[256];
  uint32_t warp_counts[kBlockWarps];
  uint64_t best;
  uint32_t key;
  uint32_t rest;
  double sum;
  int token;
};

struct Row {
  const float* logits;
  int vocab;
  float largest;
  double temperature;
  double least_weight;  // min_p

  __device__ uint32_t key(int id) const { return key_of(logits[id]); }
  // The first two cases keep infinities from giving NaN.
  __device__ double weight(uint32_t key) const {
    const float logit = logit_of(key);
    if (logit == largest) return 1;
    if (logit == -INFINITY) return 0;
    const double weight =
        exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
    return weight < least_weight ? 0 : weight;
  }
};

__device__ uint64_t block_largest(uint64_t x, Shared& s) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, x, distance);
    x = x > other ? x : other;
  }
  if (threadIdx.x % kLanes == 0) s.ranks[threadIdx.x / kLanes] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    s.best = s.ranks[0];
    for (int w = 1; w < kBlockWarps; ++w) s.best = s.ranks[w] > s.best ? s.ranks[w] : s.best;
  }
  __syncthreads();
  return s.best;
}

// Sums of threads in order of threads.
__device__ double block_sum(double x, Shared& s) {
  s.pieces[threadIdx.x] = x;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) s.pieces[threadIdx.x] += s.pieces[threadIdx.x + half];
  }
  __syncthreads();
  const double sum = s.pieces[0];
  __syncthreads();
  return sum;
}

// The set of candidates: keys above `key`, and of those equal to it the first `ties` by id.
struct Cut {
  uint32_t key = 0;
  uint32_t ties = 0xffffffffu;
};

// The cut that keeps the first `count` candidates, count <= vocab.
__device__ Cut select(const Row& row, uint32_t count, Shared& s) {
  uint32_t prefix = 0;
  uint32_t rest = count;  // to be found among keys with this prefix
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) s.counts[threadIdx.x] = 0;
    __syncthreads();
    for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
      const uint32_t key = row.key(id);
      if (shift == 24 || key >> (shift + 8) == prefix) {
        atomicAdd(&s.counts[key >> shift & 255], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t digit = 255;
      while (s.counts[digit] < rest) rest -= s.counts[digit--];
      s.key = prefix << 8 | digit;
      s.rest = rest;
    }
    __syncthreads();
    prefix = s.key;
    rest = s.rest;
    __syncthreads();
  }
  return {prefix, rest};
}

// Calls take(id, key, tie) for the ids of a cut; tie counts those with the key of the cut by id.
// Each warp has a range of ids.
template <typename Take>
__device__ void for_each_of(const Row& row, const Cut& cut, Shared& s, const Take& take) {
  const int warp = threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int length = (row.vocab + kBlockWarps - 1) / kBlockWarps;
  const int first = warp * length;
  const int end = min(first + length, row.vocab);
  uint32_t ties = 0;
  for (int base = first; base < end; base += kLanes) {
    const int id = base + lane;
    ties += __popc(__ballot_sync(0xffffffffu, id < end && row.key(min(id, end - 1)) == cut.key));
  }
  if (lane == 0) s.warp_counts[warp] = ties;
  __syncthreads();
  ties = 0;  // in the ranges before
  for (int w = 0; w < warp; ++w) ties += s.warp_counts[w];
  for (int base = first; base < end; base += kLanes) {
    const int id = base + lane;
    const uint32_t key = id < end ? row.key(id) : 0;
    const uint32_t equal = __ballot_sync(0xffffffffu, id < end && key == cut.key);
    const uint32_t tie = ties + __popc(equal & ((1u << lane) - 1));
    if (id < end && (key > cut.key || (key == cut.key && tie < cut.ties))) take(id, key, tie);
    ties += __popc(equal);
  }
  __syncthreads();
}

__device__ void sort_ranks(Shared& s) {
  for (int size = 2; size <= kSorted; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      const int i = threadIdx.x;
      const int other = i ^ stride;
      if (other > i) {
        const bool falling = (i & size) == 0;
        const uint64_t a = s.ranks[i];
        const uint64_t b = s.ranks[other];
        if ((a < b) == falling) {
          s.ranks[i] = b;
          s.ranks[other] = a;
        }
      }
      __syncthreads();
    }
  }
}

// The first `count` <= kSorted candidates behind those of `before`, in order, into s.ranks.
__device__ void sort_first(const Row& row, const Cut& before, uint32_t passed, uint32_t count,
                           Shared& s) {
  const Cut cut = select(row, passed + count, s);
  for (int i = threadIdx.x; i < kSorted; i += kThreads) s.ranks[i] = 0;
  if (threadIdx.x == 0) s.rest = 0;
  __syncthreads();
  for_each_of(row, cut, s, [&](int id, uint32_t key, uint32_t tie) {
    // `tie` counts keys of this cut; those of `before` differ from it or are the first of them.
    if (passed > 0 &&
        (key > before.key || (key == before.key && before.key == cut.key && tie < before.ties))) {
      return;
    }
    if (passed > 0 && key == before.key && before.key != cut.key) {
      // How many of the same key have a lower id decides; such keys are few.
      uint32_t lower = 0;
      for (int i = 0; i < id; ++i) lower += row.key(i) == key ? 1 : 0;
      if (lower < before.ties) return;
    }
    s.ranks[atomicAdd(&s.rest, 1u)] = rank_of(key, id);
  });
  sort_ranks(s);
}

// The sum of weights of the candidates of `cut` with keys >= `least`.
__device__ double sum_from(const Row& row, const Cut& cut, uint32_t least, Shared& s) {
  double sum = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
    const uint32_t key = row.key(id);
    if (key > cut.key && key >= least) sum += row.weight(key);
  }
  sum = block_sum(sum, s);
  if (cut.key < least || cut.ties == 0) return sum;
  uint32_t ties = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) ties += row.key(id) == cut.key ? 1 : 0;
  const double all = block_sum(ties, s);
  if (all == 0) return sum;  // the key of Cut() is no number's, and its weight would be a NaN
  return sum + row.weight(cut.key) * fmin(all, static_cast<double>(cut.ties));
}

// The candidates up to the one at which the running sum reaches (or, if `beyond`, exceeds) a
// target: a cut within `cut`.
__device__ Cut cut_at(const Row& row, const Cut& cut, double target, bool beyond, Shared& s) {
  uint32_t low = cut.key;  // a sum from here on reaches it, or none does
  uint32_t high = 0xffffffffu;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2 + 1;
    const double sum = sum_from(row, cut, middle, s);
    if (beyond ? sum > target : sum >= target) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const double above = low == 0xffffffffu ? 0 : sum_from(row, cut, low + 1, s);
  const double weight = row.weight(low);
  const uint32_t most = low == cut.key ? cut.ties : 0xffffffffu;
  double ties = weight > 0 ? ceil((target - above) / weight) : 1;
  if (beyond && weight > 0 && above + ties * weight <= target) ties += 1;
  ties = fmax(ties, 1.0);
  return {low, ties < static_cast<double>(most) ? static_cast<uint32_t>(ties) : most};
}

// The last candidate of a cut, in the order of candidates; `otherwise` if it has none.
__device__ int last_of(const Row& row, const Cut& cut, int otherwise, Shared& s) {
  uint32_t all = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) all += row.key(id) == cut.key ? 1 : 0;
  const uint32_t wanted = min(cut.ties, static_cast<uint32_t>(block_sum(all, s)));
  if (threadIdx.x == 0) s.token = otherwise;
  __syncthreads();
  for_each_of(row, cut, s, [&](int id, uint32_t key, uint32_t tie) {
    if (key == cut.key && tie + 1 == wanted) s.token = id;
  });
  return s.token;
}

// kernels/sampling.h
__device__ double uniform(uint64_t seed, int32_t position) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = 0, c2 = 0, c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const uint64_t bits = static_cast<uint64_t>(c1) << 32 | c0;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Nothing is cut: pieces of ids in order, then the ids of one piece.
__device__ int draw_by_id(const Row& row, double random, int first, Shared& s) {
  const int length = (row.vocab + kThreads - 1) / kThreads;
  const int begin = threadIdx.x * length;
  const int end = min(begin + length, row.vocab);
  double own = 0;
  for (int id = begin; id < end; ++id) own += row.weight(row.key(id));
  s.pieces[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (const double piece : s.pieces) sum += piece;
    const double target = random * sum;
    double before = 0;
    int token = first;
    int piece = 0;
    // The last piece that weighs anything, if none goes beyond the target.
    for (int p = 0; p < kThreads; ++p) {
      if (s.pieces[p] == 0) continue;
      piece = p;
      if (before + s.pieces[p] > target) break;
      before += s.pieces[p];
    }
    double running = before;
    for (int id = piece * length; id < min(piece * length + length, row.vocab); ++id) {
      const double weight = row.weight(row.key(id));
      if (weight == 0) continue;
      token = id;
      running += weight;
      if (running > target) break;
    }
    s.token = token;
  }
  __syncthreads();
  return s.token;
}

// The token, or -1 where it lies behind the sorted candidates, by one thread. `enough`: where the
// prefix that is kept ends, infinite if nothing cuts it; `sum`: of all candidates.
__device__ int draw_sorted(int sorted, bool all, double enough, double sum, double random,
                           Shared& s) {
  int kept = 0;
  double kept_sum = 0;
  if (enough < INFINITY) {
    while (kept < sorted) {
      kept_sum += s.weights[kept++];
      if (!(kept_sum < enough)) break;
    }
    if (kept_sum < enough && !all) return -1;
  } else {
    kept = sorted;
    kept_sum = sum;
  }
  const double target = random * kept_sum;
  double running = 0;
  int token = id_of(s.ranks[0]);
  for (int i = 0; i < kept; ++i) {
    if (s.weights[i] == 0) continue;
    token = id_of(s.ranks[i]);
    running += s.weights[i];
    if (running > target) return token;
  }
  return all || enough < INFINITY ? token : -1;
}

__device__ int draw_cut(const Row& row, const Draw& draw, bool cut_k, bool cut_p, int first,
                        Shared& s) {
  const uint32_t candidates = cut_k ? draw.top_k : row.vocab;
  const uint32_t sorted = min(candidates, static_cast<uint32_t>(kSorted));
  const Cut cut = cut_k ? select(row, candidates, s) : Cut();
  sort_first(row, {}, 0, sorted, s);
  for (int i = threadIdx.x; i < static_cast<int>(sorted); i += kThreads) {
    s.weights[i] = row.weight(static_cast<uint32_t>(s.ranks[i] >> 32));
  }
  __syncthreads();
  double sum = 0;
  if (cut_k && sorted == candidates) {
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < sorted; ++i) sum += s.weights[i];
      s.sum = sum;
    }
    __syncthreads();
    sum = s.sum;
  } else {
    sum = sum_from(row, cut, 0, s);
  }
  const double enough = cut_p ? static_cast<double>(draw.top_p) * sum : INFINITY;
  const double random = uniform(draw.seed, draw.position);
  if (threadIdx.x == 0) {
    s.token = draw_sorted(static_cast<int>(sorted), sorted == candidates, enough, sum, random, s);
  }
  __syncthreads();
  const int token = s.token;
  __syncthreads();
  if (token >= 0) return token;
  const Cut kept = cut_p ? cut_at(row, cut, enough, false, s) : cut;
  const double kept_sum = cut_p ? sum_from(row, kept, 0, s) : sum;
  return last_of(row, cut_at(row, kept, random * kept_sum, true, s), first, s);
}

__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, const float* changed, int64_t vocab, const Draw* draws,
                  int32_t* tokens, int32_t* proposals) {
  __shared__ Shared s;
  const Draw& draw = draws[blockIdx.x];
  const auto keep = [&](int token) {
    if (threadIdx.x != 0) return;
    tokens[blockIdx.x] = token;
    if (proposals != nullptr) proposals[draw.place] = token;
  };
  if (draw.given >= 0) {
    keep(draw.given);
    return;
  }
  const bool is_changed = draw.has_rules || draw.allowed != nullptr;
  Row row = {(is_changed ? changed : logits) + blockIdx.x * vocab, static_cast<int>(vocab), 0,
             draw.temperature, draw.min_p};
  uint64_t best = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
    const uint64_t rank = rank_of(row.key(id), id);
    best = best > rank ? best : rank;
  }
  best = block_largest(best, s);
  const int first = id_of(best);
  int token = first;
  if (draw.temperature > 0 && draw.top_k != 1) {
    row.largest = logit_of(static_cast<uint32_t>(best >> 32));
    const bool cut_k = draw.top_k > 0 && draw.top_k < row.vocab;
    const bool cut_p = draw.top_p < 1;
    token = cut_k || cut_p ? draw_cut(row, draw, cut_k, cut_p, first, s)
                           : draw_by_id(row, uniform(draw.seed, draw.position), first, s);
  }
  keep(token);
}

// ---- Rules

__device__ float penalized(float logit, const Rules& rules, int outputs) {
  if (rules.repetition != 1) {
    logit = logit > 0 ? __fdiv_rn(logit, rules.repetition) : __fmul_rn(logit, rules.repetition);
  }
  if (outputs == 0) return logit;
  const double less = __dmul_rn(rules.frequency, outputs);
  return static_cast<float>(__dsub_rn(__dsub_rn(logit, less), rules.presence));
}

__device__ void penalize(float* logits, const Rules& rules, int row, const int32_t* step_tokens) {
  for (int i = threadIdx.x; i < rules.seen_count; i += blockDim.x) {
    const int token = rules.seen_tokens[i];
    int outputs = rules.seen_outputs[i];
    for (int r = rules.first_recent; r <= row; ++r) outputs += step_tokens[r] == token ? 1 : 0;
    logits[token] = penalized(logits[token], rules, outputs);
  }
  for (int r = rules.first_recent; r <= row; ++r) {
    const int token = step_tokens[r];
    bool known = false;
    int outputs = 0;
    for (int other = rules.first_recent; other <= row; ++other) {
      if (step_tokens[other] != token) continue;
      known = known || other < r;
      ++outputs;
    }
    for (int i = threadIdx.x; i < rules.seen_count; i += blockDim.x) {
      known = known || rules.seen_tokens[i] == token;
    }
    if (__syncthreads_or(known ? 1 : 0) == 0 && threadIdx.x == 0) {
      logits[token] = penalized(logits[token], rules, outputs);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    change_kernel(const float* logits, int64_t vocab, const Draw* draws, const int32_t* step_tokens,
                  float* changed) {
  const Draw& draw = draws[blockIdx.x];
  if (!draw.has_rules && draw.allowed == nullptr) return;
  const float* from = logits + blockIdx.x * vocab;
  float* to = changed + blockIdx.x * vocab;
  for (int64_t id = threadIdx.x; id < vocab; id += blockDim.x) {
    const float logit = isnan(from[id]) ? -INFINITY : from[id];
    const bool may = draw.allowed == nullptr || (draw.allowed[id / 32] >> (id % 32) & 1) != 0;
    to[id] = may ? logit : -INFINITY;
  }
  if (!draw.has_rules) return;
  const Rules& rules = draw.rules;
  __syncthreads();
  for (int i = threadIdx.x; i < rules.bias_count; i += blockDim.x) {
    to[rules.bias_tokens[i]] += rules.biases[i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < rules.banned_count; i += blockDim.x) {
    to[rules.banned[i]] = -INFINITY;
  }
  __syncthreads();
  if (rules.repetition != 1 || rules.presence != 0 || rules.frequency != 0) {
    penalize(to, rules, draw.row, step_tokens);
  }
}

// ---- Log-probabilities

__device__ double difference(const Row& row, uint32_t key) {
  const float logit = logit_of(key);
  return logit == row.largest ? 0 : static_cast<double>(logit) - static_cast<double>(row.largest);
}

__global__ void __launch_bounds__(kThreads)
    logprob_kernel(const float* logits, int64_t vocab, const Draw* draws, const int32_t* tokens,
                   Logprob* out) {
  __shared__ Shared s;
  const Draw& draw = draws[blockIdx.x];
  if (draw.logprobs < 0) return;
  Row row = {logits + blockIdx.x * vocab, static_cast<int>(vocab), 0, 1, 0};
  Logprob* to = out + draw.logprobs_at;
  const int token = tokens[blockIdx.x];
  const uint64_t own = rank_of(row.key(token), token);
  uint64_t best = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
    const uint64_t rank = rank_of(row.key(id), id);
    best = best > rank ? best : rank;
  }
  best = block_largest(best, s);
  row.largest = logit_of(static_cast<uint32_t>(best >> 32));
  double sum = 0;
  double before = 0;
  for (int id = threadIdx.x; id < row.vocab; id += kThreads) {
    const uint32_t key = row.key(id);
    sum += exp(difference(row, key));
    before += rank_of(key, id) > own ? 1 : 0;
  }
  const double log_sum = log(block_sum(sum, s));
  before = block_sum(before, s);
  if (threadIdx.x == 0) {
    to[0] = {token, static_cast<float>(difference(row, row.key(token)) - log_sum),
             static_cast<int>(before) + 1};
  }
  Cut passed_cut = {0xffffffffu, 0};
  for (int passed = 0; passed < draw.logprobs; passed += kSorted) {
    const int count = min(draw.logprobs - passed, kSorted);
    sort_first(row, passed_cut, static_cast<uint32_t>(passed), static_cast<uint32_t>(count), s);
    for (int i = threadIdx.x; i < count; i += kThreads) {
      const auto key = static_cast<uint32_t>(s.ranks[i] >> 32);
      to[1 + passed + i] = {id_of(s.ranks[i]), static_cast<float>(difference(row, key) - log_sum),
                            passed + i + 1};
    }
    __syncthreads();
    if (passed + kSorted < draw.logprobs) {
      passed_cut = select(row, static_cast<uint32_t>(passed + kSorted), s);
    }
  }
}

}  // namespace

void change_logits(Stream stream, const float* logits, int64_t vocab, const Draw* draws,
                   int64_t rows, const int32_t* step_tokens, float* changed) {
  change_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, vocab, draws,
                                                                      step_tokens, changed);
}

void sample(Stream stream, const float* logits, const float* changed, int64_t vocab,
            const Draw* draws, int64_t rows, int32_t* tokens, int32_t* proposals) {
  sample_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, changed, vocab, draws,
                                                                      tokens, proposals);
}

void log_probabilities(Stream stream, const float* logits, int64_t vocab, const Draw* draws,
                       int64_t rows, const int32_t* tokens, Logprob* out) {
  logprob_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, vocab, draws, tokens,
                                                                       out);
}

}  // namespace lagoon::kernels::cuda
