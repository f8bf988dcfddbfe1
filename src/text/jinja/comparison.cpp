#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

// Holds every int64_t and every double exactly (64 bits of mantissa or more).
long double exact(const Value& number) {
  if (number.is_float()) return number.floating();
  // Off by a little, which only a float as large can see.
  if (number.is_big_integer()) return std::strtold(number.big_integer().c_str(), nullptr);
  return number.is_bool() ? (number.boolean() ? 1 : 0) : number.integer();
}

// Whether one integer of more than 64 bits is less than another.
bool less_big(const std::string& left, const std::string& right) {
  const bool negative = left[0] == '-';
  if (negative != (right[0] == '-')) return negative;
  const bool less = left.size() != right.size() ? left.size() < right.size() : left < right;
  return negative ? !less && left != right : less;
}

bool equal_items(Budget& budget, const List& left, const List& right) {
  return left.size() == right.size() &&
         std::equal(left.begin(), left.end(), right.begin(),
                    [&](const Value& a, const Value& b) { return equals(budget, a, b); });
}

bool equal_dicts(Budget& budget, const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.items()) {
    const Value* other = right.find(key);
    if (other == nullptr || !equals(budget, value, *other)) return false;
  }
  return true;
}

// Lists and tuples compare by the first items that differ.
bool less_items(Budget& budget, const List& left, const List& right, const char* symbol) {
  const size_t common = std::min(left.size(), right.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(budget, left[i], right[i])) return less(budget, left[i], right[i], symbol);
  }
  return left.size() < right.size();
}

bool any_equal(Budget& budget, const List& items, const Value& item) {
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return equals(budget, other, item); });
}

}  // namespace

bool equals(Budget& budget, const Value& left, const Value& right) {
  const Nested nested(budget);
  budget.charge(1);
  if (left.is_big_integer() && right.is_big_integer()) {
    return left.big_integer() == right.big_integer();
  }
  if (left.is_number() && right.is_number()) return exact(left) == exact(right);
  if (left.is_string() && right.is_string()) {
    if (left.string().size() != right.string().size()) return false;
    budget.charge_text(left.string().size());
    return left.string() == right.string();
  }
  if (left.is_list() && right.is_list()) return equal_items(budget, left.list(), right.list());
  if (left.is_tuple() && right.is_tuple()) return equal_items(budget, left.tuple(), right.tuple());
  if (left.is_dict() && right.is_dict()) return equal_dicts(budget, left.dict(), right.dict());
  if (left.is_undefined() && right.is_undefined()) return true;
  if (left.is_object() && right.is_object()) {
    return left.object()->equal_to(budget, *right.object());
  }
  return left.same_as(right);
}

bool less(Budget& budget, const Value& left, const Value& right, const char* symbol) {
  const Nested nested(budget);
  budget.charge(1);
  if (left.is_big_integer() && right.is_big_integer()) {
    return less_big(left.big_integer(), right.big_integer());
  }
  if (left.is_number() && right.is_number()) return exact(left) < exact(right);
  if (left.is_string() && right.is_string()) {
    budget.charge_text(std::min(left.string().size(), right.string().size()));
    return left.string() < right.string();  // UTF-8 sorts as its characters do
  }
  if (left.is_list() && right.is_list()) {
    return less_items(budget, left.list(), right.list(), symbol);
  }
  if (left.is_tuple() && right.is_tuple()) {
    return less_items(budget, left.tuple(), right.tuple(), symbol);
  }
  // "a > b" arrives here as b < a.
  const bool swapped = symbol[0] == '>';
  const Value& first = swapped ? right : left;
  const Value& second = swapped ? left : right;
  require_defined(first);
  require_defined(second);
  throw Failure(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol,
                            type_name(first), type_name(second)));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  Budget& budget = runtime.budget;
  if (container.is_string()) {
    require_defined(item);
    if (!item.is_string()) {
      throw Failure(
          fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    budget.charge_text(container.string().size());
    return find_text(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_list()) return any_equal(budget, container.list(), item);
  if (container.is_tuple()) return any_equal(budget, container.tuple(), item);
  if (container.is_dict()) {
    hash_key(budget, item);  // as Python, an error for what cannot be a key
    return item.is_string() && container.dict().find(item.string()) != nullptr;
  }
  if (!is_iterable(container)) {
    throw Failure(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  return any_equal(budget, iterate(runtime, container), item);
}

std::string hash_key(Budget& budget, const Value& value) {
  const Nested nested(budget);
  budget.charge(1);
  if (value.is_string()) {
    budget.charge_text(value.string().size());
    return fmt::format("s{}:{}", value.string().size(), value.string());
  }
  if (value.is_float() && std::floor(value.floating()) != value.floating()) {
    return fmt::format("f{}", value.floating());
  }
  if (value.is_big_integer()) return "n" + value.big_integer();
  if (value.is_number()) return fmt::format("n{:.0f}", exact(value));
  if (value.is_null()) return "none";
  if (value.is_undefined()) return "undefined";
  if (value.is_tuple()) {
    std::string key = "(";
    for (const Value& item : value.tuple()) key += hash_key(budget, item) + ",";
    budget.charge_text(key.size());
    return key + ")";
  }
  if (value.is_object()) return fmt::format("o{}", static_cast<const void*>(value.object().get()));
  throw Failure(fmt::format("unhashable type: '{}'", type_name(value)));
}

}  // namespace lagoon::text::jinja
