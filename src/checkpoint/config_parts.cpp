#include "checkpoint/config_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "checkpoint/file.h"

namespace lagoon::checkpoint {
namespace {

Error not_laguna(const JsonFields& config, std::string_view key, std::string_view value) {
  return {ErrorCode::kUnsupported,
          fmt::format("{} is not of a Laguna model: its {} is {}", config.path(), key, value)};
}

Result<GateKind> gate_from(const JsonFields& config, std::string_view key, const JsonValue& value) {
  const bool* flag = value.get_if<bool>();
  const std::string* text = value.get_if<std::string>();
  if ((flag != nullptr && *flag) || (text != nullptr && *text == "per-head"))
    return GateKind::kPerHead;
  if (text != nullptr && *text == "per-element") return GateKind::kPerElement;
  return config.unsupported(key,
                            fmt::format("is {}; Lagoon knows \"per-head\", true (the same) and "
                                        "\"per-element\"",
                                        describe(value)));
}

Result<void> check_format(const JsonFields& fields) {
  constexpr std::array<std::string_view, 3> kFormats = {"nvfp4-pack-quantized", "float-quantized",
                                                        "mixed-precision"};
  LAGOON_ASSIGN(const std::string format, fields.string("format"));
  if (std::find(kFormats.begin(), kFormats.end(), format) != kFormats.end()) return {};
  return fields.unsupported("format", fmt::format("is {}; Lagoon reads nvfp4-pack-quantized, "
                                                  "float-quantized and unquantized weights",
                                                  in_quotes(format)));
}

Result<void> check_compressed_tensors(const JsonFields& quantization) {
  LAGOON_RETURN_IF_ERROR(check_format(quantization));
  if (!quantization.has("config_groups")) return {};
  LAGOON_ASSIGN(const JsonFields groups, quantization.object("config_groups"));
  for (const std::string& name : groups.keys()) {
    LAGOON_ASSIGN(const JsonFields group, groups.object(name));
    if (group.has("format")) LAGOON_RETURN_IF_ERROR(check_format(group));
  }
  return {};
}

}  // namespace

Result<void> check_architecture(const JsonFields& config, std::string_view wanted) {
  LAGOON_ASSIGN(const std::string model_type, config.string("model_type"));
  if (model_type != "laguna") return not_laguna(config, "model_type", in_quotes(model_type));
  LAGOON_ASSIGN(const std::vector<std::string> architectures, config.strings("architectures"));
  const auto named = [&](std::string_view name) {
    return std::find(architectures.begin(), architectures.end(), name) != architectures.end();
  };
  if (named(wanted)) return {};
  if (named(kDraftArchitecture))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is of a DFlash draft, but a target model is wanted here: give the "
                             "draft as the speculative model",
                             config.path())};
  if (named(kTargetArchitecture))
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} is of a target model, but a DFlash draft is wanted here", config.path())};
  return not_laguna(config, "architecture",
                    architectures.empty() ? "not named" : in_quotes(architectures.front()));
}

Result<void> refuse_unsupported_features(const JsonFields& config) {
  for (std::string_view key : {"attention_bias", "qkv_bias", "mlp_bias",
                               "swa_attention_sink_enabled", "moe_apply_router_weight_on_input"}) {
    LAGOON_ASSIGN(const bool on, config.boolean_or(key, false));
    if (on) return config.unsupported(key, "is true, which Lagoon does not support");
  }
  for (std::string_view key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    LAGOON_ASSIGN(const double cap, config.not_negative_or(key, 0));
    if (cap != 0) return config.unsupported(key, "is not 0, which Lagoon does not support");
  }
  LAGOON_ASSIGN(const std::string activation, config.string_or("hidden_act", "silu"));
  if (activation != "silu")
    return config.unsupported(
        "hidden_act", fmt::format("is {}; Lagoon supports \"silu\"", in_quotes(activation)));
  LAGOON_ASSIGN(const std::string style, config.string_or("rope_style", "rotate-half"));
  if (style != "rotate-half")
    return config.unsupported(
        "rope_style", fmt::format("is {}; Lagoon supports \"rotate-half\"", in_quotes(style)));
  return {};
}

Result<void> check_quantization(const JsonFields& config) {
  for (std::string_view key : {"quantization_config", "compression_config"}) {
    if (!config.has(key)) continue;
    LAGOON_ASSIGN(const JsonFields quantization, config.object(key));
    LAGOON_ASSIGN(const std::string method, quantization.string("quant_method"));
    if (method != "compressed-tensors")
      return quantization.unsupported(
          "quant_method", fmt::format("is {}; Lagoon reads compressed-tensors and unquantized "
                                      "checkpoints",
                                      in_quotes(method)));
    LAGOON_RETURN_IF_ERROR(check_compressed_tensors(quantization));
  }
  return {};
}

Result<bool> parse_fp8_cache(const JsonFields& config) {
  for (std::string_view key : {"quantization_config", "compression_config"}) {
    if (!config.has(key)) continue;
    LAGOON_ASSIGN(const JsonFields quantization, config.object(key));
    if (!quantization.has("kv_cache_scheme")) continue;
    LAGOON_ASSIGN(const JsonFields scheme, quantization.object("kv_cache_scheme"));
    LAGOON_ASSIGN(const int64_t bits, scheme.integer("num_bits", 1, 64));
    LAGOON_ASSIGN(const std::string type, scheme.string_or("type", "float"));
    if (bits == 8 && type == "float") return true;
  }
  return false;
}

Result<GateKind> parse_gate(const JsonFields& config) {
  const JsonValue* gating = config.find("gating");
  if (gating == nullptr) return config.error("gating", "is missing");
  LAGOON_ASSIGN(const GateKind gate, gate_from(config, "gating", *gating));
  const JsonValue* types = config.find("gating_types");
  if (types == nullptr) return gate;
  const JsonArray* list = types->get_if<JsonArray>();
  if (list == nullptr) return config.error("gating_types", "is not an array");
  for (const JsonValue& entry : *list) {
    LAGOON_ASSIGN(const GateKind other, gate_from(config, "gating_types", entry));
    if (other != gate)
      return config.unsupported("gating_types",
                                "differ from `gating`, which Lagoon does not "
                                "support: all layers need the same gate");
  }
  return gate;
}

Result<int> parse_extent(const JsonFields& config, std::string_view key, int64_t highest) {
  LAGOON_ASSIGN(const int64_t value, config.integer(key, 1, highest));
  return static_cast<int>(value);
}

Result<int> parse_head_dim(const JsonFields& config) {
  LAGOON_ASSIGN(const int64_t head_dim, config.integer("head_dim", 2, kMaxHeadDim));
  if (head_dim % 2 != 0)
    return config.error("head_dim", fmt::format("is {}; it must be even", head_dim));
  return static_cast<int>(head_dim);
}

Result<void> check_heads(const JsonFields& config, std::string_view key, int64_t heads,
                         int64_t kv_heads) {
  if (heads % kv_heads == 0) return {};
  return config.error(key, fmt::format("has {}, which is not a multiple of num_key_value_heads {}",
                                       heads, kv_heads));
}

Result<std::vector<bool>> parse_sliding_layers(const JsonFields& config, int64_t layers) {
  const size_t count = static_cast<size_t>(layers);
  if (!config.has("layer_types") && !config.has("sliding_window"))
    return std::vector<bool>(count, false);
  LAGOON_ASSIGN(const std::vector<std::string> types, config.strings("layer_types"));
  if (types.size() != count)
    return config.error("layer_types", fmt::format("has {} entries, but num_hidden_layers is {}",
                                                   types.size(), layers));
  std::vector<bool> sliding;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      return config.unsupported("layer_types",
                                fmt::format("has {}; Lagoon knows full_attention and "
                                            "sliding_attention",
                                            in_quotes(type)));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

}  // namespace lagoon::checkpoint
