// "...".format(values).
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/error.h"
#include "text/jinja/escape.h"
#include "text/jinja/formatting.h"
#include "text/jinja/number_format.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

bool is_number(View text) {
  return !text.empty() && text.find_first_not_of("0123456789") == View::npos;
}

std::optional<int64_t> index_in(View text) {
  if (!is_number(text)) return std::nullopt;
  int64_t index = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), index);
  if (end.ec != std::errc()) throw Failure("Too many decimal digits in format string");
  return index;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool escapes)
      : runtime_(runtime), arguments_(arguments), escapes_(escapes) {}

  // `levels`: how deep fields may still stand in each other.
  std::string run(View format, int levels) {
    if (levels < 0) throw Failure("Max string recursion exceeded");
    std::string out;
    while (!format.empty()) {
      const size_t brace = std::min(format.find_first_of("{}"), format.size());
      append_text(runtime_.budget, out, format.substr(0, brace));
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        append_text(runtime_.budget, out, format.substr(0, 1));
        format.remove_prefix(2);
        continue;
      }
      if (format[0] == '}') throw Failure("Single '}' encountered in format string");
      const size_t end = field_end(format);
      append_text(runtime_.budget, out, field(format.substr(1, end - 1), levels));
      format.remove_prefix(end + 1);
    }
    return out;
  }

 private:
  // The place of the brace that closes the field at the start of `format`.
  static size_t field_end(View format) {
    if (format.size() == 1) throw Failure("Single '{' encountered in format string");
    int open = 0;
    bool in_item = false;  // braces in [...] are part of the key
    for (size_t at = 0; at < format.size(); ++at) {
      if (format[at] == '[') in_item = true;
      if (format[at] == ']') in_item = false;
      if (in_item) continue;
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    throw Failure("expected '}' before end of string");
  }

  std::string field(View text, int levels);
  Value value_of(View name);
  Value first_value(View name);

  Runtime& runtime_;
  const Arguments& arguments_;
  bool escapes_;
  size_t next_ = 0;
  enum class Numbering { kUnknown, kAutomatic, kManual } numbering_ = Numbering::kUnknown;
};

Value BraceFormatter::first_value(View name) {
  std::optional<int64_t> index = index_in(name);
  if (name.empty() || index) {
    const Numbering wanted = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
    if (numbering_ != Numbering::kUnknown && numbering_ != wanted) {
      throw Failure(wanted == Numbering::kManual
                        ? "cannot switch from automatic field numbering to manual field "
                          "specification"
                        : "cannot switch from manual field specification to automatic field "
                          "numbering");
    }
    numbering_ = wanted;
    const auto place = name.empty() ? next_++ : static_cast<size_t>(*index);
    if (place >= arguments_.positional.size()) {
      throw Failure(
          fmt::format("Replacement index {} out of range for positional args tuple", place));
    }
    return arguments_.positional[place];
  }
  for (const auto& [key, value] : arguments_.named) {
    if (key == name) return value;
  }
  throw Failure(fmt::format("the field {} was given no value", repr_string(name)));
}

// name.attribute[item] ...
Value BraceFormatter::value_of(View name) {
  const size_t end = std::min(name.find_first_of(".["), name.size());
  Value value = first_value(name.substr(0, end));
  name.remove_prefix(end);
  while (!name.empty()) {
    if (name[0] == '.') {
      const size_t stop = std::min(name.find_first_of(".[", 1), name.size());
      if (stop == 1) throw Failure("Empty attribute in format string");
      value = get_attribute(runtime_, value, name.substr(1, stop - 1));
      name.remove_prefix(stop);
      continue;
    }
    if (name[0] != '[') {
      throw Failure("Only '.' or '[' may follow ']' in format field specifier");
    }
    const size_t close = name.find(']');
    if (close == View::npos) throw Failure("Missing ']' in format string");
    const View key = name.substr(1, close - 1);
    if (key.empty()) throw Failure("Empty attribute in format string");
    const std::optional<int64_t> index = index_in(key);
    value = get_item(runtime_, value, index ? Value(*index) : Value(key));
    name.remove_prefix(close + 1);
  }
  return value;
}

// name!conversion:spec
std::string BraceFormatter::field(View text, int levels) {
  // "!" and ":" inside [...] belong to the key.
  size_t end = 0;
  for (bool in_item = false; end < text.size(); ++end) {
    if (text[end] == '[') in_item = true;
    if (text[end] == ']') in_item = false;
    if (!in_item && (text[end] == '!' || text[end] == ':')) break;
  }
  const View name = text.substr(0, end);
  if (name.find_first_of("{}") != View::npos) throw Failure("unexpected '{' in field name");
  text.remove_prefix(end);
  char conversion = 0;
  if (!text.empty() && text[0] == '!') {
    if (text.size() < 2) throw Failure("end of string while looking for conversion specifier");
    conversion = text[1];
    text.remove_prefix(2);
    if (!text.empty() && text[0] != ':') throw Failure("expected ':' after conversion specifier");
  }
  Value value = value_of(name);
  Budget& budget = runtime_.budget;
  if (conversion == 's') {
    value = runtime_.make_text(to_text(budget, value));
  } else if (conversion == 'r') {
    value = runtime_.make_text(repr(budget, value));
  } else if (conversion == 'a') {
    value = runtime_.make_text(ascii_only(repr(budget, value)));
  } else if (conversion != 0) {
    throw Failure(fmt::format("Unknown conversion specifier {}", conversion));
  }
  const std::string spec = text.empty() ? std::string() : run(text.substr(1), levels - 1);
  std::string formatted = format_value(budget, value, spec);
  return escapes_ && !value.is_safe() ? escape_html(formatted) : formatted;
}

constexpr int kFieldLevels = 2;  // Python's own limit

}  // namespace

Value format_braces(Runtime& runtime, const Value& format, Arguments& arguments) {
  BraceFormatter formatter(runtime, arguments, format.is_safe());
  return runtime.make_text_like(formatter.run(format.string(), kFieldLevels - 1), format);
}

Value format_mapped(Runtime& runtime, const Value& format, Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    throw Failure(fmt::format("format_map() takes exactly one argument ({} given)",
                              arguments.positional.size() + arguments.named.size()));
  }
  const Value mapping = arguments.positional[0];
  require_defined(mapping);
  if (!mapping.is_dict()) {
    throw Failure(fmt::format("format_map() needs a dict, not '{}'", type_name(mapping)));
  }
  runtime.budget.charge(mapping.dict().size());
  Arguments named;
  for (const auto& [key, value] : mapping.dict().items()) named.named.emplace_back(key, value);
  return format_braces(runtime, format, named);
}

}  // namespace lagoon::text::jinja
