// A chat template as a model repository may hold it, and the variables of a request. The input is a
// template; after a line "=====" may follow a JSON object of variables in place of the usual ones.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace {

using lagoon::text::jinja::Dict;
using lagoon::text::jinja::Limits;
using lagoon::text::jinja::parse_json;
using lagoon::text::jinja::Template;

constexpr std::string_view kSeparator = "\n=====\n";
// Small, so that an input which loops ends soon.
constexpr Limits kLimits = {.steps = 200'000, .text_bytes = size_t{1} << 20, .seconds = 0.25};
constexpr std::string_view kUsual = R"({
  "messages": [
    {"role": "system", "content": "Be kind.\n"},
    {"role": "user", "content": "Grüße 😀 <b>"},
    {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": {"a": "x", "b": [1, 2.5, true, null]}}},
      {"function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "content": "ok"},
    {"role": "user", "content": [{"type": "text", "text": "parts"}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
  "add_generation_prompt": true, "enable_thinking": true, "bos_token": "<s>",
  "n": -9223372036854775808, "x": 1e300, "big": 1000000000000000019884624838656})";

Dict variables_in(std::string_view json) {
  auto parsed = parse_json(json);
  return parsed.ok() && parsed->is_dict() ? parsed->dict() : Dict();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t separator = input.find(kSeparator);
  const auto parsed = Template::parse(input.substr(0, separator), "template");
  if (!parsed.ok()) {
    CHECK(parsed.error().message.starts_with("template:"));
    return 0;
  }
  static const Dict kVariables = variables_in(kUsual);
  CHECK(kVariables.size() > 0);
  const Dict variables = separator == std::string_view::npos
                             ? kVariables
                             : variables_in(input.substr(separator + kSeparator.size()));
  const auto text = parsed->render(variables, kLimits);
  if (text.ok()) CHECK(text->size() <= kLimits.text_bytes);
  return 0;
}
