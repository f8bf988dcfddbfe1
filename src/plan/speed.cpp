#include "plan/speed.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "plan/memory_plan.h"

namespace lagoon::plan {
namespace {

constexpr size_t kMeasuredBytes = size_t{256} << 20;
constexpr int kPasses = 4;
constexpr int64_t kLeastCopy = int64_t{256} << 20;  // below, caches count

// Rows, and the mean of their distinct experts per layer.
constexpr std::pair<int, double> kMeasured[] = {{1, 10.0}, {2, 20.0}, {3, 26.4}, {4, 31.5},
                                                {5, 36.1}, {7, 43.3}, {9, 50.4}, {16, 67.6}};
constexpr double kAccepted[] = {0.88, 0.69, 0.64, 0.59, 0.51, 0.39};
constexpr double kTail = 0.8;

double interpolated(int rows) {
  const auto* above = std::begin(kMeasured);
  while (above != std::end(kMeasured) - 1 && above->first < rows) ++above;
  if (above == std::begin(kMeasured)) return above->second;
  const auto* below = above - 1;
  return below->second + (above->second - below->second) * (rows - below->first) /
                             static_cast<double>(above->first - below->first);
}

// Sums the words of a share, in lanes that do not wait for each other.
uint64_t read_all(const uint64_t* words, size_t count) {
  std::array<uint64_t, 8> sums = {};
  for (size_t i = 0; i + sums.size() <= count; i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

}  // namespace

double distinct_experts(int experts, int top_k, int rows) {
  if (experts == 0 || rows == 0) return 0;
  if (experts == 256 && top_k == 10) return std::min<double>(interpolated(rows), experts);
  return experts * (1 - std::pow(1 - static_cast<double>(top_k) / experts, rows));
}

double published_tokens_per_step(int k) {
  double tokens = 1;
  double rate = 0;
  for (int i = 0; i < k; ++i) {
    rate = i < static_cast<int>(std::size(kAccepted)) ? kAccepted[i] : rate * kTail;
    tokens += rate;
  }
  return tokens;
}

ByteModel::ByteModel(const checkpoint::TargetConfig& config, const Inventory& weights,
                     const Inventory* draft, kernels::CacheType cache_type)
    : full_position_(static_cast<double>(position_bytes(config, cache_type))),
      window_(config.window),
      experts_(config.experts),
      top_k_(config.top_k) {
  const auto experts = static_cast<double>(weights.part_bytes(Part::kExperts));
  fixed_ = static_cast<double>(weights.bytes()) - experts -
           static_cast<double>(weights.part_bytes(Part::kEmbedding));
  per_expert_ = experts_ > 0 ? experts / experts_ : 0;
  const auto sliding = std::count_if(config.layers.begin(), config.layers.end(),
                                     [](const auto& layer) { return layer.sliding; });
  const int element = cache_type == kernels::CacheType::kFP8 ? 1 : 2;
  sliding_position_ =
      static_cast<double>(int64_t{2} * sliding * config.kv_heads * config.head_dim * element);
  if (draft != nullptr) {
    draft_bytes_ =
        static_cast<double>(draft->bytes()) + static_cast<double>(weights.part_bytes(Part::kHead));
  }
}

double ByteModel::step_bytes(int rows, int64_t context) const {
  return counted_bytes(distinct_experts(experts_, top_k_, rows), static_cast<double>(context), 1);
}

double ByteModel::counted_bytes(double distinct, double context, int streams) const {
  return fixed_ + distinct * per_expert_ +
         streams * (full_position_ * context +
                    sliding_position_ * std::min(context, static_cast<double>(window_)));
}

double ByteModel::draft_bytes(const checkpoint::DraftConfig& config, double context, int streams,
                              bool fusion) const {
  constexpr double kBFloat16 = 2;
  const auto hidden = static_cast<double>(config.hidden);
  const double matrix = static_cast<double>(config.tap_layers.size()) * hidden * hidden;
  const double position = 2.0 * config.layers * config.kv_heads * config.head_dim;
  return draft_bytes_ - (fusion ? 0 : kBFloat16 * matrix) +
         kBFloat16 * streams * position * std::min(context, static_cast<double>(config.window));
}

double ByteModel::tokens_per_second(int k, int64_t context, double rate) const {
  const double bytes = step_bytes(k + 1, context) + (k > 0 ? draft_bytes_ : 0);
  return published_tokens_per_step(k) * rate / bytes;
}

double measure_read_rate(int threads) {
  const size_t words = kMeasuredBytes / sizeof(uint64_t);
  const std::unique_ptr<uint64_t[]> memory(new (std::nothrow) uint64_t[words]);
  if (memory == nullptr) return 0;
  std::memset(memory.get(), 1, kMeasuredBytes);  // the system gives pages when they are written
  const size_t share = words / static_cast<size_t>(threads);
  std::atomic<uint64_t> sum{0};  // so that reading is not left out
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::jthread> readers;
  readers.reserve(static_cast<size_t>(threads));
  for (int thread = 0; thread < threads; ++thread) {
    readers.emplace_back([&, thread] {
      for (int pass = 0; pass < kPasses; ++pass) {
        sum += read_all(memory.get() + static_cast<size_t>(thread) * share, share);
      }
    });
  }
  readers.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(share * static_cast<size_t>(threads) * sizeof(uint64_t) * kPasses) /
         seconds.count();
}

double measure_memory_rate(kernels::Backend& backend, int64_t bytes, int threads) {
  for (; bytes >= kLeastCopy; bytes /= 2) {
    if (const auto rate = backend.measure_read_rate(bytes)) return *rate;
  }
  // The host's memory says nothing of a device that has its own.
  return backend.device_memory() ? 0 : measure_read_rate(threads);
}

}  // namespace lagoon::plan
