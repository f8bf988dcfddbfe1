// The DFlash draft's config and whether it belongs to a target. Several fields are published either
// at the top level or inside dflash_config; both at once must agree.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "checkpoint/config.h"
#include "checkpoint/config_parts.h"
#include "checkpoint/json_value.h"

namespace lagoon::checkpoint {
namespace {

// The config and its dflash_config, where it has one.
struct DraftFields {
  JsonFields top;
  std::optional<JsonFields> inner;

  // The object that has `key`: dflash_config first; the top level if neither has.
  const JsonFields& holder(std::string_view key) const {
    return inner && inner->has(key) ? *inner : top;
  }
  bool has(std::string_view key) const { return holder(key).has(key); }
};

Result<int64_t> integer(const DraftFields& fields, std::string_view key, int64_t lowest,
                        int64_t highest) {
  LAGOON_ASSIGN(const int64_t value, fields.holder(key).integer(key, lowest, highest));
  if (fields.top.has(key)) {
    LAGOON_ASSIGN(const int64_t other, fields.top.integer(key, lowest, highest));
    if (other != value)
      return fields.top.error(key,
                              fmt::format("is {}, but dflash_config.{} is {}", other, key, value));
  }
  return value;
}

Result<void> check_causal(const DraftFields& fields) {
  // Sliding layers, which are all that is accepted here, are causal unless the file says otherwise.
  LAGOON_ASSIGN(const bool outer, fields.top.boolean_or("is_causal", true));
  bool inner = true;
  if (fields.inner) {
    LAGOON_ASSIGN(inner, fields.inner->boolean_or("causal", true));
  }
  if (outer && inner) return {};
  return (outer ? *fields.inner : fields.top)
      .unsupported(outer ? "causal" : "is_causal",
                   "is false: Lagoon needs a causal draft, whose proposals do not depend on how "
                   "many are asked for");
}

// Target layers whose output is tapped. eagle_aux_hidden_state_layer_ids counts the same layers
// from 1.
Result<std::vector<int>> parse_taps(const DraftFields& fields) {
  constexpr std::string_view kTaps = "target_layer_ids";
  constexpr std::string_view kAux = "eagle_aux_hidden_state_layer_ids";
  std::vector<int64_t> taps;
  if (fields.has(kTaps)) {
    LAGOON_ASSIGN(taps, fields.holder(kTaps).integers(kTaps, 0, kMaxLayers - 1));
  }
  if (fields.has(kAux)) {
    LAGOON_ASSIGN(std::vector<int64_t> aux, fields.holder(kAux).integers(kAux, 1, kMaxLayers));
    for (int64_t& layer : aux) --layer;
    if (!fields.has(kTaps)) taps = aux;
    if (taps != aux)
      return fields.holder(kAux).error(kAux, "are not dflash_config.target_layer_ids plus 1");
  }
  const std::string_view key = fields.has(kTaps) ? kTaps : kAux;
  if (taps.empty())
    return fields.holder(key).error(key, "does not name the target layers that are tapped");
  if (std::adjacent_find(taps.begin(), taps.end(), std::greater_equal<>()) != taps.end())
    return fields.holder(key).error(key, "must be in ascending order");
  if (taps.size() > static_cast<size_t>(kMaxTaps))
    return fields.holder(key).error(
        key, fmt::format("names {} layers; at most {} are supported", taps.size(), kMaxTaps));
  return std::vector<int>(taps.begin(), taps.end());
}

Result<void> parse_dflash(const DraftFields& fields, DraftConfig& draft) {
  LAGOON_RETURN_IF_ERROR(check_causal(fields));
  draft.causal = true;
  LAGOON_ASSIGN(const int64_t block, integer(fields, "block_size", 2, 1024));
  draft.block_size = static_cast<int>(block);
  LAGOON_ASSIGN(const int64_t mask, integer(fields, "mask_token_id", 0, int64_t{draft.vocab} - 1));
  draft.mask_token = static_cast<int32_t>(mask);
  if (fields.has("num_target_layers")) {
    LAGOON_ASSIGN(const int64_t depth, integer(fields, "num_target_layers", 1, kMaxLayers));
    draft.target_layers = static_cast<int>(depth);
  }
  LAGOON_ASSIGN(draft.tap_layers, parse_taps(fields));
  if (draft.target_layers > 0 && draft.tap_layers.back() >= draft.target_layers)
    return fields.top.error("num_target_layers",
                            fmt::format("is {}, but the draft taps layer {} (counted from 0)",
                                        draft.target_layers, draft.tap_layers.back()));
  return {};
}

Result<void> parse_transformer(const JsonFields& config, DraftConfig& draft) {
  LAGOON_ASSIGN(draft.vocab, parse_extent(config, "vocab_size", kMaxVocab));
  LAGOON_ASSIGN(const int64_t own_vocab,
                config.integer_or("draft_vocab_size", 1, kMaxVocab, draft.vocab));
  if (own_vocab != draft.vocab)
    return config.unsupported("draft_vocab_size",
                              fmt::format("is {} and vocab_size {}: Lagoon does not support a "
                                          "draft with a vocabulary of its own",
                                          own_vocab, draft.vocab));
  LAGOON_ASSIGN(draft.hidden, parse_extent(config, "hidden_size", kMaxWidth));
  LAGOON_ASSIGN(draft.intermediate, parse_extent(config, "intermediate_size", kMaxWidth));
  LAGOON_ASSIGN(const int64_t layers, config.integer("num_hidden_layers", 1, kMaxLayers));
  draft.layers = static_cast<int>(layers);
  LAGOON_ASSIGN(draft.kv_heads, parse_extent(config, "num_key_value_heads", kMaxHeads));
  LAGOON_ASSIGN(draft.heads, parse_extent(config, "num_attention_heads", kMaxHeads));
  LAGOON_RETURN_IF_ERROR(check_heads(config, "num_attention_heads", draft.heads, draft.kv_heads));
  LAGOON_ASSIGN(draft.head_dim, parse_head_dim(config));
  LAGOON_ASSIGN(const double epsilon, config.positive("rms_norm_eps"));
  draft.norm_epsilon = static_cast<float>(epsilon);
  LAGOON_ASSIGN(draft.gate, parse_gate(config));

  LAGOON_ASSIGN(const std::vector<bool> sliding, parse_sliding_layers(config, layers));
  if (std::find(sliding.begin(), sliding.end(), false) != sliding.end())
    return config.unsupported("layer_types",
                              "must all be sliding_attention in a draft, with a sliding_window");
  LAGOON_ASSIGN(draft.window, parse_extent(config, "sliding_window", kMaxPositions));
  LAGOON_ASSIGN(draft.rope,
                parse_rope(config, "sliding_attention", draft.head_dim, ModelRole::kDraft));
  return {};
}

}  // namespace

Result<DraftConfig> parse_draft_config(std::string_view json, const std::string& path) {
  LAGOON_ASSIGN(const JsonValue document, parse_json(json, path));
  const JsonObject* object = document.get_if<JsonObject>();
  if (object == nullptr)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  DraftFields fields{JsonFields(*object, path), std::nullopt};
  LAGOON_RETURN_IF_ERROR(check_architecture(fields.top, kDraftArchitecture));
  LAGOON_RETURN_IF_ERROR(refuse_unsupported_features(fields.top));
  LAGOON_RETURN_IF_ERROR(check_quantization(fields.top));
  LAGOON_ASSIGN(const int64_t experts, fields.top.integer_or("num_experts", 0, kMaxExperts, 0));
  if (experts != 0)
    return fields.top.unsupported("num_experts", "is not 0: Lagoon supports dense drafts");
  if (fields.top.has("dflash_config")) {
    LAGOON_ASSIGN(fields.inner, fields.top.object("dflash_config"));
  }
  DraftConfig draft;
  LAGOON_RETURN_IF_ERROR(parse_transformer(fields.top, draft));
  LAGOON_RETURN_IF_ERROR(parse_dflash(fields, draft));
  return draft;
}

Result<void> check_pair(const TargetConfig& target, const DraftConfig& draft) {
  const auto fault = [](std::string_view what) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the draft does not belong to this target: {}", what)};
  };
  const int depth = static_cast<int>(target.layers.size());
  if (draft.vocab != target.vocab)
    return fault(
        fmt::format("its vocabulary has {} tokens, the target's {}", draft.vocab, target.vocab));
  if (draft.hidden != target.hidden)
    return fault(
        fmt::format("its hidden_size is {}, the target's {}", draft.hidden, target.hidden));
  if (draft.target_layers != 0 && draft.target_layers != depth)
    return fault(fmt::format("it was made for {} target layers, the target has {}",
                             draft.target_layers, depth));
  for (const int tap : draft.tap_layers)
    if (tap < 0 || tap >= depth)
      return fault(fmt::format("it taps layer {} (counted from 0), the target has {}", tap, depth));
  if (draft.mask_token < 0 || draft.mask_token >= target.vocab)
    return fault(fmt::format("its mask token {} is not in the vocabulary", draft.mask_token));
  return {};
}

}  // namespace lagoon::checkpoint
