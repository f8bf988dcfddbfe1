#include "checkpoint/quantization.h"

#include <fmt/core.h>

#include <algorithm>
#include <regex>
#include <utility>
#include <vector>

#include "checkpoint/config_parts.h"
#include "checkpoint/file.h"
#include "checkpoint/json_value.h"

namespace lagoon::checkpoint {
namespace {

constexpr std::string_view kExpression = "re:";

// A list of module names, classes and regular expressions.
struct Names {
  std::vector<std::string> plain;
  std::vector<std::regex> expressions;

  bool match(std::string_view module) const {
    if (std::find(plain.begin(), plain.end(), module) != plain.end()) return true;
    return std::any_of(expressions.begin(), expressions.end(), [&](const std::regex& expression) {
      return std::regex_search(module.begin(), module.end(), expression,
                               std::regex_constants::match_continuous);
    });
  }
};

struct Group {
  Storage storage = Storage::kPlain;
  Names targets;
};

// libstdc++'s matcher that takes polynomial time whatever the expression, without back-references.
constexpr auto kSyntax = std::regex::ECMAScript | std::regex_constants::__polynomial;

Result<Names> parse_names(const JsonFields& fields, std::string_view key) {
  LAGOON_ASSIGN(const std::vector<std::string> entries, fields.strings(key));
  Names names;
  for (const std::string& entry : entries) {
    if (!entry.starts_with(kExpression)) {
      names.plain.push_back(entry);
      continue;
    }
    try {
      names.expressions.emplace_back(entry.substr(kExpression.size()), kSyntax);
    } catch (const std::regex_error&) {
      return fields.error(
          key, fmt::format("has {}, which is not a regular expression that Lagoon understands",
                           in_quotes(entry)));
    }
  }
  return names;
}

// The sizes that share a scale; absent where the strategy implies them.
Result<void> check_sizes(const JsonFields& group, Storage storage) {
  if (!group.has("weights")) return {};
  LAGOON_ASSIGN(const JsonFields weights, group.object("weights"));
  if (storage == Storage::kNVFP4) {
    LAGOON_ASSIGN(const int64_t size, weights.integer_or("group_size", 1, kMaxWidth, 16));
    if (size != 16)
      return weights.unsupported("group_size", fmt::format("is {}; Lagoon supports 16", size));
    return {};
  }
  LAGOON_ASSIGN(const std::string strategy, weights.string_or("strategy", "block"));
  if (strategy != "block")
    return weights.unsupported(
        "strategy", fmt::format("is {}; Lagoon supports \"block\"", in_quotes(strategy)));
  if (!weights.has("block_structure")) return {};
  LAGOON_ASSIGN(const std::vector<int64_t> block,
                weights.integers("block_structure", 1, kMaxWidth));
  if (block != std::vector<int64_t>{128, 128})
    return weights.unsupported("block_structure", "is not [128, 128], which Lagoon supports");
  return {};
}

Result<Group> parse_group(const JsonFields& quantization, const JsonFields& group) {
  const JsonFields& holder = group.has("format") ? group : quantization;
  LAGOON_ASSIGN(const std::string format, holder.string("format"));
  Group parsed;
  if (format == "nvfp4-pack-quantized") {
    parsed.storage = Storage::kNVFP4;
  } else if (format == "float-quantized") {
    parsed.storage = Storage::kFP8;
  } else {
    return holder.unsupported("format", fmt::format("is {}, which does not say how weights are "
                                                    "stored",
                                                    in_quotes(format)));
  }
  LAGOON_RETURN_IF_ERROR(check_sizes(group, parsed.storage));
  LAGOON_ASSIGN(parsed.targets, parse_names(group, "targets"));
  return parsed;
}

}  // namespace

struct QuantizationScheme::Rules {
  std::vector<Group> groups;
  Names ignored;
  bool cache_scales = false;
};

QuantizationScheme::QuantizationScheme(std::unique_ptr<const Rules> rules)
    : rules_(std::move(rules)) {}
QuantizationScheme::~QuantizationScheme() = default;
QuantizationScheme::QuantizationScheme(QuantizationScheme&&) noexcept = default;
QuantizationScheme& QuantizationScheme::operator=(QuantizationScheme&&) noexcept = default;

Result<QuantizationScheme> QuantizationScheme::parse(std::string_view json,
                                                     const std::string& path) {
  LAGOON_ASSIGN(const JsonValue document, parse_json(json, path));
  const JsonObject* object = document.get_if<JsonObject>();
  if (object == nullptr)
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  const JsonFields config(*object, path);
  LAGOON_RETURN_IF_ERROR(check_quantization(config));
  auto rules = std::make_unique<Rules>();
  for (std::string_view key : {"quantization_config", "compression_config"}) {
    if (!config.has(key)) continue;
    LAGOON_ASSIGN(const JsonFields quantization, config.object(key));
    rules->cache_scales = quantization.has("kv_cache_scheme");
    if (quantization.has("ignore")) {
      LAGOON_ASSIGN(rules->ignored, parse_names(quantization, "ignore"));
    }
    LAGOON_ASSIGN(const JsonFields groups, quantization.object("config_groups"));
    for (const std::string& name : groups.keys()) {
      LAGOON_ASSIGN(const JsonFields fields, groups.object(name));
      LAGOON_ASSIGN(Group group, parse_group(quantization, fields));
      rules->groups.push_back(std::move(group));
    }
    break;
  }
  return QuantizationScheme(std::move(rules));
}

Storage QuantizationScheme::storage(std::string_view module) const {
  if (rules_->groups.empty() || rules_->ignored.match(module)) return Storage::kPlain;
  for (const Group& group : rules_->groups)
    if (group.targets.match(module) || group.targets.match("Linear")) return group.storage;
  return Storage::kPlain;
}

bool QuantizationScheme::has_cache_scales() const {
  return rules_->cache_scales;
}

}  // namespace lagoon::checkpoint
