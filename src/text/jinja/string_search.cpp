// Methods of strings that look for parts: split, find, replace, join ...
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/formatting.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;
constexpr size_t kNone = std::string_view::npos;

// text[start:end] of arguments `first` and the next one, with where it begins, in characters.
struct Window {
  View text;
  size_t start;
  bool empty_range;  // start lies behind the end: nothing is found, not even ""
};

Window window_of(View text, const BoundArguments& bound, size_t first) {
  if (bound.find_set(first) == nullptr && bound.find_set(first + 1) == nullptr) {
    return {text, 0, false};
  }
  const auto size = static_cast<int64_t>(count_characters(text));
  const auto place = [&](size_t index, int64_t otherwise) {
    if (bound.find_set(index) == nullptr) return otherwise;
    const int64_t given = bound.integer(index, otherwise);
    return given < 0 ? std::max<int64_t>(given + size, 0) : given;
  };
  const int64_t start = place(first, 0);
  const int64_t end = std::min(place(first + 1, size), size);
  if (start > end) return {View(), 0, true};
  const size_t from = byte_offset(text, static_cast<size_t>(start));
  const size_t to = byte_offset(text, static_cast<size_t>(end));
  return {text.substr(from, to - from), static_cast<size_t>(start), false};
}

// A search from the end compares at every place, so its worst case is the product.
void charge_search(Runtime& runtime, View text, View part, bool from_right) {
  const size_t worst = from_right && part.size() <= text.size() ? part.size() : 1;
  runtime.budget.charge(text.size() * worst / 64);
}

List pieces_like(Runtime& runtime, const std::vector<View>& pieces, const Value& subject) {
  List out;
  out.reserve(pieces.size());
  for (const View piece : pieces)
    out.push_back(runtime.make_text_like(std::string(piece), subject));
  return out;
}

template <bool FromRight>
Value split(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("split", {"sep", "maxsplit"}, arguments);
  const int64_t most = bound.integer(1, -1);
  const bool by_space = bound.find_set(0) == nullptr;
  const View separator = by_space ? View() : bound.string(0, "");
  charge_search(runtime, subject.string(), separator, FromRight);
  if (!by_space && separator.empty()) throw Failure("empty separator");
  std::vector<View> pieces;
  if (by_space) {
    pieces =
        FromRight ? split_space_right(subject.string(), most) : split_space(subject.string(), most);
  } else {
    pieces = FromRight ? split_text_right(subject.string(), separator, most)
                       : split_text(subject.string(), separator, most);
  }
  return runtime.make_list(pieces_like(runtime, pieces, subject));
}

Value splitlines(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("splitlines", {"keepends"}, arguments);
  const auto lines = split_lines(subject.string(), bound.truth(0, false));
  return runtime.make_list(pieces_like(runtime, lines, subject));
}

// startswith, endswith: one string, or any of a tuple of them.
template <bool AtStart>
Value matches_end(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const char* name = AtStart ? "startswith" : "endswith";
  const BoundArguments bound(name, {"prefix", "start", "end"}, arguments, 1);
  const Window window = window_of(subject.string(), bound, 1);
  const Value wanted = bound.get(0);
  require_defined(wanted);
  const List options = wanted.is_tuple() ? wanted.tuple() : List{wanted};
  for (const Value& option : options) {
    if (!option.is_string()) {
      throw Failure(fmt::format("{} first arg must be str or a tuple of str, not {}", name,
                                type_name(option)));
    }
    runtime.budget.charge(1);
    if (window.empty_range) continue;
    if (AtStart ? window.text.starts_with(option.string())
                : window.text.ends_with(option.string())) {
      return true;
    }
  }
  return false;
}

template <bool FromRight, bool MustBeThere>
Value find(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("find", {"sub", "start", "end"}, arguments, 1);
  const View part = bound.string(0, "");
  const Window window = window_of(subject.string(), bound, 1);
  charge_search(runtime, subject.string(), part, FromRight);
  size_t at = kNone;
  if (!window.empty_range) {
    at = FromRight ? find_text_last(window.text, part) : find_text(window.text, part);
  }
  if (at != kNone) {
    return static_cast<int64_t>(window.start + count_characters(window.text.substr(0, at)));
  }
  if (MustBeThere) throw Failure("substring not found");
  return -1;
}

Value count(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("count", {"sub", "start", "end"}, arguments, 1);
  const View part = bound.string(0, "");
  const Window window = window_of(subject.string(), bound, 1);
  runtime.budget.charge_text(subject.string().size());
  if (window.empty_range) return 0;
  if (part.empty()) return static_cast<int64_t>(count_characters(window.text)) + 1;
  int64_t found = 0;
  for (size_t at = find_text(window.text, part); at != kNone;
       at = find_text(window.text, part, at + part.size())) {
    ++found;
  }
  return found;
}

Value replace(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("replace", {"old", "new", "count"}, arguments, 2);
  return runtime.make_text_like(replace_text(runtime.budget, subject.string(), bound.string(0, ""),
                                             bound.string(1, ""), bound.integer(2, -1)),
                                subject);
}

Value join(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("join", {"iterable"}, arguments, 1);
  std::string out;
  size_t index = 0;
  for (const Value& item : iterate(runtime, bound.get(0))) {
    if (!item.is_string()) {
      throw Failure(
          fmt::format("sequence item {}: expected str instance, {} found", index, type_name(item)));
    }
    if (index++ > 0) append_text(runtime.budget, out, subject.string());
    append_text(runtime.budget, out, item.string());
  }
  return subject.is_safe() ? Value::safe_string(std::move(out)) : Value(std::move(out));
}

template <bool FromRight>
Value partition(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("partition", {"sep"}, arguments, 1);
  const View separator = bound.string(0, "");
  if (separator.empty()) throw Failure("empty separator");
  const View text = subject.string();
  charge_search(runtime, text, separator, FromRight);
  const size_t at = FromRight ? find_text_last(text, separator) : find_text(text, separator);
  std::vector<View> parts;
  if (at != kNone) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (FromRight) {
    parts = {View(), View(), text};
  } else {
    parts = {text, View(), View()};
  }
  return runtime.make_tuple(pieces_like(runtime, parts, subject));
}

template <bool Prefix>
Value remove_end(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound(Prefix ? "removeprefix" : "removesuffix", {"part"}, arguments, 1);
  View text = subject.string();
  const View part = bound.string(0, "");
  if (Prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!Prefix && text.ends_with(part)) text.remove_suffix(part.size());
  return runtime.make_text_like(std::string(text), subject);
}

}  // namespace

std::optional<Method> find_string_search_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kMethods = {
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", splitlines},
      {"startswith", matches_end<true>},
      {"endswith", matches_end<false>},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"replace", replace},
      {"join", join},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"removeprefix", remove_end<true>},
      {"removesuffix", remove_end<false>},
      {"format", format_braces},
      {"format_map", format_mapped},
  };
  static const std::unordered_set<std::string_view> kUnsupportedNames = {
      "encode", "expandtabs", "translate", "maketrans", "casefold", "isidentifier", "isprintable",
  };
  const auto found = kMethods.find(name);
  if (found != kMethods.end()) return Method{Method::Kind::kBuiltin, found->second};
  if (kUnsupportedNames.contains(name)) return Method{Method::Kind::kUnsupported, nullptr};
  return std::nullopt;
}

}  // namespace lagoon::text::jinja
