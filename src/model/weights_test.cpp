// Checkpoints: the formats and names that load, and what is refused in which words.
#include "model/weights.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <regex>
#include <utility>

#include "kernels/ref/backend.h"
#include "model/test_backend.h"
#include "model/test_support.h"

namespace lagoon::model::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<int32_t> kPrompt = {2, 17, 40, 9, 33, 33, 8, 61, 20, 5, 12, 50, 44, 7, 30, 11};

// A target, and a draft if it has tensors, in directories of their own.
class Files {
 public:
  Files(const TensorMap& target, const TensorMap& draft,
        const std::string& target_config = tiny_config(),
        const std::string& draft_config = tiny_draft_config())
      : has_draft_(!draft.empty()) {
    write_model(target_.path(), target_config, target);
    if (has_draft_) write_model(draft_.path(), draft_config, draft);
  }
  std::string target() const { return target_.path(); }
  std::string draft() const { return has_draft_ ? draft_.path() : ""; }

 private:
  TempDir target_;
  TempDir draft_;
  bool has_draft_;
};

// All logits of the prompt, then (with a draft) five proposals after it.
struct Output {
  std::vector<float> logits;
  std::vector<int32_t> proposals;
};

Output run(const Files& files) {
  const Loaded loaded =
      load_reference(kernels::Activations::kBFloat16, files.target(), files.draft());
  loaded.model->keep_logits(true);
  Sequence sequence(*loaded.model);
  Output output{sequence.prefill(kPrompt, 64, Sample::kAll).logits, {}};
  if (!files.draft().empty()) {
    sequence.draft(7, 5);
    const std::vector<int32_t> anchor = {7};
    output.proposals = loaded.model->step({{sequence.segment(anchor, 5, Sample::kNone)}})[0].tokens;
  }
  return output;
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// The error of loading, "" if it loads.
std::string load_error(const Files& files) {
  const checkpoint::ModelDir target = open_dir(files.target());
  std::optional<checkpoint::ModelDir> draft;
  if (!files.draft().empty()) draft = open_dir(files.draft());
  const auto backend = kernels::ref::make_backend(kernels::Activations::kBFloat16, 1);
  const auto model = load(target, draft ? &*draft : nullptr, *backend, {});
  return model ? "" : model.error().message;
}

void rename(TensorMap& tensors, const std::string& pattern, const std::string& replacement) {
  TensorMap renamed;
  for (auto& [name, tensor] : tensors) {
    renamed[std::regex_replace(name, std::regex(pattern), replacement)] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

// Weights that every format holds exactly give the same bits in every format.
TEST(Weights, ExpertFormatsAgree) {
  const Output plain = run(Files(tiny_tensors(ExpertFormat::kFloat32), {}));
  ASSERT_EQ(plain.logits.size(), kPrompt.size() * 64);
  EXPECT_TRUE(std::ranges::all_of(plain.logits, [](float x) { return std::isfinite(x); }));
  for (const ExpertFormat format :
       {ExpertFormat::kBFloat16, ExpertFormat::kFP8, ExpertFormat::kFP8WithBFloat16Scales,
        ExpertFormat::kNVFP4, ExpertFormat::kMixed}) {
    SCOPED_TRACE(static_cast<int>(format));
    expect_same(run(Files(tiny_tensors(format), {})).logits, plain.logits);
  }
}

// Experts matter to the comparison above: another expert weight gives other logits.
TEST(Weights, ExpertsAreUsed) {
  TensorMap changed = tiny_tensors(ExpertFormat::kBFloat16);
  const Output before = run(Files(changed, {}));
  for (auto& [name, tensor] : changed) {
    if (name.find("experts.2.down_proj") != std::string::npos) {
      std::ranges::fill(tensor.bytes, std::byte{0});
    }
  }
  EXPECT_NE(run(Files(changed, {})).logits, before.logits);
}

TEST(Weights, NameVariantsLoad) {
  const TensorMap draft = tiny_draft_tensors();
  const TensorMap published = tiny_tensors(ExpertFormat::kNVFP4);
  const Output expected = run(Files(published, draft));

  TensorMap variant = published;
  rename(variant, "shared_expert\\.", "shared_experts.");
  rename(variant, "experts\\.e_score_correction_bias", "gate.e_score_correction_bias");
  TensorMap prefixed = draft;
  rename(prefixed, "^", "model.");
  const Output output = run(Files(variant, prefixed));
  expect_same(output.logits, expected.logits);
  EXPECT_EQ(output.proposals, expected.proposals);
}

// One tensor of all experts' matrices, as `experts` has them each.
TensorData stack_experts(const TensorMap& tensors, const std::string& mlp,
                         const std::vector<std::string>& parts) {
  TensorData stacked{numeric::DType::kBF16, {}, {}};
  int64_t experts = 0;
  for (; tensors.contains(fmt::format("{}experts.{}.down_proj.weight", mlp, experts)); ++experts) {
    stacked.shape = {0, 0, 0};
    for (const std::string& part : parts) {
      const TensorData& one = tensors.at(fmt::format("{}experts.{}.{}.weight", mlp, experts, part));
      stacked.shape[1] += one.shape[0];
      stacked.shape[2] = one.shape[1];
      stacked.bytes.insert(stacked.bytes.end(), one.bytes.begin(), one.bytes.end());
    }
  }
  stacked.shape[0] = experts;
  return stacked;
}

TensorMap without_single_experts(TensorMap tensors) {
  std::erase_if(tensors, [](const auto& item) {
    return std::regex_search(item.first, std::regex("experts\\.[0-9]+\\."));
  });
  return tensors;
}

// Experts in stacks: transformers in memory, and MLX with its other names.
TEST(Weights, StackedExpertsLoad) {
  const TensorMap published = tiny_tensors(ExpertFormat::kBFloat16);
  const Output expected = run(Files(published, {}));
  TensorMap fused = without_single_experts(published);
  TensorMap mlx = fused;
  for (const char* mlp : {"model.layers.1.mlp.", "model.layers.2.mlp.", "model.layers.3.mlp."}) {
    ASSERT_TRUE(published.contains(std::string(mlp) + "experts.0.down_proj.weight")) << mlp;
    fused[std::string(mlp) + "experts.gate_up_proj"] =
        stack_experts(published, mlp, {"gate_proj", "up_proj"});
    fused[std::string(mlp) + "experts.down_proj"] = stack_experts(published, mlp, {"down_proj"});
    for (const std::string part : {"gate_proj", "up_proj", "down_proj"})
      mlx[fmt::format("{}switch_mlp.{}.weight", mlp, part)] = stack_experts(published, mlp, {part});
  }
  expect_same(run(Files(fused, {})).logits, expected.logits);

  rename(mlx, "mlp\\.gate\\.weight", "mlp.gate.proj.weight");
  rename(mlx, "experts\\.e_score_correction_bias", "gate.e_score_correction_bias");
  rename(mlx, "^", "language_model.");
  expect_same(run(Files(mlx, {})).logits, expected.logits);
  rename(mlx, "e_score_correction_bias", "e_score_correction");
  expect_same(run(Files(mlx, {})).logits, expected.logits);

  // Of another shape it is refused by name.
  TensorData& stack = fused["model.layers.1.mlp.experts.gate_up_proj"];
  std::swap(stack.shape[0], stack.shape[1]);
  EXPECT_THAT(load_error(Files(fused, {})),
              AllOf(HasSubstr("model.layers.1.mlp.experts.gate_up_proj"), HasSubstr("needs")));
}

// q, k and v in one matrix are the same draft as three matrices, in the bundled pair too.
TEST(Weights, FusedAndSplitDraftsProposeTheSame) {
  TensorMap fused = tiny_draft_tensors();
  for (const std::string layer : {"layers.0.self_attn.", "layers.1.self_attn."}) {
    TensorData stacked{numeric::DType::kBF16, {64 + 32 + 32, 160}, {}};
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      const auto found = fused.find(layer + part + ".weight");
      stacked.bytes.insert(stacked.bytes.end(), found->second.bytes.begin(),
                           found->second.bytes.end());
      fused.erase(found);
    }
    fused[layer + "qkv_proj.weight"] = stacked;
  }
  const TensorMap target = tiny_tensors(ExpertFormat::kNVFP4);
  const Output split = run(Files(target, tiny_draft_tensors()));
  EXPECT_EQ(run(Files(target, fused)).proposals, split.proposals);
}

struct Damage {
  std::string what;
  std::function<void(TensorMap&)> apply;
  std::vector<std::string> message;  // parts of the sentence
};

void expect_refused(const std::vector<Damage>& damages, bool of_draft) {
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    TensorMap target = tiny_tensors(ExpertFormat::kMixed);
    TensorMap draft = tiny_draft_tensors();
    damage.apply(of_draft ? draft : target);
    const std::string error = load_error(Files(target, draft));
    for (const std::string& part : damage.message) EXPECT_THAT(error, HasSubstr(part));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

// A tensor of the mixed checkpoint with this suffix.
std::string name_with(const TensorMap& tensors, const std::string& suffix) {
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(suffix)) return name;
  }
  ADD_FAILURE() << "no tensor ends in " << suffix;
  return "";
}

TensorData& tensor_with(TensorMap& tensors, const std::string& suffix) {
  return tensors[name_with(tensors, suffix)];
}

TEST(Weights, DamagedTargetsAreRefused) {
  const std::string norm = "model.layers.2.self_attn.q_norm.weight";
  const std::string file = "model.safetensors";
  const auto floats = [](std::initializer_list<float> values) {
    return float_tensor({static_cast<int64_t>(values.size())}, values);
  };
  expect_refused(
      {
          {"missing", [&](TensorMap& t) { t.erase(norm); }, {norm}},
          {"missing expert part",
           [](TensorMap& t) { t.erase(name_with(t, ".weight_global_scale")); },
           {".weight_global_scale"}},
          {"shape",
           [&](TensorMap& t) { t[norm] = bfloat16_tensor({8}, std::vector<float>(8, 1)); },
           {file, norm, "[8]", "[16]"}},
          {"dtype",
           [&](TensorMap& t) {
             t[norm] = {numeric::DType::kF16, {16}, std::vector<std::byte>(32)};
           },
           {file, norm, "F16"}},
          {"bias dtype",
           [](TensorMap& t) {
             tensor_with(t, "e_score_correction_bias") =
                 bfloat16_tensor({4}, std::vector<float>(4));
           },
           {file, "e_score_correction_bias", "BF16"}},
          {"alien",
           [&](TensorMap& t) { t["model.layers.0.mlp.extra.weight"] = floats({1}); },
           {file, "model.layers.0.mlp.extra.weight"}},
          {"a layer too many",
           [&](TensorMap& t) { t["model.layers.4.input_layernorm.weight"] = floats({1}); },
           {file, "model.layers.4.input_layernorm.weight"}},
          {"both formats",
           [](TensorMap& t) {
             std::string name = name_with(t, ".weight_packed");
             name = name.substr(0, name.size() - std::string("_packed").size());
             t[name] = bfloat16_tensor({1}, {0});
           },
           {file, ".mlp.experts."}},
          {"NaN global scale",
           [&](TensorMap& t) {
             tensor_with(t, ".weight_global_scale") =
                 floats({std::numeric_limits<float>::quiet_NaN()});
           },
           {file, ".weight_global_scale", "nan"}},
          {"zero global scale",
           [&](TensorMap& t) { tensor_with(t, ".weight_global_scale") = floats({0}); },
           {file, ".weight_global_scale", "is 0"}},
          {"negative global scale",
           [&](TensorMap& t) { tensor_with(t, ".weight_global_scale") = floats({-2}); },
           {file, ".weight_global_scale", "is -2"}},
          {"NaN block scale",
           [](TensorMap& t) {
             std::string name = name_with(t, ".weight_packed");
             name = name.substr(0, name.size() - std::string("packed").size()) + "scale";
             t[name].bytes[5] = std::byte{0xff};
           },
           {file, ".weight_scale", "NaN block scale"}},
      },
      false);
}

TEST(Weights, DamagedFP8IsRefused) {
  TensorMap tensors = tiny_tensors(ExpertFormat::kFP8);
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight";
  tensors[name].bytes[1000] = std::byte{0x7f};
  EXPECT_THAT(load_error(Files(tensors, {})),
              AllOf(HasSubstr("model.safetensors"), HasSubstr(name), HasSubstr("NaN")));
  tensors = tiny_tensors(ExpertFormat::kFP8);
  tensors[name + "_scale"] = float_tensor({2, 2}, {1, 1, INFINITY, 1});
  EXPECT_THAT(
      load_error(Files(tensors, {})),
      AllOf(HasSubstr("model.safetensors"), HasSubstr(name + "_scale"), HasSubstr("not finite")));
}

// A backend knows no names.
TEST(Weights, WhatABackendRefusesIsNamed) {
  const std::pair<ExpertFormat, kernels::Format> formats[] = {
      {ExpertFormat::kFloat32, kernels::Format::kFloat32},
      {ExpertFormat::kFP8, kernels::Format::kFP8},
      {ExpertFormat::kNVFP4, kernels::Format::kNVFP4}};
  for (const auto& [experts, format] : formats) {
    const Files files(tiny_tensors(experts), {});
    WatchedBackend backend(kernels::ref::make_backend(kernels::Activations::kBFloat16, 1));
    backend.refuse(format);
    const auto model = load(open_dir(files.target()), nullptr, backend, {});
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(model.error().message,
                AllOf(HasSubstr(files.target() + "/model.safetensors: tensor model.layers."),
                      HasSubstr("weight"), HasSubstr("it cannot be used here")));
  }
}

TEST(Weights, DamagedDraftsAreRefused) {
  expect_refused(
      {{"missing", [](TensorMap& t) { t.erase("fc.weight"); }, {"fc.weight"}},
       {"a tap too few",
        [](TensorMap& t) { t.erase("aux_hidden_norms.1.weight"); },
        {"aux_hidden_norms.1.weight"}},
       {"its own head",
        [](TensorMap& t) {
          t["lm_head.weight"] = float_tensor({64, 160}, std::vector<float>(size_t{64} * 160));
        },
        {"model.safetensors", "lm_head.weight"}},
       {"shape",
        [](TensorMap& t) {
          t["fc.weight"] = float_tensor({160, 160}, std::vector<float>(size_t{160} * 160));
        },
        {"model.safetensors", "fc.weight", "[160, 160]", "[160, 320]"}}},
      true);
}

TEST(Weights, WrongPairsAreRefused) {
  const TensorMap target = tiny_tensors(ExpertFormat::kBFloat16);
  const TensorMap draft = tiny_draft_tensors();
  const auto error_with = [&](const std::string& pattern, const std::string& replacement) {
    const std::string config =
        std::regex_replace(tiny_draft_config(), std::regex(pattern), replacement);
    return load_error(Files(target, draft, tiny_config(), config));
  };
  const auto error_with_taps = [&](int first, int second) {
    std::string config = tiny_draft_config();
    config.replace(config.find("[0, 2]"), 6, fmt::format("[{}, {}]", first, second));
    config.replace(config.find("[1, 3]"), 6, fmt::format("[{}, {}]", first + 1, second + 1));
    return load_error(Files(target, draft, tiny_config(), config));
  };
  EXPECT_EQ(error_with("no such text", ""), "");
  EXPECT_THAT(error_with("vocab_size\": 64", "vocab_size\": 128"),
              AllOf(HasSubstr("vocab"), HasSubstr("128")));
  EXPECT_THAT(error_with("\"hidden_size\": 160", "\"hidden_size\": 320"),
              AllOf(HasSubstr("hidden"), HasSubstr("320")));
  EXPECT_THAT(error_with("num_target_layers\": 4", "num_target_layers\": 48"),
              AllOf(HasSubstr("layers"), HasSubstr("48")));
  EXPECT_THAT(error_with_taps(0, 4), AllOf(HasSubstr("layer"), HasSubstr("4")));
  EXPECT_THAT(error_with_taps(2, 2), HasSubstr("target_layer_ids"));
  EXPECT_THAT(error_with("causal\": true", "causal\": false"), HasSubstr("causal"));
  EXPECT_THAT(error_with("mask_token_id\": 3", "mask_token_id\": 64"),
              AllOf(HasSubstr("mask_token_id"), HasSubstr("64")));
}

TEST(Weights, TooLongAContextIsRefused) {
  const Files files(tiny_tensors(ExpertFormat::kBFloat16), {});
  const checkpoint::ModelDir target = open_dir(files.target());
  const auto backend = kernels::ref::make_backend(kernels::Activations::kBFloat16, 1);
  LoadOptions options;
  options.max_length = 513;
  const auto model = load(target, nullptr, *backend, options);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("513"), HasSubstr("512")));
}

}  // namespace
}  // namespace lagoon::model::testing
