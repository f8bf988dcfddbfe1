#include "app/generation_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

namespace lagoon::app {
namespace {

constexpr double kMaxTemperature = 1e6;

// The text of the generation_config.json that --generation-config asks for, and what to call it.
struct GenerationConfig {
  std::string json;  // "" where there is none
  std::string path;  // for errors
  std::string from;  // for the start-up line
};

Result<GenerationConfig> read_generation_config(const ModelOptions& options,
                                                const checkpoint::ModelDir& target) {
  constexpr std::string_view kFile = "generation_config.json";
  if (options.generation_config == "vllm") {
    return GenerationConfig{.json = "", .path = "", .from = "--generation-config vllm"};
  }
  if (options.generation_config != "auto") {
    const std::string path = fmt::format("{}/{}", options.generation_config, kFile);
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (file.is_open() && !file.bad() && !text.str().empty()) {
      return GenerationConfig{.json = text.str(), .path = path, .from = path};
    }
    return Error{ErrorCode::kNotFound,
                 fmt::format("--generation-config is {}, and there is no {} that can be read; it "
                             "takes auto, vllm or a directory that has one",
                             options.generation_config, path)};
  }
  auto text = target.read_text(kFile);
  if (text.ok()) {
    return GenerationConfig{.json = std::move(text).value(),
                            .path = target.file_path(kFile),
                            .from = std::string(kFile)};
  }
  if (text.error().code != ErrorCode::kNotFound) return text.error();
  return GenerationConfig{
      .json = "", .path = "", .from = "the model has no generation_config.json"};
}

// Keys of --override-generation-config that replace the file's.
Result<std::string> with_override(const std::string& json, const std::string& path,
                                  const std::string& overriding) {
  if (overriding.empty()) return json;
  constexpr const char* kOption = "--override-generation-config";
  const auto changes = nlohmann::json::parse(overriding, nullptr, false);
  if (!changes.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a JSON object: {}", kOption, overriding)};
  }
  auto config = nlohmann::json::parse(json.empty() ? "{}" : json, nullptr, false);
  if (!config.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  }
  for (const auto& [key, value] : changes.items()) {
    if (key != "temperature" && key != "top_p" && key != "top_k" && key != "min_p") {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{} sets {}, and this version has server-wide defaults for "
                               "temperature, top_p, top_k and min_p only",
                               kOption, key)};
    }
    if (!value.is_number()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} gives {} a value that is no number", kOption, key)};
    }
    config[key] = value;
  }
  return config.dump();
}

}  // namespace

Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path,
                                                 const std::string& overriding) {
  LAGOON_ASSIGN(const std::string merged, with_override(json, path, overriding));
  return parse_generation_config(
      merged, overriding.empty() ? path : "--override-generation-config on " + path);
}

Result<SamplingDefaults> parse_generation_config(const std::string& json, const std::string& path) {
  SamplingDefaults defaults;
  defaults.sampling.temperature = 1;
  if (json.empty()) return defaults;
  const auto config = nlohmann::json::parse(json, nullptr, false);
  if (!config.is_object()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a JSON object", path)};
  }
  const auto number = [&](const char* key, double otherwise) {
    const auto found = config.find(key);
    return found != config.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  const double temperature = number("temperature", 1);
  const double top_p = number("top_p", 1);
  const double top_k = number("top_k", 0);
  const double min_p = number("min_p", 0);
  if (!(temperature >= 0 && temperature <= kMaxTemperature) || !(top_p > 0 && top_p <= 1) ||
      !(min_p >= 0 && min_p <= 1) || !(top_k <= std::numeric_limits<int>::max())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has a temperature outside [0, {:g}], a top_p outside (0, 1], a "
                             "min_p outside [0, 1] or a top_k that is no token count",
                             path, kMaxTemperature)};
  }
  defaults.sampling.temperature = static_cast<float>(temperature);
  defaults.sampling.top_p = static_cast<float>(top_p);
  defaults.sampling.top_k = static_cast<int>(std::max(top_k, 0.0));
  defaults.sampling.min_p = static_cast<float>(min_p);
  const std::pair<const char*, double> neutral[] = {
      {"repetition_penalty", 1}, {"presence_penalty", 0}, {"frequency_penalty", 0}};
  for (const auto& [key, value] : neutral) {
    if (number(key, value) == value) continue;
    defaults.ignored += (defaults.ignored.empty() ? "" : ", ") + std::string(key);
  }
  return defaults;
}

Result<ModelSampling> read_sampling_defaults(const ModelOptions& options,
                                             const checkpoint::ModelDir& target) {
  LAGOON_ASSIGN(const GenerationConfig file, read_generation_config(options, target));
  LAGOON_ASSIGN(const SamplingDefaults defaults,
                parse_generation_config(file.json, file.path, options.override_generation_config));
  const kernels::Sampling& sampling = defaults.sampling;
  ModelSampling made{.sampling = sampling, .lines = {}};
  made.lines.push_back(fmt::format(
      "sampling defaults: temperature {:g}, top_p {:g}, top_k {}, min_p {:g} ({}{})",
      sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, file.from,
      options.override_generation_config.empty() ? "" : ", --override-generation-config"));
  if (!defaults.ignored.empty()) {
    made.lines.push_back(fmt::format("not applied, since this version does not do it: {} of {}",
                                     defaults.ignored, file.path));
  }
  return made;
}

}  // namespace lagoon::app
