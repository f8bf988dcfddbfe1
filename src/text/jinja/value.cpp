#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/object.h"

namespace lagoon::text::jinja {
namespace {

// Above this many keys a dict is searched by hash.
constexpr size_t kIndexFrom = 16;

int depth_of(const List& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

size_t Dict::index_of(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? items_.size() : found->second;
  }
  size_t place = 0;
  while (place < items_.size() && items_[place].first != key) ++place;
  return place;
}

void Dict::index_all() {
  for (size_t place = 0; place < items_.size(); ++place) index_.emplace(items_[place].first, place);
}

void Dict::set(std::string key, Value value) {
  const size_t place = index_of(key);
  if (place < items_.size()) {
    items_[place].second = std::move(value);
    return;
  }
  if (!index_.empty()) index_.emplace(key, place);
  items_.emplace_back(std::move(key), std::move(value));
  if (index_.empty() && items_.size() >= kIndexFrom) index_all();
}

const Value* Dict::find(std::string_view key) const {
  const size_t place = index_of(key);
  return place < items_.size() ? &items_[place].second : nullptr;
}

Value::Value(Undefined undefined) {
  if (undefined.message.empty()) undefined.message = "'" + undefined.name + "' is undefined";
  data_ = std::make_shared<const Undefined>(std::move(undefined));
}

Value::Value(List list) : depth_(depth_of(list)) {
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  for (const auto& [key, value] : dict.items()) depth_ = std::max(depth_, value.depth());
  ++depth_;
  data_ = std::make_shared<const Dict>(std::move(dict));
}

Value::Value(std::shared_ptr<Object> object) : depth_(object->depth() + 1) {
  data_ = std::move(object);
}

Value Value::tuple(List items) {
  Value value;
  value.depth_ = depth_of(items);
  value.data_ = std::make_shared<const Items>(Items{std::move(items)});
  return value;
}

Value Value::integer_text(std::string_view digits) {
  int64_t number = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (end.ec == std::errc()) return number;
  Value value;
  value.data_ = std::make_shared<const BigInteger>(BigInteger{std::string(digits)});
  return value;
}

Value Value::safe_string(std::string text) {
  Value value(std::move(text));
  value.safe_ = true;
  return value;
}

bool Value::truthy() const {
  if (is_null() || is_undefined()) return false;
  if (is_bool()) return boolean();
  if (is_int()) return integer() != 0;
  if (is_float()) return floating() != 0.0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_tuple()) return !tuple().empty();
  if (is_dict()) return dict().size() != 0;
  if (is_big_integer()) return true;
  return object()->truthy();
}

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_null()) return true;
  if (is_bool()) return boolean() == other.boolean();
  if (is_int()) return integer() == other.integer();
  if (is_float()) return floating() == other.floating();
  if (is_string()) return string() == other.string();
  if (is_list()) return &list() == &other.list();
  if (is_tuple()) return &tuple() == &other.tuple();
  if (is_dict()) return &dict() == &other.dict();
  if (is_undefined()) return &undefined() == &other.undefined();
  if (is_big_integer()) return big_integer() == other.big_integer();
  return object() == other.object();
}

}  // namespace lagoon::text::jinja
