// The lexer inside {{ }} and {% %}: names, numbers, strings and operators.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/jinja/token.h"

namespace lagoon::text::jinja {

// The token at `position`, where no whitespace stands; `bytes` is its length. Throws Failure.
Token lex_in_tag(std::string_view source, size_t position, int line, size_t& bytes);

// Keeps in `open` the closing brackets owed; throws Failure for one that does not fit.
void balance(const Token& symbol, std::string& open);

// A string literal's inside with its escapes resolved, as Python does. Throws Failure.
std::string unescape(std::string_view inside, int line);

}  // namespace lagoon::text::jinja
