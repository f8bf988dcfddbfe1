#include "text/jinja/attributes.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {

AttributePath::AttributePath(const Value& path) {
  if (path.is_null()) return;
  if (!path.is_string()) {
    parts_.push_back(path);
    return;
  }
  for (const std::string_view part : split_text(path.string(), ".", -1)) {
    const bool is_index = !part.empty() && std::all_of(part.begin(), part.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    const std::optional<int64_t> index = is_index ? parse_integer(part, 10) : std::nullopt;
    parts_.push_back(index ? Value(*index) : Value(part));
  }
}

Value AttributePath::get(Runtime& runtime, Value item,
                         const std::optional<Value>& otherwise) const {
  for (const Value& part : parts_) {
    runtime.budget.charge(1);
    item = get_item(runtime, item, part);
    if (otherwise && !otherwise->is_null() && item.is_undefined()) item = *otherwise;
  }
  return item;
}

std::vector<AttributePath> split_paths(const Value& paths) {
  std::vector<AttributePath> found;
  if (!paths.is_string()) {
    found.emplace_back(paths);
    return found;
  }
  for (const std::string_view path : split_text(paths.string(), ",", -1)) {
    found.emplace_back(Value(path));
  }
  return found;
}

Value ignore_case(const Value& value) {
  return value.is_string() ? Value(to_lower(value.string())) : value;
}

}  // namespace lagoon::text::jinja
