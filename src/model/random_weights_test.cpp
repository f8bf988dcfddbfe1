// Random checkpoints: the same on disk and in memory, well scaled, and routed as asked.
#include "model/random_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "checkpoint/checkpoint_writer.h"
#include "kernels/ref/backend.h"
#include "kernels/test_weights.h"
#include "model/random_source.h"
#include "model/test_backend.h"
#include "model/test_support.h"
#include "model/weights.h"

namespace lagoon::model::testing {
namespace {

using ::testing::HasSubstr;

std::string config_with(const std::string& quantization, int layers = 4) {
  std::string heads;
  std::string types;
  std::string mlp;
  for (int i = 0; i < layers; ++i) {
    const char* comma = i == 0 ? "" : ",";
    heads += comma + std::string(i % 4 == 0 ? "2" : "3");
    types += comma + std::string(i % 4 == 0 ? "\"full_attention\"" : "\"sliding_attention\"");
    mlp += comma + std::string(i == 0 ? "\"dense\"" : "\"sparse\"");
  }
  return R"({"architectures":["LagunaForCausalLM"],"model_type":"laguna","vocab_size":512,
    "hidden_size":128,"intermediate_size":256,"num_key_value_heads":1,"head_dim":32,
    "max_position_embeddings":1024,"rms_norm_eps":1e-6,"gating":"per-head","sliding_window":64,
    "num_experts":64,"num_experts_per_tok":4,"moe_intermediate_size":32,
    "shared_expert_intermediate_size":32,"moe_routed_scaling_factor":2.5,
    "rope_parameters":{"full_attention":{"rope_type":"default","rope_theta":500000,
    "partial_rotary_factor":0.5},"sliding_attention":{"rope_type":"default","rope_theta":10000,
    "partial_rotary_factor":1.0}},"eos_token_id":2,"bos_token_id":2,"num_hidden_layers":)" +
         std::to_string(layers) + R"(,"num_attention_heads_per_layer":[)" + heads +
         R"(],"layer_types":[)" + types + R"(],"mlp_layer_types":[)" + mlp + "]" + quantization +
         "}";
}

std::string quantised(const std::string& format, const std::string& ignore,
                      const std::string& cache = "null") {
  return R"(,"quantization_config":{"quant_method":"compressed-tensors","format":")" + format +
         R"(","kv_cache_scheme":)" + cache + R"(,"config_groups":{"group_0":{"targets":["Linear"]}},
    "ignore":["lm_head","re:.*self_attn.*","re:.*mlp\\.gate$","re:.*shared_expert.*",
    "re:model\\.layers\\.0\\.mlp.*")" +
         ignore + "]}";
}

const std::string kDraftConfig = R"({"architectures":["DFlashLagunaForCausalLM"],
    "model_type":"laguna","vocab_size":512,"hidden_size":128,"intermediate_size":256,
    "num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,"head_dim":32,
    "rms_norm_eps":1e-6,"gating":"per-head","sliding_window":64,"block_size":8,
    "layer_types":["sliding_attention","sliding_attention"],"max_position_embeddings":1024,
    "rope_parameters":{"sliding_attention":{"rope_type":"default","rope_theta":10000}},
    "dflash_config":{"mask_token_id":3,"target_layer_ids":[0,2],"causal":true}})";

checkpoint::QuantizationScheme scheme_of(const std::string& config) {
  return checkpoint::QuantizationScheme::parse(config, "config.json").value();
}

std::vector<RandomTensor> target_tensors(const std::string& config, RandomOptions options = {}) {
  return random_target(checkpoint::parse_target_config(config, "config.json").value(),
                       scheme_of(config), options)
      .value();
}

std::vector<RandomTensor> draft_tensors(const std::string& config) {
  return random_draft(checkpoint::parse_draft_config(config, "config.json").value(),
                      scheme_of(config))
      .value();
}

std::vector<std::byte> bytes_of(const RandomTensor& tensor, uint64_t seed) {
  std::vector<std::byte> bytes(tensor.bytes());
  fill_random(tensor, seed, 0, bytes);
  return bytes;
}

void write_random(const std::string& directory, const std::string& config,
                  const std::vector<RandomTensor>& tensors, uint64_t seed) {
  std::vector<checkpoint::TensorToWrite> write;
  for (const RandomTensor& tensor : tensors) {
    checkpoint::TensorToWrite one;
    one.name = tensor.name;
    one.dtype = tensor.dtype;
    one.shape = tensor.shape;
    one.make = [&tensor, seed](uint64_t first, std::span<std::byte> into) {
      fill_random(tensor, seed, first, into);
    };
    write.push_back(std::move(one));
  }
  checkpoint::WriteOptions options;
  options.max_shard_bytes = 300'000;  // several shards
  ASSERT_TRUE(checkpoint::write_weights(directory, write, options).ok());
  ASSERT_TRUE(checkpoint::write_text(directory + "/config.json", config).ok());
}

std::vector<int32_t> tokens(int count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ids[i] = (i * 7919 + 13) % 512;
  return ids;
}

struct Output {
  std::vector<float> logits;
  std::vector<int32_t> proposals;
};

Output run(Model& model, bool draft) {
  model.keep_logits(true);
  Sequence sequence(model);
  Output output{sequence.prefill(tokens(40), 16, Sample::kAll).logits, {}};
  if (draft) {
    sequence.draft(7, 5);
    const std::vector<int32_t> anchor = {7};
    output.proposals = model.step({{sequence.segment(anchor, 5, Sample::kNone)}})[0].tokens;
  }
  return output;
}

TEST(RandomWeights, OnDiskAndInMemoryTheyAreTheSame) {
  for (const std::string& config :
       {config_with(quantised("nvfp4-pack-quantized", "", R"({"num_bits":8})")),
        config_with(quantised("nvfp4-pack-quantized", R"(,"re:model\\.layers\\.[23]\\.mlp.*")")),
        config_with(quantised("float-quantized", "")), config_with("")}) {
    const RandomOptions random{.seed = 5, .routing_overlap = 0.3};
    TempDir target;
    TempDir draft;
    write_random(target.path(), config, target_tensors(config, random), random.seed);
    write_random(draft.path(), kDraftConfig, draft_tensors(kDraftConfig), random.seed);
    const Loaded from_disk =
        load_reference(kernels::Activations::kBFloat16, target.path(), draft.path());
    LoadOptions options;
    options.random = random;
    // Configs alone.
    TempDir bare_target;
    TempDir bare_draft;
    ASSERT_TRUE(checkpoint::write_text(bare_target.path() + "/config.json", config).ok());
    ASSERT_TRUE(checkpoint::write_text(bare_draft.path() + "/config.json", kDraftConfig).ok());
    const auto target_dir = checkpoint::ModelDir::open_config(bare_target.path()).value();
    const auto draft_dir = checkpoint::ModelDir::open_config(bare_draft.path()).value();
    const auto backend = kernels::ref::make_backend(kernels::Activations::kBFloat16, 2);
    const auto made = load(target_dir, &draft_dir, *backend, options).value();
    const Output expected = run(*from_disk.model, true);
    const Output actual = run(*made, true);
    ASSERT_EQ(actual.logits.size(), expected.logits.size());
    EXPECT_EQ(std::memcmp(actual.logits.data(), expected.logits.data(),
                          expected.logits.size() * sizeof(float)),
              0);
    EXPECT_EQ(actual.proposals, expected.proposals);
  }
}

// A backend that makes BF16 and NVFP4 matrices itself, as kernels::RandomMatrix says.
class MakingBackend final : public WatchedBackend {
 public:
  using WatchedBackend::WatchedBackend;
  Result<kernels::Weight> prepare_random(const kernels::RandomMatrix& matrix) override {
    ++made;
    return prepare(kernels::random_weight(matrix).host());
  }
  int made = 0;
};

TEST(RandomWeights, ABackendThatMakesThemMakesTheSame) {
  for (const std::string& config :
       {config_with(quantised("nvfp4-pack-quantized", "", R"({"num_bits":8})")),
        config_with(quantised("float-quantized", "")), config_with("")}) {
    TempDir target;
    TempDir draft;
    ASSERT_TRUE(checkpoint::write_text(target.path() + "/config.json", config).ok());
    ASSERT_TRUE(checkpoint::write_text(draft.path() + "/config.json", kDraftConfig).ok());
    const auto target_dir = checkpoint::ModelDir::open_config(target.path()).value();
    const auto draft_dir = checkpoint::ModelDir::open_config(draft.path()).value();
    LoadOptions options;
    options.random = RandomOptions{.seed = 5, .routing_overlap = 0.3};
    const auto make = [] { return kernels::ref::make_backend(kernels::Activations::kBFloat16, 2); };
    const auto plain = make();
    MakingBackend making(make());
    const Output expected = run(*load(target_dir, &draft_dir, *plain, options).value(), true);
    const Output actual = run(*load(target_dir, &draft_dir, making, options).value(), true);
    EXPECT_EQ(actual.logits, expected.logits);
    EXPECT_EQ(actual.proposals, expected.proposals);
    // Attention alone: q, k, v, g and o of each layer.
    EXPECT_GT(making.made, 4 * 5);
  }
}

// The list is that of the published checkpoint (docs/design.md's model, all layers).
TEST(RandomWeights, ThePublishedCheckpointHasTheseTensors) {
  const std::string root = std::string(LAGOON_SOURCE_DIR) + "/tests/fixtures/configs/";
  const auto target_dir = checkpoint::ModelDir::open_config(root + "laguna-s-2.1-nvfp4").value();
  const auto tensors = target_tensors(target_dir.config_json());
  EXPECT_EQ(tensors.size(), 145'153u);
  uint64_t bytes = 0;
  std::map<std::string, const RandomTensor*> by_name;
  for (const RandomTensor& tensor : tensors) {
    bytes += tensor.bytes();
    by_name[tensor.name] = &tensor;
  }
  EXPECT_EQ(bytes, 71'898'733'760u);
  const auto is = [&](const std::string& name, numeric::DType dtype,
                      const std::vector<int64_t>& shape) {
    const auto found = by_name.find(name);
    ASSERT_NE(found, by_name.end()) << name;
    EXPECT_EQ(found->second->dtype, dtype) << name;
    EXPECT_EQ(found->second->shape, shape) << name;
  };
  using numeric::DType;
  is("model.embed_tokens.weight", DType::kBF16, {100352, 3072});
  is("model.layers.0.self_attn.k_scale", DType::kBF16, {1});
  is("model.layers.1.self_attn.q_proj.weight", DType::kBF16, {9216, 3072});
  is("model.layers.1.mlp.experts.e_score_correction_bias", DType::kF32, {256});
  is("model.layers.47.mlp.experts.255.down_proj.weight_packed", DType::kU8, {3072, 512});
  is("model.layers.47.mlp.experts.255.down_proj.weight_scale", DType::kF8E4M3, {3072, 64});
  is("model.layers.47.mlp.experts.255.down_proj.weight_global_scale", DType::kF32, {});
  is("model.layers.47.mlp.experts.255.down_proj.input_global_scale", DType::kF32, {});

  const auto draft_dir =
      checkpoint::ModelDir::open_config(root + "laguna-s-2.1-dflash-nvfp4").value();
  const auto draft = draft_tensors(draft_dir.config_json());
  EXPECT_EQ(draft.size(), 69u);
  uint64_t draft_bytes = 0;
  for (const RandomTensor& tensor : draft) draft_bytes += tensor.bytes();
  EXPECT_EQ(draft_bytes, 2'229'955'584u);
}

TEST(RandomWeights, BytesDependOnSeedAndNameAlone) {
  const auto few = target_tensors(config_with(quantised("nvfp4-pack-quantized", ""), 2));
  const auto many = target_tensors(config_with(quantised("nvfp4-pack-quantized", ""), 6));
  std::map<std::string, const RandomTensor*> by_name;
  for (const RandomTensor& tensor : many) by_name[tensor.name] = &tensor;
  for (const RandomTensor& tensor : few) {
    ASSERT_TRUE(by_name.contains(tensor.name)) << tensor.name;
    EXPECT_EQ(bytes_of(tensor, 1), bytes_of(*by_name[tensor.name], 1)) << tensor.name;
  }
  const RandomTensor& embedding = few.front();
  EXPECT_NE(bytes_of(embedding, 1), bytes_of(embedding, 2));
  RandomTensor other = embedding;
  other.name = "lm_head.weight";
  EXPECT_NE(bytes_of(embedding, 1), bytes_of(other, 1));
}

TEST(RandomWeights, PartsOfATensorAreThoseOfTheWhole) {
  for (const std::string& config : {config_with(quantised("nvfp4-pack-quantized", "")),
                                    config_with(quantised("float-quantized", ""))}) {
    for (const RandomTensor& tensor : target_tensors(config)) {
      const std::vector<std::byte> whole = bytes_of(tensor, 3);
      std::vector<std::byte> parts(whole.size());
      for (size_t first = 0; first < parts.size(); first += 24) {
        const size_t size = std::min<size_t>(24, parts.size() - first);
        fill_random(tensor, 3, first, std::span(parts).subspan(first, size));
      }
      ASSERT_EQ(parts, whole) << tensor.name;
    }
  }
}

// Every linear layer keeps the size of its input, as stored.
TEST(RandomWeights, MatricesHaveTheSizeTheyAreMadeFor) {
  for (const std::string format : {"nvfp4-pack-quantized", "float-quantized"}) {
    const std::string config = config_with(quantised(format, ""));
    TempDir directory;
    write_random(directory.path(), config, target_tensors(config), 1);
    const auto dir = open_dir(directory.path());
    const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight";
    double sum = 0;
    int64_t count = 0;
    if (const auto packed = dir.find(name + "_packed")) {
      const auto scales = dir.find(name + "_scale");
      float global = 0;
      std::memcpy(&global, dir.find(name + "_global_scale")->bytes.data(), sizeof global);
      for (size_t i = 0; i < packed->bytes.size(); ++i) {
        const auto byte = static_cast<uint8_t>(packed->bytes[i]);
        const float scale =
            numeric::e4m3_to_float(static_cast<uint8_t>(scales->bytes[i / 8])) / global;
        for (const int code : {byte & 15, byte >> 4}) {
          const double w = numeric::e2m1_to_float(static_cast<uint8_t>(code)) * scale;
          sum += w * w;
          ++count;
        }
      }
    } else {
      const auto codes = dir.find(name);
      const auto scales = dir.find(name + "_scale");
      numeric::BFloat16 scale;
      std::memcpy(&scale.bits, scales->bytes.data(), 2);  // one block
      for (const std::byte code : codes->bytes) {
        const double w =
            numeric::e4m3_to_float(static_cast<uint8_t>(code)) * numeric::to_float(scale);
        sum += w * w;
        ++count;
      }
    }
    const double size = std::sqrt(sum / count) * std::sqrt(128.0);  // 128 columns
    EXPECT_GT(size, format == "float-quantized" ? 0.75 : 0.95) << format;
    EXPECT_LT(size, format == "float-quantized" ? 1.25 : 1.05) << format;
  }
}

// Through many layers activations stay of one size, and logits tell tokens apart.
TEST(RandomWeights, ActivationsNeitherExplodeNorVanish) {
  const std::string config = config_with(quantised("nvfp4-pack-quantized", ""), 24);
  TempDir directory;
  ASSERT_TRUE(checkpoint::write_text(directory.path() + "/config.json", config).ok());
  std::string draft_config = kDraftConfig;
  draft_config.replace(draft_config.find("[0,2]"), 5, "[0,23]");
  TempDir draft;
  ASSERT_TRUE(checkpoint::write_text(draft.path() + "/config.json", draft_config).ok());
  const auto target_dir = checkpoint::ModelDir::open_config(directory.path()).value();
  const auto draft_dir = checkpoint::ModelDir::open_config(draft.path()).value();
  const auto backend = kernels::ref::make_backend(kernels::Activations::kBFloat16, 2);
  LoadOptions options;
  options.random = RandomOptions{};
  const auto model = load(target_dir, &draft_dir, *backend, options).value();
  const Output output = run(*model, true);
  double sum = 0;
  double squares = 0;
  std::set<size_t> winners;
  const size_t rows = output.logits.size() / 512;
  for (size_t row = 0; row < rows; ++row) {
    const auto first = output.logits.begin() + static_cast<int64_t>(row * 512);
    winners.insert(static_cast<size_t>(std::max_element(first, first + 512) - first));
    for (auto at = first; at != first + 512; ++at) {
      ASSERT_TRUE(std::isfinite(*at));
      sum += *at;
      squares += double{*at} * *at;
    }
  }
  const double count = static_cast<double>(output.logits.size());
  EXPECT_NEAR(sum / count, 0, 0.2);
  EXPECT_NEAR(std::sqrt(squares / count), 2, 0.4);
  EXPECT_GT(winners.size(), rows / 2);
  // Proposals differ though all rows of a block but the first have the mask as their token.
  EXPECT_GE(std::set<int32_t>(output.proposals.begin() + 1, output.proposals.end()).size(), 3u);
}

// Distinct experts that rows of distinct tokens read per layer.
double distinct_experts(const std::string& config, const RandomOptions& random, int rows) {
  TempDir directory;
  EXPECT_TRUE(checkpoint::write_text(directory.path() + "/config.json", config).ok());
  const auto dir = checkpoint::ModelDir::open_config(directory.path()).value();
  const auto backend = kernels::ref::make_backend(kernels::Activations::kBFloat16, 2);
  LoadOptions options;
  options.random = random;
  const auto model = load(dir, nullptr, *backend, options).value();
  Sequence sequence(*model);
  kernels::ExpertUse use;
  const std::vector<int32_t> ids = tokens(rows * 30);
  for (int step = 0; step < 30; ++step) {
    const std::vector<int32_t> part(ids.begin() + int64_t{step} * rows,
                                    ids.begin() + int64_t{step + 1} * rows);
    model->step({{sequence.segment(part, 0, Sample::kNone)}});
    sequence.commit(rows);
    use.layers += model->expert_use().layers;
    use.distinct += model->expert_use().distinct;
  }
  return static_cast<double>(use.distinct) / static_cast<double>(use.layers);
}

TEST(RandomWeights, RowsShareAsManyExpertsAsAsked) {
  const std::string config = config_with(quantised("nvfp4-pack-quantized", ""), 8);
  // 2 rows of 4 experts that share a part of them: 8 - 4 * part.
  const double independent = distinct_experts(config, {}, 2);
  EXPECT_NEAR(independent, 8 - 4 * (4.0 / 64), 0.35);
  for (const double overlap : {0.3, 0.6}) {
    EXPECT_NEAR(distinct_experts(config, {.seed = 2, .routing_overlap = overlap}, 2),
                8 - 4 * overlap, 0.45)
        << overlap;
  }
  EXPECT_EQ(distinct_experts(config, {}, 1), 4);
}

TEST(RandomWeights, WhatCannotBeMadeIsRefused) {
  const auto refused = [](const std::string& config, const RandomOptions& options) {
    const auto made = random_target(checkpoint::parse_target_config(config, "config.json").value(),
                                    scheme_of(config), options);
    return made.ok() ? std::string("(no error)") : made.error().message;
  };
  const std::string good = config_with(quantised("nvfp4-pack-quantized", ""));
  EXPECT_THAT(refused(good, {.routing_overlap = 0.06}), HasSubstr("above 0.0625"));
  EXPECT_THAT(refused(good, {.routing_overlap = 0.96}), HasSubstr("at most 0.95"));
  EXPECT_THAT(refused(good, {.routing_overlap = std::nan("")}), HasSubstr("nan"));
  std::string dense = config_with("", 1);
  EXPECT_THAT(refused(dense, {.routing_overlap = 0.3}), HasSubstr("no experts"));
  std::string all = config_with(quantised("nvfp4-pack-quantized", ""));
  all.replace(all.find("re:.*self_attn.*"), 16, "nothing");
  EXPECT_THAT(refused(all, {}), HasSubstr("model.layers.0.self_attn.q_proj as NVFP4"));
}

}  // namespace
}  // namespace lagoon::model::testing
