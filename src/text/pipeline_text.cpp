// Normalizers and pre-tokenizers of a tokenizer.json.
#include <fmt/core.h>
#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>

#include "text/pipeline_steps.h"
#include "text/tokenizer_pipeline.h"

namespace lagoon::text {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// What ByteLevel splits at with use_regex (GPT-2's pattern).
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex compile_known(std::string_view pattern) {
  return Regex::compile(pattern).value();
}

Result<SplitBehavior> read_behavior(const JsonReader& reader, const object& split,
                                    const std::string& where) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  LAGOON_ASSIGN(const std::string_view name, reader.get_string(split, where, "behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return reader.unsupported(fmt::format("{}behavior is {:?}", where, name));
}

Result<SplitStep> read_split(const JsonReader& reader, const object& split,
                             const std::string& where) {
  LAGOON_RETURN_IF_ERROR(reader.check_settings(
      split, where, {{"type", {}}, {"pattern", {}}, {"behavior", {}}, {"invert", flag_values()}}));
  SplitStep step;
  LAGOON_ASSIGN(step.behavior, read_behavior(reader, split, where));
  LAGOON_ASSIGN(step.invert, reader.get_flag(split, where, "invert"));
  LAGOON_ASSIGN(const object pattern, reader.get_object(split, where, "pattern"));
  const std::string inside = where + "pattern.";
  LAGOON_RETURN_IF_ERROR(reader.check_settings(pattern, inside, {{"Regex", {}}, {"String", {}}}));
  if (reader.has(pattern, "String")) {
    LAGOON_ASSIGN(const std::string_view literal, reader.get_string(pattern, inside, "String"));
    if (literal.empty()) return reader.invalid(inside + "String is empty");
    step.pattern = std::string(literal);
    return step;
  }
  LAGOON_ASSIGN(const std::string_view text, reader.get_string(pattern, inside, "Regex"));
  auto regex = Regex::compile(text);
  if (!regex.ok()) {
    return reader.unsupported(fmt::format("{}Regex, {:?}, {}", inside, shortened(std::string(text)),
                                          regex.error().message));
  }
  step.pattern = std::move(*regex);
  return step;
}

Result<SplitStep> read_digits(const JsonReader& reader, const object& digits,
                              const std::string& where) {
  LAGOON_RETURN_IF_ERROR(
      reader.check_settings(digits, where, {{"type", {}}, {"individual_digits", flag_values()}}));
  LAGOON_ASSIGN(const bool individual, reader.get_flag(digits, where, "individual_digits"));
  return SplitStep{.pattern = compile_known(R"(\p{N})"),
                   .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                   .invert = false};
}

Result<ByteLevelStep> read_byte_level(const JsonReader& reader, const object& step,
                                      const std::string& where) {
  // Offsets are not computed, so trim_offsets does not matter.
  LAGOON_RETURN_IF_ERROR(reader.check_settings(step, where,
                                               {{"type", {}},
                                                {"add_prefix_space", flag_values()},
                                                {"trim_offsets", {}},
                                                {"use_regex", optional_flag_values()}}));
  ByteLevelStep byte_level;
  LAGOON_ASSIGN(byte_level.add_prefix_space, reader.get_flag(step, where, "add_prefix_space"));
  bool use_regex = true;
  if (reader.has(step, "use_regex")) {
    LAGOON_ASSIGN(use_regex, reader.get_flag(step, where, "use_regex"));
  }
  if (use_regex) byte_level.word_regex = compile_known(kByteLevelPattern);
  return byte_level;
}

}  // namespace

Result<Normalizer> read_normalizer(const JsonReader& reader, const element& value) {
  std::vector<NormalizerStep> steps;
  const auto read = [&](const object& o, std::string_view type,
                        const std::string& where) -> Result<void> {
    if (type == "NFC") {
      LAGOON_RETURN_IF_ERROR(reader.check_settings(o, where, {{"type", {}}}));
      steps.emplace_back(NfcStep{});
    } else if (type == "Replace") {
      LAGOON_ASSIGN(ReplaceStep step, read_replace(reader, o, where));
      steps.emplace_back(std::move(step));
    } else if (type == "Prepend") {
      LAGOON_RETURN_IF_ERROR(reader.check_settings(o, where, {{"type", {}}, {"prepend", {}}}));
      LAGOON_ASSIGN(const std::string_view content, reader.get_string(o, where, "prepend"));
      steps.emplace_back(PrependStep{std::string(content)});
    } else {
      return reader.unsupported(fmt::format("{}type is {:?}", where, type));
    }
    return {};
  };
  LAGOON_RETURN_IF_ERROR(for_each_step(reader, value, "normalizer", "normalizers", read));
  return Normalizer(std::move(steps));
}

Result<PreTokenizerSection> read_pre_tokenizer(const JsonReader& reader, const element& value) {
  std::vector<PreTokenizerStep> steps;
  PreTokenizerSection section;
  const auto read = [&](const object& o, std::string_view type,
                        const std::string& where) -> Result<void> {
    if (section.byte_level) {
      return reader.unsupported(fmt::format("{}type is {:?} after ByteLevel", where, type));
    }
    if (type == "Split") {
      LAGOON_ASSIGN(SplitStep step, read_split(reader, o, where));
      steps.emplace_back(std::move(step));
    } else if (type == "Digits") {
      LAGOON_ASSIGN(SplitStep step, read_digits(reader, o, where));
      steps.emplace_back(std::move(step));
    } else if (type == "ByteLevel") {
      LAGOON_ASSIGN(ByteLevelStep step, read_byte_level(reader, o, where));
      steps.emplace_back(std::move(step));
      section.byte_level = true;
    } else {
      return reader.unsupported(fmt::format("{}type is {:?}", where, type));
    }
    return {};
  };
  LAGOON_RETURN_IF_ERROR(for_each_step(reader, value, "pre_tokenizer", "pretokenizers", read));
  section.pre_tokenizer = PreTokenizer(std::move(steps));
  return section;
}

}  // namespace lagoon::text
