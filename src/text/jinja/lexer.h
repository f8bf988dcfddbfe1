// Cuts a template into tokens and applies the rules for whitespace around tags: trim_blocks and
// lstrip_blocks as if set, "-" and "+" signs, one newline at the end of the template dropped.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/token.h"

namespace lagoon::text::jinja {

// The last token is kEnd. Comments and raw tags are gone. Throws Failure with a line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace lagoon::text::jinja
