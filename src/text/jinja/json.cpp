#include "text/jinja/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/error.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

void append_unicode_escape(std::string& out, char32_t c) {
  if (c < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    return;
  }
  const auto beyond = static_cast<unsigned>(c - 0x10000);
  out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (beyond >> 10), 0xDC00 + (beyond & 0x3FF));
}

// The short escape of a character, or 0.
char short_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
      return c;
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\f':
      return 'f';
    case '\b':
      return 'b';
    default:
      return 0;
  }
}

// The bytes at the start that stand in a JSON string as they are.
size_t plain_bytes(std::string_view text, bool ensure_ascii) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == '"' || byte == '\\' || (byte >= 0x80 && ensure_ascii)) break;
  }
  return at;
}

std::string quoted(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (;;) {
    const size_t plain = plain_bytes(text, ensure_ascii);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t bytes = character_bytes(text);
    if (const char escape = short_escape(text[0])) {
      out += '\\';
      out += escape;
    } else {
      append_unicode_escape(out, first_character(text));
    }
    text.remove_prefix(bytes);
  }
  out += '"';
  return out;
}

std::string json_float(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return repr_float(number);
}

class Writer {
 public:
  Writer(Budget& budget, const JsonFormat& format) : budget_(budget), format_(format) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int level);
  void write_items(const List& items, int level);
  void write_dict(const Dict& dict, int level);
  void separate(bool first, int level);
  void break_line(int level);
  void append(std::string_view piece) { append_text(budget_, out_, piece); }

  Budget& budget_;
  const JsonFormat& format_;
  std::string out_;
};

void Writer::write(const Value& value, int level) {
  const Nested nested(budget_);
  budget_.charge(1);
  if (value.is_null()) {
    append("null");
  } else if (value.is_bool()) {
    append(value.boolean() ? "true" : "false");
  } else if (value.is_int()) {
    append(fmt::format("{}", value.integer()));
  } else if (value.is_big_integer()) {
    append(value.big_integer());
  } else if (value.is_float()) {
    append(json_float(value.floating()));
  } else if (value.is_string()) {
    append(quoted(value.string(), format_.ensure_ascii));
  } else if (value.is_list()) {
    write_items(value.list(), level);
  } else if (value.is_tuple()) {
    write_items(value.tuple(), level);
  } else if (value.is_dict()) {
    write_dict(value.dict(), level);
  } else {
    throw Failure(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }
}

void Writer::break_line(int level) {
  if (!format_.indent) return;
  append("\n");
  for (int i = 0; i < level; ++i) append(*format_.indent);
}

void Writer::separate(bool first, int level) {
  if (!first) append(format_.item_separator);
  break_line(level);
}

void Writer::write_items(const List& items, int level) {
  if (items.empty()) {
    append("[]");
    return;
  }
  append("[");
  for (size_t i = 0; i < items.size(); ++i) {
    separate(i == 0, level + 1);
    write(items[i], level + 1);
  }
  break_line(level);
  append("]");
}

void Writer::write_dict(const Dict& dict, int level) {
  if (dict.size() == 0) {
    append("{}");
    return;
  }
  std::vector<const std::pair<std::string, Value>*> items;
  items.reserve(dict.size());
  for (const auto& item : dict.items()) items.push_back(&item);
  if (format_.sort_keys) {
    std::sort(items.begin(), items.end(),
              [](const auto* left, const auto* right) { return left->first < right->first; });
  }
  append("{");
  for (size_t i = 0; i < items.size(); ++i) {
    separate(i == 0, level + 1);
    append(quoted(items[i]->first, format_.ensure_ascii));
    append(format_.key_separator);
    write(items[i]->second, level + 1);
  }
  break_line(level);
  append("}");
}

// Undefined and objects as null, so that to_json() need not fail.
Value plain(const Value& value) {
  if (value.is_undefined() || value.is_object()) return Null{};
  if (value.is_list() || value.is_tuple()) {
    List items;
    for (const Value& item : value.is_list() ? value.list() : value.tuple()) {
      items.push_back(plain(item));
    }
    return items;
  }
  if (value.is_dict()) {
    Dict items;
    for (const auto& [key, held] : value.dict().items()) items.set(key, plain(held));
    return items;
  }
  return value;
}

}  // namespace

std::string dump_json(Budget& budget, const Value& value, const JsonFormat& format) {
  return Writer(budget, format).run(value);
}

std::string to_json(const Value& value) {
  Budget unlimited = Budget::unlimited();
  return dump_json(unlimited, plain(value), JsonFormat());
}

}  // namespace lagoon::text::jinja
