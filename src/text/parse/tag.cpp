#include "text/parse/tag.h"

#include <array>

namespace lagoon::text::parse {

std::string_view tag_text(Tag tag) {
  static constexpr std::array<std::string_view, kTagCount> kTexts = {
      "<think>",   "</think>",   "<tool_call>", "</tool_call>",
      "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
  return kTexts.at(static_cast<size_t>(tag));
}

}  // namespace lagoon::text::parse
