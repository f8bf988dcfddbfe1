// Filters on text, as jinja2.filters defines them.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/escape.h"
#include "text/jinja/formatting.h"
#include "text/jinja/json.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

// Jinja2's soft_str: a string stays what it is, anything else is printed.
Value as_text(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : runtime.make_text(to_text(runtime.budget, value));
}

template <std::string (*Convert)(View)>
Value converted(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("filter", {}, arguments);
  const Value text = as_text(runtime, input);
  runtime.budget.charge_text(text.string().size());
  return runtime.make_text_like(Convert(text.string()), text);
}

// Words begin at the start and after whitespace and -, (, {, [ and <.
std::string title_words(View text) {
  const auto separates = [](View piece) {
    return is_space(first_character(piece)) || View("-({[<").find(piece) != View::npos;
  };
  std::string out;
  while (!text.empty()) {
    const size_t first = character_bytes(text);
    const bool is_separator = separates(text.substr(0, first));
    size_t bytes = first;
    while (bytes < text.size()) {
      const View piece = text.substr(bytes, character_bytes(text.substr(bytes)));
      if (separates(piece) != is_separator) break;
      bytes += piece.size();
    }
    out += to_upper(text.substr(0, first));
    out += to_lower(text.substr(first, bytes - first));
    text.remove_prefix(bytes);
  }
  return out;
}

Value trim(Runtime& runtime, const Value& input, Arguments& arguments) {
  return find_string_method("strip")->builtin(runtime, as_text(runtime, input), arguments);
}

Value center(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("center", {"width"}, arguments);
  Arguments width{{Value(bound.integer(0, 80))}, {}};
  return find_string_method("center")->builtin(runtime, as_text(runtime, input), width);
}

Value replace(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("replace", {"old", "new", "count"}, arguments, 2);
  Budget& budget = runtime.budget;
  const int64_t most = bound.find_set(2) != nullptr ? bound.integer(2, -1) : -1;
  return runtime.make_text(replace_text(budget, to_text(budget, input),
                                        to_text(budget, bound.get(0)),
                                        to_text(budget, bound.get(1)), most));
}

Value indent(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("indent", {"width", "first", "blank"}, arguments);
  Budget& budget = runtime.budget;
  require_defined(input);
  if (!input.is_string()) {
    throw Failure(fmt::format("indent needs a string, not '{}'", type_name(input)));
  }
  const Value width = bound.get(0, Value(4));
  std::string space;
  if (width.is_string()) {
    space = width.string();
  } else {
    const auto columns = static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0));
    budget.charge_text(columns);
    space.assign(columns, ' ');
  }
  const bool blank = bound.truth(2, false);
  // The newline is Jinja2's: a text that ends with one keeps it.
  const std::string text = input.string() + "\n";
  const auto lines = split_lines(text, false);
  std::string out = bound.truth(1, false) ? space : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append_text(budget, out, "\n");
    if (i > 0 && (blank || !lines[i].empty())) append_text(budget, out, space);
    append_text(budget, out, lines[i]);
  }
  return runtime.make_text_like(std::move(out), input);
}

Value truncate(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("truncate", {"length", "killwords", "end", "leeway"}, arguments);
  const View end = bound.string(2, "...");
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.find_set(3) != nullptr ? bound.integer(3, 5) : 5;
  const auto end_size = static_cast<int64_t>(count_characters(end));
  if (length < end_size) {
    throw Failure(fmt::format("expected length >= {}, got {}", end_size, length));
  }
  if (leeway < 0) throw Failure(fmt::format("expected leeway >= 0, got {}", leeway));
  const auto size = static_cast<int64_t>(jinja::length(input));
  if (size <= length || size - length <= leeway) return input;
  if (!input.is_string()) {
    throw Failure(fmt::format("truncate needs a string, not '{}'", type_name(input)));
  }
  const View whole = input.string();
  View kept = whole.substr(0, byte_offset(whole, static_cast<size_t>(length - end_size)));
  if (!bound.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return runtime.make_text_like(std::string(kept) + std::string(end), input);
}

Value word_count(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("wordcount", {}, arguments);
  const Value text = as_text(runtime, input);
  int64_t words = 0;
  bool in_word = false;
  for (const View piece : split_characters(text.string())) {
    const char32_t c = first_character(piece);
    const bool is_word = c == '_' || is_alphabetic(c) || is_numeric(c);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return words;
}

Value string(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("string", {}, arguments);
  return as_text(runtime, input);
}

Value safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("safe", {}, arguments);
  return Value::safe_string(as_text(runtime, input).string());
}

Value escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("escape", {}, arguments);
  if (input.is_safe()) return input;
  std::string text = escape_html(as_text(runtime, input).string());
  runtime.budget.charge_text(text.size());
  return Value::safe_string(std::move(text));
}

Value force_escape(Runtime& runtime, const Value& input, Arguments& arguments) {
  return escape(runtime, Value(as_text(runtime, input).string()), arguments);
}

// input % arguments, by position or by name.
Value format(Runtime& runtime, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw Failure("can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::tuple(std::move(arguments.positional));
  if (!arguments.named.empty()) {
    Dict named;
    for (auto& [name, value] : arguments.named) named.set(name, std::move(value));
    values = runtime.make_dict(std::move(named));
  }
  return format_percent(runtime, as_text(runtime, input), values);
}

// Percent signs for all but letters, digits, "_.-~" and, outside of queries, "/".
std::string quoted_for_url(View text, bool in_query) {
  constexpr View kHexadecimal = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool kept =
        byte < 0x80 && (std::isalnum(byte) != 0 || View("_.-~").find(c) != View::npos);
    if (kept || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += '%';
      out += kHexadecimal[byte >> 4];
      out += kHexadecimal[byte & 15];
    }
  }
  return out;
}

Value url_encode(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments none("urlencode", {}, arguments);
  Budget& budget = runtime.budget;
  if (input.is_string() || !is_iterable(input)) {
    return runtime.make_text(quoted_for_url(to_text(budget, input), false));
  }
  List pairs;
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().items()) {
      pairs.push_back(Value::tuple({Value(key), value}));
    }
  } else {
    pairs = iterate(runtime, input);
  }
  std::string out;
  for (const Value& pair : pairs) {
    const List two = iterate(runtime, pair);
    if (two.size() != 2) throw Failure("urlencode needs a dict or pairs of a name and a value");
    if (!out.empty()) out += '&';
    append_text(budget, out, quoted_for_url(to_text(budget, two[0]), true));
    out += '=';
    append_text(budget, out, quoted_for_url(to_text(budget, two[1]), true));
  }
  return out;
}

// tojson as transformers defines it: json.dumps(x, ensure_ascii=False, ...), not a safe string.
Value to_json_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const BoundArguments bound("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"},
                             arguments);
  JsonFormat format;
  format.ensure_ascii = bound.truth(0, false);
  if (const Value* indent = bound.find_set(1)) {
    if (indent->is_string()) {
      format.indent = indent->string();
    } else {
      const auto columns = static_cast<size_t>(std::max<int64_t>(bound.integer(1, 0), 0));
      runtime.budget.charge_text(columns);
      format.indent = std::string(columns, ' ');
    }
    format.item_separator = ',';
  }
  if (const Value* separators = bound.find_set(2)) {
    const List pair = iterate(runtime, *separators);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      throw Failure("tojson() needs two strings as 'separators'");
    }
    format.item_separator = pair[0].string();
    format.key_separator = pair[1].string();
  }
  format.sort_keys = bound.truth(3, false);
  return dump_json(runtime.budget, input, format);
}

}  // namespace

Builtin find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kFilters = {
      {"upper", converted<to_upper>},
      {"lower", converted<to_lower>},
      {"capitalize", converted<to_capitalized>},
      {"title", converted<title_words>},
      {"trim", trim},
      {"center", center},
      {"replace", replace},
      {"indent", indent},
      {"truncate", truncate},
      {"wordcount", word_count},
      {"string", string},
      {"safe", safe},
      {"escape", escape},
      {"e", escape},
      {"forceescape", force_escape},
      {"tojson", to_json_filter},
      {"format", format},
      {"urlencode", url_encode},
  };
  const auto found = kFilters.find(name);
  return found != kFilters.end() ? found->second : nullptr;
}

}  // namespace lagoon::text::jinja
