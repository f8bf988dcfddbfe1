#include "text/pipeline_steps.h"

#include <fmt/core.h>
#include <simdjson.h>

namespace lagoon::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// A decoder looks for it in what has been held back at every step.
constexpr size_t kLongestPattern = 256;

constexpr int kMostNesting = 8;

Result<void> read_nested(const JsonReader& reader, const element& value, const std::string& name,
                         std::string_view list, const StepReader& read, int depth) {
  if (depth > kMostNesting) {
    return reader.unsupported(
        fmt::format("{} has Sequences nested more than {} deep", name, kMostNesting));
  }
  object step;
  if (value.get(step) != simdjson::SUCCESS) return reader.unsupported(name, value);
  const std::string where = name + ".";
  LAGOON_ASSIGN(const std::string_view type, reader.get_string(step, where, "type"));
  if (type != "Sequence") return read(step, type, where);
  LAGOON_RETURN_IF_ERROR(reader.check_settings(step, where, {{"type", {}}, {list, {}}}));
  LAGOON_ASSIGN(const array items, reader.get_array(step, where, list));
  size_t index = 0;
  for (const element item : items) {
    LAGOON_RETURN_IF_ERROR(read_nested(reader, item, fmt::format("{}{}[{}]", where, list, index++),
                                       list, read, depth + 1));
  }
  return {};
}

}  // namespace

Result<void> for_each_step(const JsonReader& reader, const element& value, const std::string& name,
                           std::string_view list, const StepReader& read) {
  if (value.is_null()) return {};
  return read_nested(reader, value, name, list, read, 0);
}

Result<ReplaceStep> read_replace(const JsonReader& reader, const object& step,
                                 const std::string& where) {
  LAGOON_RETURN_IF_ERROR(
      reader.check_settings(step, where, {{"type", {}}, {"pattern", {}}, {"content", {}}}));
  LAGOON_ASSIGN(const object pattern, reader.get_object(step, where, "pattern"));
  LAGOON_RETURN_IF_ERROR(reader.check_settings(pattern, where + "pattern.", {{"String", {}}}));
  LAGOON_ASSIGN(const std::string_view literal,
                reader.get_string(pattern, where + "pattern.", "String"));
  LAGOON_ASSIGN(const std::string_view content, reader.get_string(step, where, "content"));
  if (literal.empty() || literal.size() > kLongestPattern) {
    return reader.unsupported(fmt::format("{}pattern.String has {} bytes, which is not 1 to {}",
                                          where, literal.size(), kLongestPattern));
  }
  return ReplaceStep{.pattern = std::string(literal), .content = std::string(content)};
}

}  // namespace lagoon::text
