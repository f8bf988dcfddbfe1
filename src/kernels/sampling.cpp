#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace lagoon::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  int32_t id = 0;
  float logit = 0;
};

// The order in which candidates are kept: falling logit, then rising id.
bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

float without_nan(float logit) {
  return std::isnan(logit) ? -kInfinity : logit;
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (without_nan(logits[i]) > without_nan(logits[best])) best = static_cast<int32_t>(i);
  }
  return best;
}

// The first two cases keep infinities from giving NaN.
double weight(float logit, float largest, const Sampling& sampling) {
  if (logit == largest) return 1;
  if (logit == -kInfinity) return 0;
  const double weight = std::exp((static_cast<double>(logit) - static_cast<double>(largest)) /
                                 static_cast<double>(sampling.temperature));
  return weight < static_cast<double>(sampling.min_p) ? 0 : weight;
}

// The first candidate whose running sum exceeds `target`. Rounding can leave the last sum at the
// target itself: then the last candidate that weighs anything.
int32_t draw(std::span<const Candidate> candidates, std::span<const double> weights,
             double target) {
  double sum = 0;
  int32_t drawn = candidates[0].id;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (weights[i] == 0) continue;
    drawn = candidates[i].id;
    sum += weights[i];
    if (sum > target) break;
  }
  return drawn;
}

// ---- Rules

// How often the tokens of the asked row and of those before it that are not in `seen` yet.
std::vector<SeenToken> recent_tokens(const LogitRules& rules, int32_t row,
                                     std::span<const Row> rows) {
  std::vector<SeenToken> recent;
  const int32_t sequence = rows[row].sequence;
  for (int32_t r = row; r >= 0; --r) {
    if (rows[r].sequence != sequence || rows[r].position < rules.seen_end) break;
    const int32_t token = rows[r].token;
    const auto known = std::find_if(recent.begin(), recent.end(),
                                    [token](const SeenToken& t) { return t.token == token; });
    if (known != recent.end()) {
      ++known->outputs;
    } else {
      recent.push_back({token, 1});
    }
  }
  return recent;
}

float penalized(float logit, const LogitRules& rules, int32_t outputs) {
  if (rules.repetition != 1) {
    logit = logit > 0 ? logit / rules.repetition : logit * rules.repetition;
  }
  if (outputs == 0) return logit;
  return static_cast<float>(static_cast<double>(logit) -
                            static_cast<double>(rules.frequency) * outputs -
                            static_cast<double>(rules.presence));
}

void penalize(std::span<float> logits, const LogitRules& rules, int32_t row,
              std::span<const Row> rows) {
  std::vector<SeenToken> recent = recent_tokens(rules, row, rows);
  for (const SeenToken& seen : rules.seen) {
    int32_t outputs = seen.outputs;
    for (SeenToken& more : recent) {
      if (more.token != seen.token) continue;
      outputs += more.outputs;
      more.outputs = 0;  // done with
    }
    float& logit = logits[seen.token];
    logit = penalized(logit, rules, outputs);
  }
  for (const SeenToken& only : recent) {
    if (only.outputs == 0) continue;
    float& logit = logits[only.token];
    logit = penalized(logit, rules, only.outputs);
  }
}

std::vector<float> changed_logits(std::span<const float> raw, const SampleRow& asked,
                                  std::span<const Row> rows) {
  std::vector<float> logits(raw.size());
  std::transform(raw.begin(), raw.end(), logits.begin(), without_nan);
  if (!asked.allowed.empty()) {
    for (size_t token = 0; token < logits.size(); ++token) {
      if ((asked.allowed[token / 32] >> (token % 32) & 1) == 0) logits[token] = -kInfinity;
    }
  }
  if (asked.rules == nullptr) return logits;
  const LogitRules& rules = *asked.rules;
  for (const LogitBias& bias : rules.bias) logits[bias.token] += bias.bias;
  if (rows[asked.row].position + 1 < rules.banned_before) {
    for (const int32_t token : rules.banned) logits[token] = -kInfinity;
  }
  if (rules.penalizes()) penalize(logits, rules, asked.row, rows);
  return logits;
}

// ---- Log-probabilities

// Of `token`, then of the best, as many as `out` has room for.
void write_logprobs(std::span<const float> logits, int32_t token, std::span<TokenLogprob> out) {
  const float largest = without_nan(logits[argmax(logits)]);
  const auto difference = [&](int32_t id) {
    const float logit = without_nan(logits[id]);
    return logit == largest ? 0 : static_cast<double>(logit) - static_cast<double>(largest);
  };
  double sum = 0;
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    sum += std::exp(difference(id));
    candidates[i] = {id, without_nan(logits[i])};
  }
  const double log_sum = std::log(sum);
  const auto entry = [&](int32_t id, int64_t before) {
    return TokenLogprob{id, static_cast<float>(difference(id) - log_sum),
                        static_cast<int32_t>(before + 1)};
  };
  const Candidate drawn = candidates[token];
  out[0] = entry(token, std::ranges::count_if(candidates, [&drawn](const Candidate& c) {
                   return comes_before(c, drawn);
                 }));
  const auto best = static_cast<int64_t>(out.size()) - 1;
  std::partial_sort(candidates.begin(), candidates.begin() + best, candidates.end(), comes_before);
  for (int64_t i = 0; i < best; ++i) out[i + 1] = entry(candidates[i].id, i);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform(uint64_t seed, int32_t position) {
  const std::array<uint32_t, 4> words =
      philox4x32({static_cast<uint32_t>(position), 0, 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[1]} << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int32_t sample(std::span<const float> logits, const Sampling& sampling, int32_t position) {
  CHECK(!logits.empty());
  CHECK(sampling.temperature >= 0 && sampling.top_k >= 0 && sampling.top_p >= 0);
  CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  const int32_t first = argmax(logits);
  if (sampling.temperature == 0 || sampling.top_k == 1) return first;

  const float largest = without_nan(logits[first]);
  const size_t vocab = logits.size();
  const bool cut_k = sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < vocab;
  const bool cut_p = sampling.top_p < 1;

  std::vector<Candidate> candidates(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    candidates[i] = {static_cast<int32_t>(i), without_nan(logits[i])};
  }
  if (cut_k) {
    const auto end = candidates.begin() + sampling.top_k;
    std::partial_sort(candidates.begin(), end, candidates.end(), comes_before);
    candidates.erase(end, candidates.end());
  }
  std::vector<double> weights(candidates.size());
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = weight(candidates[i].logit, largest, sampling);
    sum += weights[i];
  }
  if (cut_p) {
    // A heap gives the candidates in falling order one by one: few are needed.
    const auto later = [](const Candidate& a, const Candidate& b) { return comes_before(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), later);
    const double enough = static_cast<double>(sampling.top_p) * sum;
    std::vector<Candidate> kept;
    weights.clear();
    sum = 0;
    do {
      std::pop_heap(candidates.begin(), candidates.end(), later);
      kept.push_back(candidates.back());
      candidates.pop_back();
      weights.push_back(weight(kept.back().logit, largest, sampling));
      sum += weights.back();
    } while (sum < enough && !candidates.empty());
    candidates = std::move(kept);
  }
  return draw(candidates, weights, uniform(sampling.seed, position) * sum);
}

bool plain_greedy(const SampleRow& asked) {
  return asked.sampling.temperature == 0 && asked.rules == nullptr && asked.allowed.empty() &&
         asked.given < 0 && asked.logprobs < 0;
}

int32_t sample_row(std::span<const float> logits, const SampleRow& asked, std::span<const Row> rows,
                   std::span<TokenLogprob> logprobs) {
  int32_t token = asked.given;
  if (token < 0) {
    const int32_t position = rows[asked.row].position + 1;
    token = asked.rules == nullptr && asked.allowed.empty()
                ? sample(logits, asked.sampling, position)
                : sample(changed_logits(logits, asked, rows), asked.sampling, position);
  }
  if (asked.logprobs >= 0) write_logprobs(logits, token, logprobs);
  return token;
}

std::vector<size_t> check_asked(std::span<const SampleRow> asked, const SampleResults& results,
                                size_t rows, int64_t vocab) {
  const auto is_token = [vocab](int32_t id) { return id >= 0 && id < vocab; };
  std::vector<size_t> begins = {0};
  for (const SampleRow& row : asked) {
    CHECK(row.row >= 0 && static_cast<size_t>(row.row) < rows);
    CHECK(row.allowed.empty() || static_cast<int64_t>(row.allowed.size()) == (vocab + 31) / 32);
    CHECK(row.given == -1 || is_token(row.given));
    CHECK(row.logprobs >= -1 && row.logprobs <= vocab);
    begins.push_back(begins.back() + static_cast<size_t>(row.logprobs + 1));
    if (row.rules == nullptr) continue;
    const LogitRules& rules = *row.rules;
    CHECK(rules.repetition > 0);
    CHECK(std::ranges::all_of(rules.bias, [&](const auto& b) { return is_token(b.token); }));
    CHECK(std::ranges::all_of(rules.banned, is_token));
    CHECK(std::ranges::all_of(rules.seen, [&](const auto& s) { return is_token(s.token); }));
  }
  CHECK(results.tokens.empty() || results.tokens.size() == asked.size());
  CHECK(results.logits.empty() || results.logits.size() == asked.size() * vocab);
  CHECK(results.logprobs.size() == begins.back());
  return begins;
}

}  // namespace lagoon::kernels
