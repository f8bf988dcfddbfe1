// map, select and the like: filters that apply other filters and tests to each item.
#include <fmt/core.h>

#include <unordered_map>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {
namespace {

// The arguments from `from` on, which go to the filter or test named before them.
Arguments rest_of(const Arguments& arguments, size_t from) {
  Arguments rest;
  for (size_t i = from; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  rest.named = arguments.named;
  return rest;
}

Builtin named_builtin(const Value& name, Builtin (*find)(std::string_view), const char* kind) {
  const Builtin found = name.is_string() ? find(name.string()) : nullptr;
  if (found == nullptr) {
    throw Failure(fmt::format("No {} named {}.", kind,
                              name.is_string() ? repr_string(name.string()) : type_name(name)));
  }
  return found;
}

Value map_attribute(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("map", {"attribute", "default"}, arguments, 1);
  const AttributePath path(bound.get(0));
  const Value otherwise = bound.get(1);
  List mapped;
  for (const Value& item : iterate(runtime, input)) {
    mapped.push_back(path.get(runtime, item, otherwise));
  }
  return runtime.make_generator(std::move(mapped));
}

Value map(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!input.truthy()) return runtime.make_generator({});
  if (arguments.positional.empty()) {
    for (const auto& [name, value] : arguments.named) {
      if (name == "attribute") return map_attribute(runtime, input, arguments);
    }
    throw Failure("map requires a filter argument");
  }
  const Builtin filter = named_builtin(arguments.positional[0], find_filter, "filter");
  const Arguments rest = rest_of(arguments, 1);
  List mapped;
  for (const Value& item : iterate(runtime, input)) {
    runtime.budget.charge(1);
    Arguments copy = rest;
    mapped.push_back(filter(runtime, item, copy));
  }
  return runtime.make_generator(std::move(mapped));
}

// select, reject and, with `ByAttribute`, selectattr, rejectattr.
template <bool Keep, bool ByAttribute>
Value select(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!input.truthy()) return runtime.make_generator({});
  constexpr size_t kTest = ByAttribute ? 1 : 0;
  if (arguments.positional.size() < kTest) {
    throw Failure("Missing parameter for attribute name");
  }
  const AttributePath path(ByAttribute ? arguments.positional[0] : Value());
  Builtin test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > kTest) {
    test = named_builtin(arguments.positional[kTest], find_test, "test");
    rest = rest_of(arguments, kTest + 1);
  }
  List kept;
  for (const Value& item : iterate(runtime, input)) {
    runtime.budget.charge(1);
    const Value tested = path.get(runtime, item);
    Arguments copy = rest;
    const bool passes = test == nullptr ? tested.truthy() : test(runtime, tested, copy).truthy();
    if (passes == Keep) kept.push_back(item);
  }
  return runtime.make_generator(std::move(kept));
}

// attr("name"): the attribute only, never an item.
Value attribute(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("attr", {"name"}, arguments, 1);
  require_defined(input);
  const std::string name = to_text(runtime.budget, bound.get(0));
  if (std::optional<Value> found = find_attribute(input, name)) return *std::move(found);
  return Undefined{
      name, fmt::format("'{}' has no attribute {}", described_type(input), repr_string(name))};
}

}  // namespace

Builtin find_selection_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kFilters = {
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
      {"attr", attribute},
  };
  const auto found = kFilters.find(name);
  return found != kFilters.end() ? found->second : nullptr;
}

Builtin find_filter(std::string_view name) {
  if (const Builtin found = find_text_filter(name)) return found;
  if (const Builtin found = find_sequence_filter(name)) return found;
  if (const Builtin found = find_selection_filter(name)) return found;
  return find_number_filter(name);
}

bool is_filter_of_jinja(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"};
  return kNames.contains(name);
}

}  // namespace lagoon::text::jinja
