// Tokens to syntax tree: Jinja2's grammar as of 3.1, with loop controls and generation blocks.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace lagoon::text::jinja {

// Throws Failure with a line for what is wrong or not supported.
TemplateTree parse_template(std::string_view source);

}  // namespace lagoon::text::jinja
