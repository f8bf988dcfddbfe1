// The output of a model, as it may be cut into pieces. The first byte: bit 0, whether it begins in
// reasoning; bits 1 and 2, which tools there are; bits 3 and 4, which tags are tokens. The second:
// how many bytes of piece sizes follow (modulo 8). The rest is the output. In pieces it must come
// to the same as a whole, and arguments must be JSON objects.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "text/jinja/json.h"
#include "text/parse/outcome.h"

namespace {

using namespace lagoon::text;
using namespace lagoon::text::parse;

using Tools = std::shared_ptr<const ToolTypes>;

// Names and parameters of tests/cases/parse, which the seeds are made of.
constexpr const char* kTyped =
    R"([{"name":"get_weather","parameters":{"properties":{"city":{"type":"string"},)"
    R"("days":{"type":"integer"}}}},{"name":"now"},{"name":"write","parameters":{"properties":{)"
    R"("path":{"type":"string"},"text":{"type":"string"},"mode":{"type":"integer"}}}},)"
    R"({"name":"f","parameters":{"properties":{"s":{"type":"string"},"sn":{"type":["string","null"]},)"
    R"("rn":{"type":["string","null"]},"si":{"type":["string","integer"]},)"
    R"("sa":{"anyOf":[{"type":"string"},{"type":"array"}]},"i":{"type":"integer"}}}}])";
constexpr const char* kOneKey =
    R"([{"name":"f","parameters":{"additionalProperties":{"type":["string","null"]}}}])";

Tools tools_of(const char* json) {
  return std::make_shared<const ToolTypes>(ToolTypes::from(jinja::parse_json(json).value()));
}

const Tools& tools(unsigned choice) {
  static const std::array<Tools, 4> kTools = {nullptr, tools_of(kTyped), tools_of(kOneKey),
                                              tools_of("[]")};
  return kTools[choice % 4];
}

TagSet tokens(unsigned choice) {
  static constexpr std::array<TagSet, 4> kSets = {
      TagSet(), TagSet::of(Tag::kThink, Tag::kEndThink, Tag::kToolCall, Tag::kEndToolCall),
      TagSet::all(), TagSet::of(Tag::kArgKey, Tag::kEndArgValue, Tag::kEndToolCall)};
  return kSets[choice % 4];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const unsigned choices = data[0];
  std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string_view sizes = text.substr(0, data[1] % 8);
  text.remove_prefix(sizes.size());
  const Output output{.in_reasoning = (choices & 1) != 0,
                      .tools = tools(choices >> 1),
                      .tokens = tokens(choices >> 3),
                      .text = text};
  const std::string problem = find_problem(output, sizes);
  if (!problem.empty()) std::fprintf(stderr, "%s\n", problem.c_str());
  CHECK(problem.empty());
  for (const Event& event : outcome_of(output, "").events) {
    if (event.kind == Event::Kind::kArguments) CHECK(nlohmann::json::accept(event.text));
  }
  return 0;
}
