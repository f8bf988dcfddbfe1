#include "model/random_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/random_source.h"
#include "model/weights.h"
#include "numeric/random_numbers.h"

namespace lagoon::model {
namespace {

using numeric::DType;
using numeric::RandomNumbers;
using Kind = RandomTensor::Kind;

uint64_t mix(uint64_t x) {
  return numeric::mix_bits(x);
}

RandomNumbers numbers_of(const std::string& name, uint64_t seed) {
  return {random_key(name, seed)};
}

// Two e2m1 codes for 16 random bits.
std::array<uint8_t, 65536> make_e2m1_pairs() {
  std::array<uint8_t, 65536> pairs{};
  for (uint32_t i = 0; i < pairs.size(); ++i) {
    pairs[i] =
        static_cast<uint8_t>(numeric::random_e2m1(i & 255u) | numeric::random_e2m1(i >> 8) << 4);
  }
  return pairs;
}

void fill_e2m1(const RandomNumbers& stream, uint64_t first, std::span<std::byte> into) {
  static const std::array<uint8_t, 65536> kPairs = make_e2m1_pairs();
  for (size_t i = 0; i < into.size(); i += 4) {
    uint64_t bits = stream.word((first + i) / 4);
    for (size_t j = i; j < std::min(i + 4, into.size()); ++j, bits >>= 16) {
      into[j] = static_cast<std::byte>(kPairs[bits & 0xffffu]);
    }
  }
}

void fill_e4m3(const RandomTensor& tensor, const RandomNumbers& stream, uint64_t first,
               std::span<std::byte> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = static_cast<std::byte>(tensor.kind == Kind::kBlockScale
                                         ? stream.block_scale(first + i)
                                         : numeric::float_to_e4m3(64 * stream.normal(first + i)));
  }
}

float value(const RandomTensor& tensor, const RandomNumbers& stream, uint64_t index) {
  switch (tensor.kind) {
    case Kind::kNormal:
      return tensor.scale * stream.normal(index);
    case Kind::kAroundScale:
      return tensor.scale * (0.8F + 0.4F * stream.uniform(index));
    default:
      return tensor.scale;
  }
}

}  // namespace

uint64_t random_key(const std::string& name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mix(hash ^ mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t RandomTensor::bytes() const {
  uint64_t bytes = numeric::dtype_size(dtype);
  for (const int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

void fill_random(const RandomTensor& tensor, uint64_t seed, uint64_t first_byte,
                 std::span<std::byte> into) {
  CHECK(first_byte % 8 == 0 && first_byte + into.size() <= tensor.bytes());
  const RandomNumbers stream = numbers_of(tensor.name, seed);
  if (tensor.kind == Kind::kE2M1) {
    fill_e2m1(stream, first_byte, into);
  } else if (tensor.dtype == DType::kF8E4M3) {
    fill_e4m3(tensor, stream, first_byte, into);
  } else if (tensor.dtype == DType::kF32) {
    for (size_t i = 0; i < into.size(); i += sizeof(float)) {
      const float x = value(tensor, stream, (first_byte + i) / sizeof(float));
      std::memcpy(&into[i], &x, sizeof x);
    }
  } else {
    CHECK(tensor.dtype == DType::kBF16);
    for (size_t i = 0; i < into.size(); i += sizeof(uint16_t)) {
      const numeric::BFloat16 x =
          numeric::to_bfloat16(value(tensor, stream, (first_byte + i) / sizeof(uint16_t)));
      std::memcpy(&into[i], &x.bits, sizeof x.bits);
    }
  }
}

namespace {

// Beyond it a bias would have to be so large that nothing of the router's own choice was left.
constexpr double kMostOverlap = 0.95;

// How many of its experts two rows share, on average, where biases have that standard deviation.
// The scores and biases of the simulation are the same for every deviation.
double simulate_overlap(double deviation, int experts, int top_k) {
  constexpr int kModels = 8;
  constexpr int kRows = 48;
  double pairs = 0;
  for (uint64_t model = 0; model < kModels; ++model) {
    const RandomNumbers biases{mix(2 * model + 1)};
    const RandomNumbers logits{mix(2 * model + 2)};
    std::vector<int> chosen(static_cast<size_t>(experts));
    std::vector<std::pair<double, int>> scores(static_cast<size_t>(experts));
    for (int row = 0; row < kRows; ++row) {
      for (int e = 0; e < experts; ++e) {
        const double logit = logits.normal(static_cast<uint64_t>(row) * experts + e);
        scores[static_cast<size_t>(e)] = {
            -(1 / (1 + std::exp(-logit)) + deviation * biases.normal(static_cast<uint64_t>(e))), e};
      }
      std::nth_element(scores.begin(), scores.begin() + top_k - 1, scores.end());
      for (int j = 0; j < top_k; ++j) ++chosen[static_cast<size_t>(scores[j].second)];
    }
    for (const int rows : chosen) pairs += rows * (rows - 1.0);
  }
  return pairs / (kModels * kRows * (kRows - 1.0) * top_k);
}

}  // namespace

Result<RandomModel> random_target_model(const checkpoint::TargetConfig& config,
                                        const RandomOptions& options) {
  RandomModel model;
  if (options.routing_overlap == 0) return model;
  if (config.experts == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "--dummy-routing-overlap acts on routers, and this model has no experts"};
  }
  LAGOON_ASSIGN(model.router_bias,
                router_bias_for(options.routing_overlap, config.experts, config.top_k));
  return model;
}

Result<float> router_bias_for(double overlap, int experts, int top_k) {
  const double independent = static_cast<double>(top_k) / experts;
  if (!(overlap > independent && overlap <= kMostOverlap)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--dummy-routing-overlap is {:g}; it must lie above {:.3g}, what rows "
                             "that choose {} of {} experts independently share, and be at most "
                             "{:g}",
                             overlap, independent, top_k, experts, kMostOverlap)};
  }
  // Thousandths: exp() may differ in its last bit from machine to machine, the result may not.
  int low = 0;
  int high = 16'000;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (simulate_overlap(middle / 1000.0, experts, top_k) < overlap) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<float>(low) / 1000;
}

Result<std::vector<RandomTensor>> random_target(const checkpoint::TargetConfig& config,
                                                const checkpoint::QuantizationScheme& scheme,
                                                const RandomOptions& options) {
  LAGOON_ASSIGN(const RandomModel model, random_target_model(config, options));
  RandomSource source(scheme, model);
  LAGOON_RETURN_IF_ERROR(read_target(source, config));
  return source.take();
}

Result<std::vector<RandomTensor>> random_draft(const checkpoint::DraftConfig& config,
                                               const checkpoint::QuantizationScheme& scheme) {
  RandomSource source(scheme, random_draft_model());
  LAGOON_RETURN_IF_ERROR(read_draft(source, config));
  return source.take();
}

}  // namespace lagoon::model
