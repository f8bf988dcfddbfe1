// The built-in filters, tests and functions, by name.
#pragma once

#include <string_view>

#include "text/jinja/object.h"

namespace lagoon::text::jinja {

// Null where there is no such filter or test.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
// Null where there is no such global function.
Builtin find_function(std::string_view name);

// Whether Jinja2 has a filter, test or function of that name that Lagoon lacks.
bool is_filter_of_jinja(std::string_view name);
bool is_function_of_jinja(std::string_view name);

// text_filters.cpp, sequence_filters.cpp, selection_filters.cpp, number_filters.cpp
Builtin find_text_filter(std::string_view name);
Builtin find_sequence_filter(std::string_view name);
Builtin find_selection_filter(std::string_view name);
Builtin find_number_filter(std::string_view name);

}  // namespace lagoon::text::jinja
