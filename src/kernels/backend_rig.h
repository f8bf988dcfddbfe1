// For tests: the same small model on a backend, and steps of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"
#include "kernels/toy_model.h"

namespace lagoon::kernels {

// A backend: ref, cpu with an instruction set, or cuda.
struct Kind {
  enum class Name { kRef, kCpu, kCuda } name = Name::kRef;
  cpu::InstructionSet set = {};  // of kCpu
};

// The kind that a test is about. Set by its fixture.
inline Kind kind;

inline bool is_ref() {
  return kind.name == Kind::Name::kRef;
}
inline bool is_cuda() {
  return kind.name == Kind::Name::kCuda;
}

inline std::unique_ptr<Backend> make_backend(Activations activations, int threads) {
  if (is_ref()) return ref::make_backend(activations, threads);
  if (is_cuda()) return cuda::make_backend(activations).value();
  cpu::select(kind.set);
  return cpu::make_backend(activations, threads);
}

class BackendTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    kind = GetParam();
    if (!is_cuda()) return;
    const auto backend = cuda::make_backend(Activations::kBFloat16);
    if (!backend.ok()) GTEST_SKIP() << backend.error().message;
  }
};

// Ends a test that is not for GPUs, which have no FP32 mode.
#define LAGOON_NOT_WITH_CUDA() \
  if (is_cuda()) GTEST_SKIP() << "the CUDA backend has no activations in FP32"

inline std::vector<Kind> kinds() {
  std::vector<Kind> all = {{Kind::Name::kRef, {}}};
  for (const cpu::InstructionSet set : cpu::available()) all.push_back({Kind::Name::kCpu, set});
  if (cuda::built()) all.push_back({Kind::Name::kCuda, {}});
  return all;
}

inline std::string name_of(const testing::TestParamInfo<Kind>& test) {
  if (test.param.name == Kind::Name::kCuda) return "cuda";
  return test.param.name == Kind::Name::kRef ? "ref" : std::string(cpu::name_of(test.param.set));
}

inline constexpr int kHidden = ToyModel::kHidden;
inline constexpr int kVocab = ToyModel::kVocab;

inline std::vector<int32_t> random_tokens(uint32_t seed, int n) {
  TestRandom random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = random.below(kVocab);
  return tokens;
}

// A backend with the toy on it and a state of the target.
class Machinery {
 public:
  Machinery(Activations activations, int threads, int max_rows, int sequences = 1,
            int block_rows = 0, CacheType cache_type = CacheType::kActivations)
      : backend(make_backend(activations, threads)), toy(*backend, 7) {
    StateShape shape = toy.target_shape(max_rows, sequences, block_rows);
    shape.cache_type = cache_type;
    target = backend->allocate(shape).value();
    tables.resize(sequences);
    for (int i = 0; i < shape.pages; ++i) tables[i % sequences].push_back(i);
  }

  // Runs the target; returns the logits of all rows, [rows, vocab].
  std::vector<float> step(const std::vector<Row>& rows, const State* proposals = nullptr) {
    const std::vector<std::span<const int32_t>> spans(tables.begin(), tables.end());
    backend->begin(*target, {rows, spans, proposals});
    backend->embed(*target, toy.table());
    for (size_t l = 0; l < toy.attention().size(); ++l) {
      backend->attention_half(*target, toy.attention()[l]);
      backend->ffn_half(*target, toy.ffn()[l].layer);
    }
    std::vector<SampleRow> asked(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) asked[i].row = static_cast<int32_t>(i);
    tokens.resize(rows.size());
    std::vector<float> logits(rows.size() * kVocab);
    backend->head_sample(*target, toy.head(), asked, {.tokens = tokens, .logits = logits});
    return logits;
  }

  std::vector<float> tap(int tap, int row) const {
    std::vector<float> out(kHidden);
    backend->read_tap(*target, tap, row, out);
    return out;
  }

  std::unique_ptr<Backend> backend;
  ToyModel toy;
  std::unique_ptr<State> target;
  std::vector<std::vector<int32_t>> tables;
  std::vector<int32_t> tokens;  // drawn by the last step
};

inline std::vector<Row> rows_of(const std::vector<int32_t>& tokens, int first, int count,
                                int32_t sequence = 0) {
  std::vector<Row> rows;
  for (int i = first; i < first + count; ++i) rows.push_back({tokens[i], i, sequence});
  return rows;
}

// Logits of all tokens, computed `chunk` at a time.
inline std::vector<float> run(Machinery& machinery, const std::vector<int32_t>& tokens, int chunk) {
  std::vector<float> logits;
  for (int first = 0; first < static_cast<int>(tokens.size()); first += chunk) {
    const int count = std::min(chunk, static_cast<int>(tokens.size()) - first);
    const std::vector<float> part = machinery.step(rows_of(tokens, first, count));
    logits.insert(logits.end(), part.begin(), part.end());
  }
  return logits;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// |a - b| / |b|
inline double relative_error(std::span<const float> a, const Vector& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

inline std::span<const float> row_of(const std::vector<float>& logits, int row) {
  return std::span<const float>(logits).subspan(int64_t{row} * kVocab, kVocab);
}

}  // namespace lagoon::kernels
