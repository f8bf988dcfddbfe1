// Python's operators on values. Every function throws Failure where Python raises, with a message
// like Python's. Integers are 64 bits wide here: beyond that is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

// arithmetic.cpp
Value add(Runtime& runtime, const Value& left, const Value& right);
Value subtract(const Value& left, const Value& right);
Value multiply(Runtime& runtime, const Value& left, const Value& right);
Value divide(const Value& left, const Value& right);        // "/"
Value floor_divide(const Value& left, const Value& right);  // "//"
// "%"; of a string, formatting.
Value modulo(Runtime& runtime, const Value& left, const Value& right);
Value power(const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);
// A bool, int or float as a double.
double as_double(const Value& number);

// comparison.cpp
bool equals(Budget& budget, const Value& left, const Value& right);
// Whether left < right; `symbol` is the operator written, for the message.
bool less(Budget& budget, const Value& left, const Value& right, const char* symbol = "<");
bool contains(Runtime& runtime, const Value& container, const Value& item);
// Equal values have equal keys: what a Python set or dict would find. Throws for lists and dicts.
std::string hash_key(Budget& budget, const Value& value);

// access.cpp
// Python's getattr with the sandbox's rules: attributes and methods, never items.
std::optional<Value> find_attribute(const Value& object, std::string_view name);
// `object.name`: attribute or method, else item; Undefined where there is neither.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);
// `object[key]`: item, else attribute or method; Undefined where there is neither.
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// `object[start:stop:step]`; null stands for a bound that is not given.
Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// The items of a list, tuple, dict (keys), string (characters) or iterator.
List iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// Python's len().
size_t length(const Value& value);
std::optional<size_t> find_length(const Value& value);
Value call(Runtime& runtime, const Value& callee, Arguments arguments);

}  // namespace lagoon::text::jinja
