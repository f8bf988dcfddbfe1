// Filters on sequences as a whole: ends, order, joining.
#include <fmt/core.h>

#include <algorithm>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

Value first(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("first", {}, arguments);
  const Undefined nothing{"", "No first item, sequence was empty."};
  if (input.is_object()) {
    // A generator loses only the item taken.
    if (auto* generator = dynamic_cast<Generator*>(input.object().get())) {
      return generator->next().value_or(Value(nothing));
    }
  }
  if (input.is_string() && !input.string().empty()) {
    const std::string_view text = input.string();
    return runtime.make_text_like(std::string(text.substr(0, character_bytes(text))), input);
  }
  if (input.is_list() && !input.list().empty()) return input.list().front();
  const List items = iterate(runtime, input);
  return items.empty() ? Value(nothing) : items.front();
}

bool is_reversible(const Value& value) {
  return value.is_object() ? value.object()->reversible() : is_iterable(value);
}

Value last(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("last", {}, arguments);
  if (!is_reversible(input)) {
    throw Failure(fmt::format("'{}' object is not reversible", type_name(input)));
  }
  if (input.is_list() && !input.list().empty()) return input.list().back();
  const List items = iterate(runtime, input);
  if (items.empty()) return Undefined{"", "No last item, sequence was empty."};
  return items.back();
}

Value count(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("length", {}, arguments);
  if (input.is_string()) runtime.budget.charge_text(input.string().size());
  return static_cast<int64_t>(length(input));
}

Value list(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("list", {}, arguments);
  return runtime.make_list(iterate(runtime, input));
}

List pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict.items()) pairs.push_back(Value::tuple({Value(key), value}));
  return pairs;
}

Value items(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("items", {}, arguments);
  if (input.is_undefined()) return runtime.make_generator({});
  if (!input.is_dict()) throw Failure("Can only get item pairs from a mapping.");
  return runtime.make_generator(pairs_of(input.dict()));
}

Value join(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("join", {"d", "attribute"}, arguments);
  Budget& budget = runtime.budget;
  const std::string separator = to_text(budget, bound.get(0, Value("")));
  const AttributePath path(bound.get(1));
  std::string out;
  bool is_first = true;
  for (const Value& item : iterate(runtime, input)) {
    if (!std::exchange(is_first, false)) append_text(budget, out, separator);
    append_text(budget, out, to_text(budget, path.get(runtime, item)));
  }
  return out;
}

Value reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("reverse", {}, arguments);
  if (!is_iterable(input)) throw Failure("argument must be iterable");
  List reversed = iterate(runtime, input);
  std::reverse(reversed.begin(), reversed.end());
  if (input.is_string()) {
    std::string text;
    for (const Value& item : reversed) text += item.string();
    return runtime.make_text_like(std::move(text), input);
  }
  if (!is_reversible(input)) return runtime.make_list(std::move(reversed));
  return runtime.make_generator(std::move(reversed), input.is_list()   ? "list_reverseiterator"
                                                     : input.is_dict() ? "dict_reversekeyiterator"
                                                                       : "reversed");
}

// Sorts, stably, by keys that compare as lists do.
struct Keyed {
  List key;
  Value item;
};

// A list's merge sort is stable and, unlike std::sort, safe with keys that have no order (nan).
List sorted_items(Runtime& runtime, std::list<Keyed> keyed, bool reverse) {
  const auto before = [&](const Keyed& left, const Keyed& right) {
    for (size_t i = 0; i < left.key.size(); ++i) {
      if (equals(runtime.budget, left.key[i], right.key[i])) continue;
      return less(runtime.budget, left.key[i], right.key[i]);
    }
    return false;
  };
  if (reverse) {
    // Equal items keep their order here too.
    keyed.sort([&](const Keyed& a, const Keyed& b) { return before(b, a); });
  } else {
    keyed.sort(before);
  }
  List sorted;
  sorted.reserve(keyed.size());
  for (Keyed& one : keyed) sorted.push_back(std::move(one.item));
  return sorted;
}

Value sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("sort", {"reverse", "case_sensitive", "attribute"}, arguments);
  const bool case_sensitive = bound.truth(1, false);
  const auto paths = split_paths(bound.get(2));
  std::list<Keyed> keyed;
  for (Value& item : iterate(runtime, input)) {
    List key;
    for (const AttributePath& path : paths) {
      Value part = path.get(runtime, item);
      key.push_back(case_sensitive ? std::move(part) : ignore_case(part));
    }
    keyed.push_back({std::move(key), std::move(item)});
  }
  return runtime.make_list(sorted_items(runtime, std::move(keyed), bound.truth(0, false)));
}

Value dict_sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("dictsort", {"case_sensitive", "by", "reverse"}, arguments);
  const std::string_view by = bound.string(1, "key");
  if (by != "key" && by != "value") {
    throw Failure("You can only sort by either \"key\" or \"value\"");
  }
  require_defined(input);
  if (!input.is_dict()) {
    throw Failure(fmt::format("dictsort needs a dict, not '{}'", type_name(input)));
  }
  const bool case_sensitive = bound.truth(0, false);
  std::list<Keyed> keyed;
  for (Value& pair : pairs_of(input.dict())) {
    const Value& key = pair.tuple()[by == "key" ? 0 : 1];
    keyed.push_back({{case_sensitive ? key : ignore_case(key)}, pair});
  }
  return runtime.make_list(sorted_items(runtime, std::move(keyed), bound.truth(2, false)));
}

Value unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("unique", {"case_sensitive", "attribute"}, arguments);
  const bool case_sensitive = bound.truth(0, false);
  const AttributePath path(bound.get(1));
  std::unordered_set<std::string> seen;
  List kept;
  for (Value& item : iterate(runtime, input)) {
    Value key = path.get(runtime, item);
    if (!case_sensitive) key = ignore_case(key);
    if (seen.insert(hash_key(runtime.budget, key)).second) kept.push_back(std::move(item));
  }
  return runtime.make_generator(std::move(kept));
}

template <bool Largest>
Value extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound(Largest ? "max" : "min", {"case_sensitive", "attribute"}, arguments);
  const bool case_sensitive = bound.truth(0, false);
  const AttributePath path(bound.get(1));
  const auto key_of = [&](const Value& item) {
    const Value key = path.get(runtime, item);
    return case_sensitive ? key : ignore_case(key);
  };
  const List items = iterate(runtime, input);
  if (items.empty()) return Undefined{"", "No aggregated item, sequence was empty."};
  Value best = items[0];
  Value best_key = key_of(best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    const bool better =
        Largest ? less(runtime.budget, best_key, key, ">") : less(runtime.budget, key, best_key);
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Value sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("sum", {"attribute", "start"}, arguments);
  const AttributePath path(bound.get(0));
  Value total = bound.get(1, Value(0));
  if (total.is_string()) throw Failure("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(runtime, input)) {
    total = add(runtime, total, path.get(runtime, item));
  }
  return total;
}

Value batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("batch", {"linecount", "fill_with"}, arguments, 1);
  const int64_t size = bound.integer(0, 0);
  if (size <= 0) throw Failure("batch needs a positive number of items");
  const auto full = static_cast<size_t>(size);
  List batches;
  List current;
  for (Value& item : iterate(runtime, input)) {
    if (current.size() == full) batches.push_back(runtime.make_list(std::exchange(current, {})));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (const Value* fill = bound.find_set(1)) {
      runtime.budget.charge(full);
      current.resize(full, *fill);
    }
    batches.push_back(runtime.make_list(std::move(current)));
  }
  return runtime.make_generator(std::move(batches));
}

// Cuts into `slices` columns, the first ones longer where it does not divide.
Value slice(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("slice", {"slices", "fill_with"}, arguments, 1);
  const int64_t wanted = bound.integer(0, 0);
  if (wanted <= 0) throw Failure("slice needs a positive number of slices");
  const auto count = static_cast<size_t>(wanted);
  const List items = iterate(runtime, input);
  const size_t each = items.size() / count;
  const size_t longer = items.size() % count;
  const Value* const fill = bound.find_set(1);
  List slices;
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    runtime.budget.charge(1);
    const size_t size = each + (i < longer ? 1 : 0);
    List part(items.begin() + static_cast<std::ptrdiff_t>(at),
              items.begin() + static_cast<std::ptrdiff_t>(at + size));
    if (fill != nullptr && i >= longer) part.push_back(*fill);
    at += size;
    slices.push_back(runtime.make_list(std::move(part)));
  }
  return runtime.make_generator(std::move(slices));
}

// Sorted by an attribute, and cut where it changes. Of keys that differ in case alone the first
// item's is given.
Value group_by(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("groupby", {"attribute", "default", "case_sensitive"}, arguments, 1);
  const AttributePath path(bound.get(0));
  const bool case_sensitive = bound.truth(2, false);
  std::optional<Value> otherwise;
  if (const Value* given = bound.find_set(1)) otherwise = *given;
  const auto key_of = [&](const Value& item) {
    Value key = path.get(runtime, item, otherwise);
    return case_sensitive ? key : ignore_case(key);
  };
  std::list<Keyed> keyed;
  for (Value& item : iterate(runtime, input)) keyed.push_back({{key_of(item)}, std::move(item)});
  List groups;
  List current;
  const auto finish = [&] {
    if (current.empty()) return;
    Value key = path.get(runtime, current.front(), otherwise);
    Value held = runtime.make_list(std::exchange(current, {}));
    groups.push_back(runtime.make_group(std::move(key), std::move(held)));
  };
  Value last;
  for (Value& item : sorted_items(runtime, std::move(keyed), false)) {
    Value key = key_of(item);
    if (!current.empty() && !equals(runtime.budget, key, last)) finish();
    last = std::move(key);
    current.push_back(std::move(item));
  }
  finish();
  return runtime.make_list(std::move(groups));
}

}  // namespace

Builtin find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kFilters = {
      {"first", first},        {"last", last},        {"length", count},
      {"count", count},        {"list", list},        {"items", items},
      {"join", join},          {"reverse", reverse},  {"sort", sort},
      {"dictsort", dict_sort}, {"unique", unique},    {"min", extreme<false>},
      {"max", extreme<true>},  {"sum", sum},          {"batch", batch},
      {"slice", slice},        {"groupby", group_by},
  };
  const auto found = kFilters.find(name);
  return found != kFilters.end() ? found->second : nullptr;
}

}  // namespace lagoon::text::jinja
