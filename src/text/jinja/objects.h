// The objects that built-in functions, filters and statements make; macros are in macro.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/object.h"

namespace lagoon::text::jinja {

// What namespace() makes: the one thing a template can change.
class Namespace : public Object {
 public:
  // Holds no depth: the Runtime owns it, and values only refer to it.
  explicit Namespace(Dict attributes) : Object(0), attributes_(std::move(attributes)) {}
  void set(std::string name, Value value) { attributes_.set(std::move(name), std::move(value)); }
  void clear() { attributes_ = Dict(); }

  std::string type_name() const override { return "Namespace"; }
  std::string described_type() const override { return "jinja2.utils.Namespace object"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;

 private:
  Dict attributes_;
};

// A built-in function, or a method bound to its object.
class Function : public Object {
 public:
  Function(std::string name, Builtin builtin, Value subject)
      : Object(subject.depth()),
        name_(std::move(name)),
        builtin_(builtin),
        subject_(std::move(subject)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Budget& budget) const override;
  bool callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override;

 private:
  std::string name_;
  Builtin builtin_;
  Value subject_;
};

// What map, select and reversed give: it can be walked once, is always true and has no length.
class Generator : public Object {
 public:
  // `type`: "generator", "list_reverseiterator" ...
  Generator(std::string type, const Value& list)
      : Object(list.depth()), type_(std::move(type)), items_(list.list()) {}
  std::string type_name() const override { return type_; }
  std::string repr(Budget& budget) const override;
  std::optional<List> iterate() override { return std::exchange(items_, List()); }
  bool iterable() const override { return true; }
  // Takes the next item; nothing at the end.
  std::optional<Value> next();

 private:
  std::string type_;
  List items_;
};

// A named tuple of a key and the items that have it: what groupby gives.
class Group : public Object {
 public:
  explicit Group(Value items) : Object(items.depth()), items_(std::move(items)) {}
  std::string type_name() const override { return "_GroupTuple"; }
  std::string described_type() const override { return "jinja2.filters._GroupTuple object"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;
  std::optional<List> iterate() override { return items_.tuple(); }
  bool iterable() const override { return true; }
  std::optional<size_t> length() const override { return items_.tuple().size(); }
  bool equal_to(Budget& budget, const Object& other) const override;
  bool subscriptable() const override { return true; }
  bool reversible() const override { return true; }

 private:
  Value items_;  // a tuple of two
};

// range(): numbers `start`, `start + step` ... before `stop`.
class Range : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step, size_t count)
      : Object(0), start_(start), stop_(stop), step_(step), count_(count) {}
  std::string type_name() const override { return "range"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;
  // The range of items `first`, `first + stride` ... `count` of them, before item `stop`.
  Value slice(int64_t first, int64_t stop, int64_t stride, size_t count) const;
  bool equal_to(Budget& budget, const Object& other) const override;
  bool truthy() const override { return count_ != 0; }
  std::optional<List> iterate() override;
  bool iterable() const override { return true; }
  std::optional<size_t> length() const override { return count_; }
  bool subscriptable() const override { return true; }
  bool reversible() const override { return true; }

 private:
  int64_t start_, stop_, step_;
  size_t count_;
};

// dict.keys(), values() and items().
class DictView : public Object {
 public:
  enum class Kind { kKeys, kValues, kItems };
  DictView(Kind kind, Value dict) : Object(dict.depth()), kind_(kind), dict_(std::move(dict)) {}
  std::string type_name() const override;
  std::string repr(Budget& budget) const override;
  // Keys and items compare as sets, values only with themselves.
  bool equal_to(Budget& budget, const Object& other) const override;
  bool truthy() const override { return dict_.dict().size() != 0; }
  std::optional<List> iterate() override;
  bool iterable() const override { return true; }
  std::optional<size_t> length() const override { return dict_.dict().size(); }
  bool reversible() const override { return true; }

 private:
  Kind kind_;
  Value dict_;
};

// The variable `loop` of a for block.
class Loop : public Object {
 public:
  // Runs the block again over other items: what loop(items) does in a recursive loop.
  using Repeat = std::function<Value(const Value& items, int depth)>;

  // `depth`: 0 for a loop that no other calls. `repeat`: empty where the loop is not recursive.
  Loop(const Value& items, int depth, Repeat repeat)
      : Object(items.depth()), items_(items), nesting_(depth), repeat_(std::move(repeat)) {}
  bool callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override;
  void advance(size_t index) { index_ = index; }
  // loop.changed() may have kept a value that refers to this loop: let go of it.
  void finish() { changed_.reset(); }
  // loop.changed(values ...): whether they differ from the last call's.
  bool changed(Budget& budget, Value values);
  Value cycle(const List& values) const;

  std::string type_name() const override { return "LoopContext"; }
  std::string described_type() const override { return "jinja2.runtime.LoopContext object"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;
  std::optional<size_t> length() const override { return items_.list().size(); }

 private:
  Value items_;  // a list
  int nesting_;
  Repeat repeat_;
  size_t index_ = 0;
  std::optional<Value> changed_;
};

// cycler(a, b ...): next() walks round its items.
class Cycler : public Object {
 public:
  explicit Cycler(Value items) : Object(items.depth()), items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::string described_type() const override { return "jinja2.utils.Cycler object"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;
  Value next();
  void reset() { position_ = 0; }

 private:
  Value items_;  // a list, not empty
  size_t position_ = 0;
};

// joiner(separator): "" when called first, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : Object(separator.depth()), separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  std::string described_type() const override { return "jinja2.utils.Joiner object"; }
  std::string repr(Budget& budget) const override;
  bool callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override;

 private:
  Value separator_;
  bool used_ = false;
};

// A bound method of an object made here; the object lives in `subject`.
Value bound_method(std::string name, Builtin builtin, Value subject);

}  // namespace lagoon::text::jinja
