// HTML escaping, for the filters `escape` and `safe`.
#pragma once

#include <string>
#include <string_view>

namespace lagoon::text::jinja {

// & < > ' " as entities.
std::string escape_html(std::string_view text);

}  // namespace lagoon::text::jinja
