#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

// Python's index into a sequence of `size`: negative ones count from the end.
std::optional<size_t> place_of(const Value& index, size_t size) {
  if (!index.is_int() && !index.is_bool()) return std::nullopt;
  int64_t place = index.is_bool() ? (index.boolean() ? 1 : 0) : index.integer();
  if (place < 0) place += static_cast<int64_t>(size);
  if (place < 0 || place >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(place);
}

std::optional<Value> item_of(const List& items, const Value& index) {
  const std::optional<size_t> place = place_of(index, items.size());
  if (!place) return std::nullopt;
  return items[*place];
}

std::optional<Value> character_of(Runtime& runtime, const Value& text, const Value& index) {
  runtime.budget.charge_text(text.string().size());
  const std::optional<size_t> place = place_of(index, count_characters(text.string()));
  if (!place) return std::nullopt;
  std::string_view rest = text.string();
  rest.remove_prefix(byte_offset(rest, *place));
  return runtime.make_text_like(std::string(rest.substr(0, character_bytes(rest))), text);
}

// Python's obj[key]; nothing where it raises TypeError or LookupError.
std::optional<Value> find_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_list()) return item_of(object.list(), key);
  if (object.is_tuple()) return item_of(object.tuple(), key);
  if (object.is_string()) return character_of(runtime, object, key);
  if (object.is_dict()) {
    if (!key.is_string()) return std::nullopt;
    const Value* value = object.dict().find(key.string());
    return value != nullptr ? std::optional<Value>(*value) : std::nullopt;
  }
  if (object.is_object() && object.object()->subscriptable()) {
    return item_of(*object.object()->iterate(), key);
  }
  return std::nullopt;
}

Value missing(Runtime& runtime, const Value& object, const Value& key) {
  if (!key.is_string()) {
    const std::string text = repr(runtime.budget, key);
    return Undefined{text, fmt::format("{} has no element {}", described_type(object), text)};
  }
  return Undefined{key.string(), fmt::format("'{}' has no attribute {}", described_type(object),
                                             repr_string(key.string()))};
}

struct SliceBounds {
  int64_t start, stop, step;
  size_t count;
};

std::optional<int64_t> slice_number(const Value& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_int()) return value.integer();
  if (value.is_bool()) return value.boolean() ? 1 : 0;
  require_defined(value);
  throw Failure("slice indices must be integers or None");
}

// Python's slice.indices(size).
SliceBounds slice_bounds(size_t items, const Value& start, const Value& stop, const Value& step) {
  const auto size = static_cast<int64_t>(items);
  SliceBounds bounds{};
  bounds.step = slice_number(step).value_or(1);
  if (bounds.step == 0) throw Failure("slice step cannot be zero");
  const bool forward = bounds.step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    if (*given < 0) return std::max(*given + size, lowest);
    return std::min(*given, highest);
  };
  bounds.start = clamp(slice_number(start), forward ? lowest : highest);
  bounds.stop = clamp(slice_number(stop), forward ? highest : lowest);
  const int64_t distance = forward ? bounds.stop - bounds.start : bounds.start - bounds.stop;
  if (distance <= 0) return bounds;
  // In unsigned numbers: the step may be the least integer of all.
  const uint64_t stride = forward ? static_cast<uint64_t>(bounds.step)
                                  : uint64_t{0} - static_cast<uint64_t>(bounds.step);
  bounds.count = static_cast<size_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1;
  return bounds;
}

List slice_items(Runtime& runtime, const List& items, const SliceBounds& bounds) {
  runtime.budget.charge(bounds.count);
  List out;
  out.reserve(bounds.count);
  for (size_t i = 0; i < bounds.count; ++i) {
    out.push_back(items[static_cast<size_t>(bounds.start + static_cast<int64_t>(i) * bounds.step)]);
  }
  return out;
}

std::string slice_text(std::string_view text, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    const size_t from = byte_offset(text, static_cast<size_t>(bounds.start));
    return std::string(text.substr(from, byte_offset(text.substr(from), bounds.count)));
  }
  const auto pieces = split_characters(text);
  std::string out;
  for (size_t i = 0; i < bounds.count; ++i) {
    out += pieces[static_cast<size_t>(bounds.start + static_cast<int64_t>(i) * bounds.step)];
  }
  return out;
}

List characters(Runtime& runtime, const Value& text) {
  const auto pieces = split_characters(text.string());
  runtime.budget.charge(pieces.size());
  List out;
  out.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    out.push_back(text.is_safe() ? Value::safe_string(std::string(piece)) : Value(piece));
  }
  return out;
}

}  // namespace

std::optional<Value> find_attribute(const Value& object, std::string_view name) {
  if (object.is_object()) return object.object()->attribute(name);
  const std::optional<Method> method = find_method(object, name);
  if (!method) return std::nullopt;
  switch (method->kind) {
    case Method::Kind::kBuiltin:
      return bound_method(std::string(name), method->builtin, object);
    case Method::Kind::kUnsafe:
      return Undefined{std::string(name), fmt::format("access to attribute '{}' of '{}' object is "
                                                      "unsafe.",
                                                      name, type_name(object))};
    case Method::Kind::kUnsupported:
      break;
  }
  throw Failure(fmt::format("'{}' of a '{}' is not supported by this version of Lagoon", name,
                            type_name(object)));
}

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  require_defined(object);
  if (std::optional<Value> attribute = find_attribute(object, name)) return *std::move(attribute);
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return missing(runtime, object, Value(name));
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (std::optional<Value> item = find_item(runtime, object, key)) return *std::move(item);
  if (key.is_string()) {
    std::optional<Value> attribute = find_attribute(object, key.string());
    if (attribute) return *std::move(attribute);
  }
  return missing(runtime, object, key);
}

Value get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  require_defined(object);
  if (object.is_string()) {
    runtime.budget.charge_text(object.string().size());
    const auto bounds = slice_bounds(count_characters(object.string()), start, stop, step);
    return runtime.make_text_like(slice_text(object.string(), bounds), object);
  }
  if (object.is_list()) {
    const auto bounds = slice_bounds(object.list().size(), start, stop, step);
    return runtime.make_list(slice_items(runtime, object.list(), bounds));
  }
  if (object.is_tuple()) {
    const auto bounds = slice_bounds(object.tuple().size(), start, stop, step);
    return runtime.make_tuple(slice_items(runtime, object.tuple(), bounds));
  }
  const auto* range =
      object.is_object() ? dynamic_cast<const Range*>(object.object().get()) : nullptr;
  if (range != nullptr) {
    const auto bounds = slice_bounds(*range->length(), start, stop, step);
    return range->slice(bounds.start, bounds.stop, bounds.step, bounds.count);
  }
  throw Failure(fmt::format("'{}' object cannot be sliced", type_name(object)));
}

List iterate(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) return characters(runtime, value);
  if (value.is_list() || value.is_tuple()) {
    const List& items = value.is_list() ? value.list() : value.tuple();
    runtime.budget.charge(items.size());
    return items;
  }
  if (value.is_dict()) {
    runtime.budget.charge(value.dict().size());
    List keys;
    for (const auto& [key, held] : value.dict().items()) keys.emplace_back(key);
    return keys;
  }
  if (value.is_object()) {
    if (std::optional<List> items = value.object()->iterate()) {
      runtime.budget.charge(items->size());
      return *std::move(items);
    }
  }
  throw Failure(fmt::format("'{}' object is not iterable", type_name(value)));
}

bool is_iterable(const Value& value) {
  if (value.is_object()) return value.object()->iterable();
  return value.is_undefined() || value.is_string() || value.is_list() || value.is_tuple() ||
         value.is_dict();
}

std::optional<size_t> find_length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return count_characters(value.string());
  if (value.is_list()) return value.list().size();
  if (value.is_tuple()) return value.tuple().size();
  if (value.is_dict()) return value.dict().size();
  if (value.is_object()) return value.object()->length();
  return std::nullopt;
}

size_t length(const Value& value) {
  const std::optional<size_t> found = find_length(value);
  if (!found) throw Failure(fmt::format("object of type '{}' has no len()", type_name(value)));
  return *found;
}

Value call(Runtime& runtime, const Value& callee, Arguments arguments) {
  require_defined(callee);
  if (!callee.is_object()) {
    throw Failure(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  return callee.object()->call(runtime, arguments);
}

}  // namespace lagoon::text::jinja
