// Methods of dicts, lists and tuples. Those that change their object are forbidden by the sandbox.
#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {
namespace {

template <DictView::Kind Kind>
Value view(Runtime&, const Value& subject, Arguments& arguments) {
  const BoundArguments none("dict view", {}, arguments);
  return std::shared_ptr<Object>(std::make_shared<DictView>(Kind, subject));
}

Value dict_get(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("get", {"key", "default"}, arguments, 1);
  const Value key = bound.get(0);
  hash_key(runtime.budget, key);  // as Python, an error for what cannot be a key
  const Value* found = key.is_string() ? subject.dict().find(key.string()) : nullptr;
  return found != nullptr ? *found : bound.get(1);
}

Value copy(Runtime&, const Value& subject, Arguments& arguments) {
  const BoundArguments none("copy", {}, arguments);
  return subject;  // nothing can change it, so it is its own copy
}

const List& items_of(const Value& subject) {
  return subject.is_list() ? subject.list() : subject.tuple();
}

Value sequence_count(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("count", {"value"}, arguments, 1);
  const List& items = items_of(subject);
  const Value wanted = bound.get(0);
  return static_cast<int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equals(runtime.budget, item, wanted);
  }));
}

Value sequence_index(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("index", {"value", "start", "stop"}, arguments, 1);
  const List& items = items_of(subject);
  const auto size = static_cast<int64_t>(items.size());
  const auto place = [&](size_t index, int64_t otherwise) {
    const int64_t given = bound.integer(index, otherwise);
    return given < 0 ? std::max<int64_t>(given + size, 0) : std::min(given, size);
  };
  const Value wanted = bound.get(0);
  for (int64_t i = place(1, 0); i < place(2, size); ++i) {
    if (equals(runtime.budget, items[static_cast<size_t>(i)], wanted)) return i;
  }
  throw Failure(
      fmt::format("{} is not in the {}", repr(runtime.budget, wanted), type_name(subject)));
}

Method builtin(Builtin function) {
  return {Method::Kind::kBuiltin, function};
}
constexpr Method kUnsafe = {Method::Kind::kUnsafe, nullptr};
constexpr Method kUnsupported = {Method::Kind::kUnsupported, nullptr};

}  // namespace

std::optional<Method> find_dict_method(std::string_view name) {
  static const std::unordered_set<std::string_view> kUnsafeNames = {"clear", "pop", "popitem",
                                                                    "setdefault", "update"};
  if (name == "items") return builtin(view<DictView::Kind::kItems>);
  if (name == "keys") return builtin(view<DictView::Kind::kKeys>);
  if (name == "values") return builtin(view<DictView::Kind::kValues>);
  if (name == "get") return builtin(dict_get);
  if (name == "copy") return builtin(copy);
  if (name == "fromkeys") return kUnsupported;
  if (kUnsafeNames.contains(name)) return kUnsafe;
  return std::nullopt;
}

std::optional<Method> find_list_method(std::string_view name) {
  static const std::unordered_set<std::string_view> kUnsafeNames = {
      "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  if (name == "copy") return builtin(copy);
  if (kUnsafeNames.contains(name)) return kUnsafe;
  return find_tuple_method(name);
}

std::optional<Method> find_tuple_method(std::string_view name) {
  if (name == "index") return builtin(sequence_index);
  if (name == "count") return builtin(sequence_count);
  return std::nullopt;
}

std::optional<Method> find_method(const Value& value, std::string_view name) {
  // Python's own attributes of numbers, and every __name__, are not for templates.
  static const std::unordered_set<std::string_view> kOfNumbers = {
      "real",       "imag",      "numerator", "denominator", "conjugate",
      "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
      "is_integer", "hex",       "fromhex"};
  if (name.starts_with("__") && name.ends_with("__")) return kUnsafe;
  if (value.is_string()) return find_string_method(name);
  if (value.is_dict()) return find_dict_method(name);
  if (value.is_list()) return find_list_method(name);
  if (value.is_tuple()) return find_tuple_method(name);
  if (value.is_number() && kOfNumbers.contains(name)) return kUnsupported;
  return std::nullopt;
}

}  // namespace lagoon::text::jinja
