// A dynamic value of the template language: what Python objects are to Jinja2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lagoon::text::jinja {

class Dict;
class Value;
class Object;  // object.h: macros, namespaces, methods, iterators
using List = std::vector<Value>;

// What a name or an attribute that is not there gives: it prints as "", is false and empty, and
// fails with `message` when anything else is done with it.
struct Undefined {
  std::string name;
  std::string message = {};  // empty: "'<name>' is undefined"
};
struct Null {};

// Copies share strings, lists and dicts (as Python references do); templates cannot change them,
// except through namespace().
class Value {
 public:
  Value() : data_(Null{}) {}
  Value(Null) : data_(Null{}) {}
  Value(Undefined undefined);
  Value(bool b) : data_(b) {}
  Value(int i) : data_(int64_t{i}) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(List list);
  Value(Dict dict);
  Value(std::shared_ptr<Object> object);

  // A Python tuple.
  static Value tuple(List items);
  // An integer in decimal digits, with or without "-": an int where it fits 64 bits, else a big
  // integer, which can be printed, compared and tested but not calculated with.
  static Value integer_text(std::string_view digits);
  // A string marked as safe (Markup): what the filters `safe` and `escape` return.
  static Value safe_string(std::string text);

  bool is_null() const { return std::holds_alternative<Null>(data_); }
  bool is_undefined() const { return std::holds_alternative<UndefinedPointer>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<StringPointer>(data_); }
  bool is_list() const { return std::holds_alternative<ListPointer>(data_); }
  bool is_tuple() const { return std::holds_alternative<TuplePointer>(data_); }
  bool is_dict() const { return std::holds_alternative<DictPointer>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectPointer>(data_); }
  bool is_safe() const { return safe_; }
  bool is_big_integer() const { return std::holds_alternative<BigPointer>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float() || is_big_integer(); }

  // Each needs the kind it names.
  const Undefined& undefined() const { return *std::get<UndefinedPointer>(data_); }
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return std::get<int64_t>(data_); }
  double floating() const { return std::get<double>(data_); }
  const std::string& big_integer() const { return std::get<BigPointer>(data_)->digits; }
  const std::string& string() const { return *std::get<StringPointer>(data_); }
  const List& list() const { return *std::get<ListPointer>(data_); }
  const List& tuple() const { return std::get<TuplePointer>(data_)->items; }
  const Dict& dict() const { return *std::get<DictPointer>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<ObjectPointer>(data_); }

  // Python's truth: undefined, null, false, 0, "", [] and {} are false.
  bool truthy() const;

  // How deep lists, tuples and dicts nest in it: 0 for a plain value, 1 for [1].
  int depth() const { return depth_; }

  // Whether both are the same object (Python's `is`).
  bool same_as(const Value& other) const;

 private:
  struct Items {
    List items;
  };
  struct BigInteger {
    std::string digits;
  };
  using BigPointer = std::shared_ptr<const BigInteger>;
  using UndefinedPointer = std::shared_ptr<const Undefined>;
  using StringPointer = std::shared_ptr<const std::string>;
  using ListPointer = std::shared_ptr<const List>;
  using TuplePointer = std::shared_ptr<const Items>;
  using DictPointer = std::shared_ptr<const Dict>;
  using ObjectPointer = std::shared_ptr<Object>;

  std::variant<Null, UndefinedPointer, bool, int64_t, double, StringPointer, ListPointer,
               TuplePointer, DictPointer, ObjectPointer, BigPointer>
      data_;
  int depth_ = 0;
  bool safe_ = false;
};

// String keys in order of insertion, as a Python dict.
class Dict {
 public:
  // A key that is there keeps its place.
  void set(std::string key, Value value);
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the library's name
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  size_t index_of(std::string_view key) const;  // size() where it is not there
  void index_all();

  std::vector<std::pair<std::string, Value>> items_;
  // Key to place, only once there are many: small dicts are searched one by one.
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> index_;
};

// json.dumps(value, ensure_ascii=False): ", " and ": " between items, keys in order of insertion.
// What JSON has no form for (undefined, macros and the like) is written as null here; the filter
// tojson refuses it.
std::string to_json(const Value& value);

}  // namespace lagoon::text::jinja
