// The methods that strings, lists, tuples and dicts have in Python.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/object.h"

namespace lagoon::text::jinja {

struct Method {
  enum class Kind {
    kBuiltin,      // `builtin` does it
    kUnsafe,       // it would change the value: the sandbox forbids it
    kUnsupported,  // Python has it, this version of Lagoon does not
  };
  Kind kind;
  Builtin builtin;
};

// The method or attribute `name` of `value`; nothing where Python has none.
std::optional<Method> find_method(const Value& value, std::string_view name);

// string_methods.cpp, string_search.cpp, container_methods.cpp
std::optional<Method> find_string_method(std::string_view name);
std::optional<Method> find_string_search_method(std::string_view name);
std::optional<Method> find_dict_method(std::string_view name);
std::optional<Method> find_list_method(std::string_view name);
std::optional<Method> find_tuple_method(std::string_view name);

}  // namespace lagoon::text::jinja
