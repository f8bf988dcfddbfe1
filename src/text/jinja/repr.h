// Values as text, as Python's str(), repr() and type() give them.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

// What {{ value }} prints: undefined is "", None is "None", True is "True".
std::string to_text(Budget& budget, const Value& value);
// str is quoted, and so are those in lists.
std::string repr(Budget& budget, const Value& value);
std::string repr_string(std::string_view text);
// What ascii() makes of a repr: \x, \u and \U for what is not ASCII.
std::string ascii_only(std::string_view text);
// The shortest digits that read back as the same number: 1.0, 0.1, 1e+16, inf.
std::string repr_float(double number);

// type(value).__name__: "str", "NoneType" ...
std::string type_name(const Value& value);
// As in "'dict object' has no attribute 'x'"; "None" for None.
std::string described_type(const Value& value);

// Throws Failure with the value's message where it is undefined.
void require_defined(const Value& value);

}  // namespace lagoon::text::jinja
