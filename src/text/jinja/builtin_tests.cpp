// The tests: what can follow `is`, as jinja2.tests defines them.
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {
namespace {

// A test of the value alone.
template <bool (*Holds)(const Value&)>
Value simple(Runtime&, const Value& input, Arguments& arguments) {
  const BoundArguments none("test", {}, arguments);
  return Holds(input);
}

// A test of the value alone that may cost something.
template <bool (*Holds)(Runtime&, const Value&)>
Value costly(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("test", {}, arguments);
  return Holds(runtime, input);
}

// A test against one other value.
template <bool (*Holds)(Runtime&, const Value&, const Value&)>
Value against(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("test", {"other"}, arguments, 1);
  return Holds(runtime, input, bound.get(0));
}

bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_null();
}
bool is_boolean(const Value& v) {
  return v.is_bool();
}
bool is_true(const Value& v) {
  return v.is_bool() && v.boolean();
}
bool is_false(const Value& v) {
  return v.is_bool() && !v.boolean();
}
bool is_integer(const Value& v) {
  return v.is_int() || v.is_big_integer();
}
bool is_float(const Value& v) {
  return v.is_float();
}
bool is_number(const Value& v) {
  return v.is_number();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is_dict();
}
bool is_escaped(const Value& v) {
  return v.is_safe();
}
bool is_callable(const Value& v) {
  // Jinja2's undefined has a call operator, if only to fail.
  return v.is_undefined() || (v.is_object() && v.object()->callable());
}
bool is_sequence(const Value& v) {
  if (v.is_object()) return v.object()->subscriptable() && v.object()->length().has_value();
  return is_iterable(v);
}

bool has_remainder(Runtime& runtime, const Value& value, const Value& divisor, int64_t remainder) {
  const Value left = modulo(runtime, value, divisor);
  return left.is_number() && as_double(left) == static_cast<double>(remainder);
}
bool is_odd(Runtime& r, const Value& v) {
  return has_remainder(r, v, Value(2), 1);
}
bool is_even(Runtime& r, const Value& v) {
  return has_remainder(r, v, Value(2), 0);
}
bool is_divisible(Runtime& r, const Value& v, const Value& by) {
  return has_remainder(r, v, by, 0);
}

template <const char* Name>
Value has_case(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("test", {}, arguments);
  const Value text = runtime.make_text(to_text(runtime.budget, input));
  return find_string_method(Name)->builtin(runtime, text, arguments);
}
constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

bool is_same(Runtime&, const Value& left, const Value& right) {
  return left.same_as(right);
}
bool is_equal(Runtime& r, const Value& a, const Value& b) {
  return equals(r.budget, a, b);
}
bool is_not_equal(Runtime& r, const Value& a, const Value& b) {
  return !equals(r.budget, a, b);
}
bool is_less(Runtime& r, const Value& a, const Value& b) {
  return less(r.budget, a, b, "<");
}
bool is_greater(Runtime& r, const Value& a, const Value& b) {
  return less(r.budget, b, a, ">");
}
bool is_at_most(Runtime& r, const Value& a, const Value& b) {
  return less(r.budget, a, b, "<=") || equals(r.budget, a, b);
}
bool is_at_least(Runtime& r, const Value& a, const Value& b) {
  return less(r.budget, b, a, ">=") || equals(r.budget, a, b);
}
bool is_in(Runtime& r, const Value& item, const Value& container) {
  return contains(r, container, item);
}

bool is_filter_name(const Value& v) {
  return v.is_string() && find_filter(v.string()) != nullptr;
}
bool is_test_name(const Value& v) {
  return v.is_string() && find_test(v.string()) != nullptr;
}

}  // namespace

Builtin find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kTests = {
      {"defined", simple<is_defined>},
      {"undefined", simple<is_undefined>},
      {"none", simple<is_none>},
      {"boolean", simple<is_boolean>},
      {"true", simple<is_true>},
      {"false", simple<is_false>},
      {"integer", simple<is_integer>},
      {"float", simple<is_float>},
      {"number", simple<is_number>},
      {"string", simple<is_string>},
      {"mapping", simple<is_mapping>},
      {"iterable", simple<is_iterable>},
      {"sequence", simple<is_sequence>},
      {"callable", simple<is_callable>},
      {"escaped", simple<is_escaped>},
      {"odd", costly<is_odd>},
      {"even", costly<is_even>},
      {"filter", simple<is_filter_name>},
      {"test", simple<is_test_name>},
      {"lower", has_case<kIsLower>},
      {"upper", has_case<kIsUpper>},
      {"divisibleby", against<is_divisible>},
      {"sameas", against<is_same>},
      {"in", against<is_in>},
      {"==", against<is_equal>},
      {"eq", against<is_equal>},
      {"equalto", against<is_equal>},
      {"!=", against<is_not_equal>},
      {"ne", against<is_not_equal>},
      {"<", against<is_less>},
      {"lt", against<is_less>},
      {"lessthan", against<is_less>},
      {"<=", against<is_at_most>},
      {"le", against<is_at_most>},
      {">", against<is_greater>},
      {"gt", against<is_greater>},
      {"greaterthan", against<is_greater>},
      {">=", against<is_at_least>},
      {"ge", against<is_at_least>},
  };
  const auto found = kTests.find(name);
  return found != kTests.end() ? found->second : nullptr;
}

}  // namespace lagoon::text::jinja
