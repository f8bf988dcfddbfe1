// Which JSON types the parameters of a request's tools may have: what decides how a value that a
// model wrote as plain text is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/jinja/value.h"

namespace lagoon::text::parse {

class TypeSet {
 public:
  enum Type : uint8_t {
    kString = 1,
    kNull = 2,
    kBoolean = 4,
    kInteger = 8,
    kNumber = 16,  // integers too
    kArray = 32,
    kObject = 64,
  };

  constexpr TypeSet() = default;
  constexpr TypeSet(Type type) : bits_(type) {}
  static constexpr TypeSet any() {
    TypeSet set;
    set.bits_ = 127;
    return set;
  }

  constexpr bool has(Type type) const { return (bits_ & type) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const TypeSet&) const = default;
  constexpr TypeSet operator|(TypeSet other) const {
    TypeSet set;
    set.bits_ = bits_ | other.bits_;
    return set;
  }

 private:
  uint8_t bits_ = 0;
};

// Immutable; any thread.
class ToolTypes {
 public:
  // Knows no tool.
  ToolTypes() = default;

  // `tools` is the list of a request: {"type": "function", "function": {"name", "parameters"}}, or
  // with name and parameters (also called input_schema) at the top. `parameters` is a JSON schema;
  // of it `type` (one or a list), `enum`, `const`, `anyOf`, `oneOf`, `allOf`, `nullable`, local
  // `$ref` and `additionalProperties` are understood. Nothing is an error: what is not understood
  // leaves a parameter's type open. Time is bounded, whatever the schema's references do.
  static ToolTypes from(const jinja::Value& tools);

  bool knows(std::string_view tool) const;
  // Open (TypeSet::any()) for tools and parameters that are not known.
  TypeSet type_of(std::string_view tool, std::string_view parameter) const;

 private:
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the library's name
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  template <typename T>
  using Map = std::unordered_map<std::string, T, Hash, std::equal_to<>>;
  struct Tool {
    Map<TypeSet> parameters;
    TypeSet others = TypeSet::any();
  };
  class Reader;

  Map<Tool> tools_;
};

}  // namespace lagoon::text::parse
