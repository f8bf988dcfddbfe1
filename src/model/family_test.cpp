// Small random members of the family against vectors of transformers in float32 (tests/family): the
// shapes, gates, rotary embeddings and formats that the bundled pair does not have.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "checkpoint/quantization.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"
#include "model/random_weights.h"
#include "model/test_backend.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

constexpr float kTolerance = 1e-3f;
constexpr int kThreads = 2;
// With activations of BF16: of logits whose standard deviation is about 2.
constexpr float kRounding = 0.25f;

std::string directory_of(const std::string& member) {
  return std::string(LAGOON_FAMILY_DIR) + "/" + member;
}

template <typename T>
std::vector<T> golden(const std::string& member, const char* name) {
  const auto file = checkpoint::SafetensorsFile::open(directory_of(member) + "/golden.safetensors");
  CHECK(file.ok());
  const checkpoint::TensorInfo* const info = file->find(name);
  CHECK(info != nullptr);
  std::vector<T> values(info->bytes / sizeof(T));
  std::memcpy(values.data(), file->bytes(*info).data(), info->bytes);
  return values;
}

// A draft of random weights that taps every layer of a member: only with a draft are there taps.
void write_draft(const std::string& directory) {
  const std::string config = R"({
    "architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna", "vocab_size": 256,
    "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-6, "gating": "per-head",
    "sliding_window": 32, "layer_types": ["sliding_attention"], "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "block_size": 4,
    "dflash_config": {"target_layer_ids": [0, 1, 2, 3], "mask_token_id": 3, "causal": true},
    "num_target_layers": 4})";
  const auto parsed = checkpoint::parse_draft_config(config, "config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const auto scheme = checkpoint::QuantizationScheme::parse(config, "config.json");
  ASSERT_TRUE(scheme.ok()) << scheme.error().message;
  const auto tensors = random_draft(*parsed, *scheme);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  TensorMap written;
  for (const RandomTensor& tensor : *tensors) {
    TensorData data{tensor.dtype, tensor.shape, std::vector<std::byte>(tensor.bytes())};
    fill_random(tensor, 1, 0, data.bytes);
    written[tensor.name] = std::move(data);
  }
  write_model(directory, config, written);
}

std::unique_ptr<kernels::Backend> make_backend(const std::string& name,
                                               kernels::Activations activations) {
  if (name == "cuda") return kernels::cuda::make_backend(activations).value();
  return name == "ref" ? kernels::ref::make_backend(activations, kThreads)
                       : kernels::cpu::make_backend(activations, 1);
}

struct Outcome {
  std::vector<float> logits;     // [positions, vocab]
  std::vector<float> taps_last;  // [layers, hidden]
};

Outcome run(const std::string& member, const std::string& backend, kernels::Activations activations,
            int chunk) {
  const TempDir draft;
  write_draft(draft.path());
  auto watched = std::make_unique<WatchedBackend>(make_backend(backend, activations));
  const WatchedBackend& taps = *watched;
  LoadOptions options;
  options.max_rows = 128;
  const Loaded loaded = load_on(std::move(watched), directory_of(member), draft.path(), options);
  loaded.model->keep_logits(true);
  Sequence sequence(*loaded.model);
  const std::vector<int32_t> ids = golden<int32_t>(member, "ids");
  Outcome outcome;
  if (chunk >= static_cast<int>(ids.size())) {
    outcome.logits = sequence.prefill(ids, chunk, Sample::kAll).logits;
    outcome.taps_last = taps.taps(static_cast<int>(ids.size()) - 1);
  } else {
    outcome.logits = sequence.prefill(ids, chunk, Sample::kLast).logits;
    outcome.taps_last = taps.taps((static_cast<int>(ids.size()) - 1) % chunk);
  }
  return outcome;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) return INFINITY;
    largest = std::max(largest, difference);
  }
  return largest;
}

class Family : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Members, Family,
                         ::testing::Values("s-nvfp4", "xs2-nvfp4", "m1-bf16", "softcap-bf16",
                                           "s-fp8", "s-mixed"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Family, Float32MatchesTheVectors) {
  const std::vector<float> logits = golden<float>(GetParam(), "logits");
  const std::vector<float> taps = golden<float>(GetParam(), "taps_last");
  for (const char* backend : {"ref", "cpu"}) {
    const Outcome outcome = run(GetParam(), backend, kernels::Activations::kFloat32, 128);
    const float of_logits = largest_difference(outcome.logits, logits);
    const float of_taps = largest_difference(outcome.taps_last, taps);
    EXPECT_LE(of_logits, kTolerance) << backend;
    EXPECT_LE(of_taps, kTolerance) << backend;
    fmt::print("{} {}: largest difference of logits {:.2e}, taps {:.2e}\n", GetParam(), backend,
               of_logits, of_taps);
  }
}

// In the mode that serves: close to the vectors in the mean, and the same bits in chunks.
TEST_P(Family, BFloat16StaysClose) {
  const std::vector<float> logits = golden<float>(GetParam(), "logits");
  for (const char* backend : {"ref", "cpu", "cuda"}) {
    if (backend == std::string("cuda") &&
        !kernels::cuda::make_backend(kernels::Activations::kBFloat16).ok())
      continue;
    const Outcome whole = run(GetParam(), backend, kernels::Activations::kBFloat16, 128);
    ASSERT_EQ(whole.logits.size(), logits.size());
    double squares = 0;
    for (size_t i = 0; i < logits.size(); ++i) squares += std::pow(whole.logits[i] - logits[i], 2);
    const double error = std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_LE(error, kRounding) << backend;
    fmt::print("{} {}: root mean square difference of logits {:.2e}\n", GetParam(), backend, error);
    const Outcome chunked = run(GetParam(), backend, kernels::Activations::kBFloat16, 7);
    EXPECT_TRUE(std::equal(chunked.logits.begin(), chunked.logits.end(),
                           whole.logits.end() - static_cast<int64_t>(chunked.logits.size())))
        << backend;
  }
}

}  // namespace
}  // namespace lagoon::model::testing
