#include "app/speculative_config.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace lagoon::app {
namespace {

Error wrong(const std::string& what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("--speculative-config {}; it takes {{\"method\":\"dflash\",\"model\":DIR,"
                      "\"num_speculative_tokens\":K}}",
                      what)};
}

}  // namespace

Result<SpeculativeConfig> parse_speculative_config(const std::string& json) {
  const auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (parsed.is_discarded()) return wrong("is not valid JSON");
  if (!parsed.is_object()) return wrong("is not a JSON object");
  for (const auto& item : parsed.items()) {
    if (item.key() != "method" && item.key() != "model" && item.key() != "revision" &&
        item.key() != "num_speculative_tokens") {
      return wrong(fmt::format("has the key '{}', which is not known", item.key()));
    }
  }
  for (const char* key : {"method", "model"}) {
    if (!parsed.contains(key)) return wrong(fmt::format("lacks the key '{}'", key));
  }
  const auto& method = parsed["method"];
  if (method != "dflash") {
    return wrong(
        fmt::format("has the method {}, and only dflash is supported", method.dump(-1, ' ', true)));
  }
  if (!parsed["model"].is_string() || parsed["model"].get<std::string>().empty()) {
    return wrong("has a 'model' that is not a string");
  }
  SpeculativeConfig config;
  config.model = parsed["model"].get<std::string>();
  if (parsed.contains("revision")) {
    if (!parsed["revision"].is_string()) return wrong("has a 'revision' that is not a string");
    config.revision = parsed["revision"].get<std::string>();
  }
  if (!parsed.contains("num_speculative_tokens")) return config;
  const auto& proposals = parsed["num_speculative_tokens"];
  if (!proposals.is_number_integer() || proposals < 0 || proposals > 1 << 20) {
    return wrong("has a 'num_speculative_tokens' that is not a number of tokens");
  }
  config.proposals = proposals.get<int>();
  return config;
}

}  // namespace lagoon::app
