#include "api/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_escape.h"
#include "base/utf8.h"

namespace lagoon::api {
namespace {

// Builds the value from the parser's events and stops it when a limit is passed. The library's own
// builder looks each key up in the keys before it, which is quadratic for an ordered object.
class LimitedBuilder {
 public:
  Json take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& key) {
    Level& level = levels_.back();
    auto& object = level.value->get_ref<Json::object_t&>();
    const auto [at, is_new] = level.keys->emplace(key, object.size());
    if (!is_new) {
      slot_ = &(object.begin() + static_cast<std::ptrdiff_t>(at->second))->second;
      return true;
    }
    if (object.size() >= kMaxJsonKeys) {
      return fail(fmt::format("an object has more than {} keys", kMaxJsonKeys));
    }
    // The vector's own emplace_back: the ordered map's emplace() would search again.
    using Entries = Json::object_t::Container;
    slot_ = &static_cast<Entries&>(object).emplace_back(std::move(key), Json()).second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    if (const size_t end = what.find("] "); end != std::string_view::npos) {
      what.remove_prefix(end + 2);
    }
    // It repeats what was read last, which may be a long string.
    constexpr size_t kMostShown = 200;
    if (what.size() <= kMostShown) return fail(std::string(what));
    return fail(fmt::format("{}...", what.substr(0, kMostShown)));
  }

 private:
  struct Level {
    Json* value;
    std::unique_ptr<std::unordered_map<std::string, size_t>> keys;  // objects only: key -> index
  };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  Json* place(Json value) {
    if (++values_ > kMaxJsonValues) {
      fail(fmt::format("there are more than {} values", kMaxJsonValues));
      return nullptr;
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *levels_.back().value;
    if (parent.is_array()) {
      auto& array = parent.get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (levels_.size() >= static_cast<size_t>(kMaxJsonDepth)) {
      return fail(fmt::format("values are nested more than {} deep", kMaxJsonDepth));
    }
    Json* placed = place(std::move(value));
    if (placed == nullptr) return false;
    Level level{placed, nullptr};
    if (placed->is_object()) {
      level.keys = std::make_unique<std::unordered_map<std::string, size_t>>();
    }
    levels_.push_back(std::move(level));
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Level> levels_;
  Json* slot_ = nullptr;  // where the value of the last key goes
  size_t values_ = 0;
  std::string problem_;
};

// The code unit of the escape \uXXXX at the start of `text`; -1: there is none.
int escaped_unit(std::string_view text) {
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  int unit = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
  return error == std::errc() && end == text.data() + 6 && unit >= 0 ? unit : -1;
}

// With U+FFFD in place of each escape that is half of a surrogate pair.
std::string with_whole_pairs(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t plain = std::min(text.find('\\'), text.size());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    const int unit = escaped_unit(text);
    size_t taken = std::min<size_t>(unit < 0 ? 2 : 6, text.size());
    const auto is_low = [](int u) { return u >= 0xDC00 && u < 0xE000; };
    const bool high = unit >= 0xD800 && unit < 0xDC00;
    if (high && is_low(escaped_unit(text.substr(6)))) {
      taken = 12;
    } else if (high || is_low(unit)) {
      out += "\\ufffd";
      text.remove_prefix(6);
      continue;
    }
    out.append(text.substr(0, taken));
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  LimitedBuilder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  // Clients that cut text in the middle of a pair send halves, and then with each turn.
  if (const std::string whole = with_whole_pairs(text); whole != text) {
    LimitedBuilder again;
    if (Json::sax_parse(whole.begin(), whole.end(), &again)) return again.take();
  }
  return Error{ErrorCode::kInvalidArgument, builder.problem()};
}

text::jinja::Value to_value(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      return text::jinja::Value::integer_text(std::to_string(json.get<uint64_t>()));
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get_ref<const std::string&>();
    case Json::value_t::array: {
      text::jinja::List list;
      list.reserve(json.size());
      for (const Json& item : json) list.push_back(to_value(item));
      return list;
    }
    case Json::value_t::object: {
      text::jinja::Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(key, to_value(value));
      return dict;
    }
    default:
      return text::jinja::Null{};
  }
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  if (is_valid_utf8(text)) {
    append_json_escaped(out, text);
  } else {
    append_json_escaped(out, to_valid_utf8(text));
  }
  out.push_back('"');
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace lagoon::api
