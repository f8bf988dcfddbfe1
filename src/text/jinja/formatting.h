// Python's ways to put values into a text: "..." % values and "...".format(values).
#pragma once

#include "text/jinja/object.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

// format % values: a tuple's items in order, a dict's by name, or one value. A safe format escapes
// what it is given.
Value format_percent(Runtime& runtime, const Value& format, const Value& values);

// str.format and str.format_map: the fields {}, {0}, {name}, {0.attribute[item]}, !r, !s, !a and
// format specifiers, which may hold fields themselves.
Value format_braces(Runtime& runtime, const Value& format, Arguments& arguments);
Value format_mapped(Runtime& runtime, const Value& format, Arguments& arguments);

}  // namespace lagoon::text::jinja
