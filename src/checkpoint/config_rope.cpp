// Rotary embedding parameters in the forms they are published in: nested by layer type, flat, and
// the older rope_theta with rope_scaling.
#include <fmt/core.h>

#include <cmath>
#include <optional>
#include <utility>

#include "checkpoint/config_parts.h"
#include "checkpoint/file.h"

namespace lagoon::checkpoint {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

// Where a layer type's parameters were found.
struct Section {
  std::optional<JsonFields> fields;  // none: only the top level speaks of rotary embedding
  std::optional<JsonFields> shared;  // rope_parameters, if it is there
  bool own = false;                  // `fields` is of this layer type alone
  bool others_nested = false;        // rope_parameters has a section of the other type only
};

bool has_any_parameter(const JsonFields& fields) {
  for (std::string_view key : {"rope_theta", "rope_type", "type", "factor"})
    if (fields.has(key)) return true;
  return false;
}

Result<Section> find_section(const JsonFields& config, std::string_view layer_type) {
  Section section;
  if (config.has("rope_parameters")) {
    LAGOON_ASSIGN(section.shared, config.object("rope_parameters"));
    if (section.shared->has(layer_type)) {
      LAGOON_ASSIGN(section.fields, section.shared->object(layer_type));
      section.own = true;
      return section;
    }
  }
  if (layer_type == kSliding && config.has("swa_rope_parameters")) {
    LAGOON_ASSIGN(section.fields, config.object("swa_rope_parameters"));
    section.own = true;
    return section;
  }
  if (section.shared && has_any_parameter(*section.shared)) {
    section.fields = section.shared;
    return section;
  }
  section.others_nested =
      section.shared && (section.shared->has(kFull) || section.shared->has(kSliding));
  if (config.has("rope_scaling")) {
    LAGOON_ASSIGN(section.fields, config.object("rope_scaling"));
  }
  return section;
}

Result<double> parse_theta(const JsonFields& config, const Section& section,
                           std::string_view layer_type) {
  if (section.fields && section.fields->has("rope_theta"))
    return section.fields->positive("rope_theta");
  if (section.shared && section.shared->has("rope_theta"))
    return section.shared->positive("rope_theta");
  if (config.has("rope_theta")) return config.positive("rope_theta");
  return config.error("rope_theta",
                      fmt::format("is missing for {} layers: rope_parameters.{}.rope_theta, "
                                  "rope_parameters.rope_theta and rope_theta are not there",
                                  layer_type, layer_type));
}

Result<double> parse_partial(const JsonFields& config, const Section& section, int head_dim,
                             ModelRole role) {
  const bool in_section = section.fields && section.fields->has("partial_rotary_factor");
  const JsonFields& fields = in_section ? *section.fields : config;
  if (role == ModelRole::kDraft && !fields.has("partial_rotary_factor")) return 1.0;
  LAGOON_ASSIGN(const double partial, fields.positive("partial_rotary_factor"));
  const double rotary_dim = head_dim * partial;
  if (partial > 1 || std::fmod(rotary_dim, 2.0) != 0)
    return fields.error("partial_rotary_factor",
                        fmt::format("is {}; times head_dim {} it must be an even number of at most "
                                    "head_dim",
                                    partial, head_dim));
  return partial;
}

Result<std::string> parse_type(const JsonFields& fields) {
  const std::string_view key = fields.has("rope_type") ? "rope_type" : "type";
  if (!fields.has(key)) {
    if (fields.has("factor"))
      return fields.error("rope_type", "is missing, though there is a factor");
    return std::string("default");
  }
  LAGOON_ASSIGN(std::string type, fields.string(key));
  if (type != "default" && type != "yarn")
    return fields.unsupported(
        key, fmt::format("is {}; Lagoon supports \"default\" and \"yarn\"", in_quotes(type)));
  return type;
}

Result<void> parse_yarn(const JsonFields& config, const JsonFields& fields, RopeConfig& rope) {
  for (std::string_view key : {"mscale", "mscale_all_dim"})
    if (fields.has(key)) return fields.unsupported(key, "is there, which Lagoon does not support");
  LAGOON_ASSIGN(const bool truncate, fields.boolean_or("truncate", true));
  if (!truncate) return fields.unsupported("truncate", "is false, which Lagoon does not support");

  rope.yarn = true;
  LAGOON_ASSIGN(rope.factor, fields.positive("factor"));
  if (rope.factor < 1)
    return fields.error("factor", fmt::format("is {}; it must be at least 1", rope.factor));
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const JsonFields& holder = !fields.has(kOriginal) && config.has(kOriginal) ? config : fields;
  LAGOON_ASSIGN(rope.original_max_position, holder.integer(kOriginal, 1, kMaxPositions));
  LAGOON_ASSIGN(rope.beta_fast, fields.positive_or("beta_fast", 32));
  LAGOON_ASSIGN(rope.beta_slow, fields.positive_or("beta_slow", 1));
  if (rope.beta_fast <= rope.beta_slow)
    return fields.error("beta_fast", fmt::format("is {}; it must be greater than beta_slow {}",
                                                 rope.beta_fast, rope.beta_slow));
  // Some published files say 1.0 and mean it.
  LAGOON_ASSIGN(rope.attention_factor,
                fields.positive_or("attention_factor", 0.1 * std::log(rope.factor) + 1));
  return {};
}

// Parameters that only a stretched embedding has.
Result<void> check_plain(const JsonFields& fields) {
  for (std::string_view key : {"factor", "attention_factor"}) {
    LAGOON_ASSIGN(const double value, fields.positive_or(key, 1));
    if (value != 1)
      return fields.error(key, fmt::format("is {}, but the rope_type is default", value));
  }
  return {};
}

}  // namespace

Result<RopeConfig> parse_rope(const JsonFields& config, std::string_view layer_type, int head_dim,
                              ModelRole role) {
  LAGOON_ASSIGN(const Section section, find_section(config, layer_type));
  if (section.others_nested && role == ModelRole::kTarget)
    return section.shared->error(layer_type, "is missing, though there are such layers");
  RopeConfig rope;
  LAGOON_ASSIGN(rope.theta, parse_theta(config, section, layer_type));
  if (rope.theta <= 1)
    return config.error("rope_theta", fmt::format("is {}; it must be greater than 1", rope.theta));
  LAGOON_ASSIGN(rope.partial_rotary_factor, parse_partial(config, section, head_dim, role));
  if (!section.fields) return rope;
  LAGOON_ASSIGN(const std::string type, parse_type(*section.fields));
  if (type == "default") {
    LAGOON_RETURN_IF_ERROR(check_plain(*section.fields));
    return rope;
  }
  if (role == ModelRole::kDraft)
    return section.fields->unsupported("rope_type", "is \"yarn\"; a draft's must be \"default\"");
  if (layer_type == kSliding && !section.own)
    return config.error("rope_parameters.sliding_attention",
                        "is missing: a yarn embedding for all layers does not say what sliding "
                        "layers have");
  LAGOON_RETURN_IF_ERROR(parse_yarn(config, *section.fields, rope));
  return rope;
}

}  // namespace lagoon::checkpoint
