// Methods of strings that change or judge the whole: case, ends, padding, is...().
#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

template <std::string (*Convert)(View)>
Value converted(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments none("str method", {}, arguments);
  // Upper-casing may make up to three characters of one.
  runtime.budget.charge_text(subject.string().size());
  return runtime.make_text_like(Convert(subject.string()), subject);
}

enum class Ends { kLeft, kRight, kBoth };

template <Ends Where>
Value stripped(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("strip", {"chars"}, arguments);
  View text = subject.string();
  if (bound.find_set(0) != nullptr) {
    const View characters = bound.string(0, "");
    runtime.budget.charge(text.size() * (characters.size() + 1) / 64);
    if (Where != Ends::kRight) text = strip_left(text, characters);
    if (Where != Ends::kLeft) text = strip_right(text, characters);
  } else {
    if (Where != Ends::kRight) text = strip_left(text);
    if (Where != Ends::kLeft) text = strip_right(text);
  }
  return runtime.make_text_like(std::string(text), subject);
}

// Python's isalpha() and the like: not empty, and every character has the property.
template <bool (*Has)(char32_t)>
Value every(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments none("str method", {}, arguments);
  runtime.budget.charge_text(subject.string().size());
  const auto pieces = split_characters(subject.string());
  return !pieces.empty() && std::all_of(pieces.begin(), pieces.end(),
                                        [](View piece) { return Has(first_character(piece)); });
}

// isupper() and islower(): some character has the property and none has the opposite one.
template <bool (*Has)(char32_t)>
Value every_cased(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments none("str method", {}, arguments);
  runtime.budget.charge_text(subject.string().size());
  bool some = false;
  for (const View piece : split_characters(subject.string())) {
    const char32_t c = first_character(piece);
    if (Has(c)) {
      some = true;
    } else if (is_cased(c)) {
      return false;
    }
  }
  return some;
}

bool is_alphanumeric(char32_t c) {
  return is_alphabetic(c) || is_numeric(c);
}

Value is_ascii(Runtime&, const Value& subject, Arguments& arguments) {
  const BoundArguments none("isascii", {}, arguments);
  const std::string& text = subject.string();
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

Value is_title(Runtime&, const Value& subject, Arguments& arguments) {
  const BoundArguments none("istitle", {}, arguments);
  bool in_word = false;
  bool some = false;
  for (const View piece : split_characters(subject.string())) {
    const char32_t c = first_character(piece);
    const bool capital = is_cased(c) && !is_lowercase(c);
    if (capital ? in_word : is_lowercase(c) && !in_word) return false;
    in_word = is_cased(c);
    some = some || in_word;
  }
  return some;
}

// A width that is too large in any case, so that sums with it do not overflow.
int64_t beyond(const Budget& budget) {
  return static_cast<int64_t>(budget.max_text_bytes()) + 1;
}

enum class Place { kLeft, kCenter, kRight };

// ljust, center, rjust: filled up to a width.
template <Place Where>
Value padded(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("padding", {"width", "fillchar"}, arguments, 1);
  const View fill = bound.string(1, " ");
  if (count_characters(fill) != 1) {
    throw Failure("The fill character must be exactly one character long");
  }
  const auto size = static_cast<int64_t>(count_characters(subject.string()));
  const int64_t width = std::min(bound.integer(0, 0), beyond(runtime.budget));
  if (width <= size) return subject;
  const int64_t missing = width - size;
  runtime.budget.charge_text(static_cast<size_t>(missing) * fill.size());
  // As CPython's center: the odd one goes left where the width is odd too.
  int64_t left = 0;
  if (Where == Place::kCenter) left = missing / 2 + (missing & width & 1);
  if (Where == Place::kRight) left = missing;
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += subject.string();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return runtime.make_text_like(std::move(out), subject);
}

Value zero_filled(Runtime& runtime, const Value& subject, Arguments& arguments) {
  const BoundArguments bound("zfill", {"width"}, arguments, 1);
  const auto size = static_cast<int64_t>(count_characters(subject.string()));
  const int64_t width = std::min(bound.integer(0, 0), beyond(runtime.budget));
  if (width <= size) return subject;
  std::string out = subject.string();
  const size_t sign = !out.empty() && (out[0] == '+' || out[0] == '-') ? 1 : 0;
  runtime.budget.charge_text(static_cast<size_t>(width));
  out.insert(sign, static_cast<size_t>(width - size), '0');
  return runtime.make_text_like(std::move(out), subject);
}

Method builtin(Builtin function) {
  return {Method::Kind::kBuiltin, function};
}

}  // namespace

std::optional<Method> find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kMethods = {
      {"upper", converted<to_upper>},
      {"lower", converted<to_lower>},
      {"title", converted<to_title>},
      {"capitalize", converted<to_capitalized>},
      {"swapcase", converted<to_swapped_case>},
      {"strip", stripped<Ends::kBoth>},
      {"lstrip", stripped<Ends::kLeft>},
      {"rstrip", stripped<Ends::kRight>},
      {"isalpha", every<is_alphabetic>},
      {"isalnum", every<is_alphanumeric>},
      {"isdecimal", every<is_decimal>},
      {"isdigit", every<is_digit>},
      {"isnumeric", every<is_numeric>},
      {"isspace", every<is_space>},
      {"isupper", every_cased<is_uppercase>},
      {"islower", every_cased<is_lowercase>},
      {"istitle", is_title},
      {"isascii", is_ascii},
      {"ljust", padded<Place::kLeft>},
      {"center", padded<Place::kCenter>},
      {"rjust", padded<Place::kRight>},
      {"zfill", zero_filled},
  };
  const auto found = kMethods.find(name);
  if (found != kMethods.end()) return builtin(found->second);
  return find_string_search_method(name);
}

}  // namespace lagoon::text::jinja
