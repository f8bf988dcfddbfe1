// Values beyond plain data: namespaces, macros, functions and methods, iterators, the loop
// variable. Objects live as long as one rendering and belong to its thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

class Runtime;

// What stands in the parentheses of a call.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A built-in filter, test, method or function. `subject` is what it is applied to: the filter's or
// test's input, the method's object; null for a function. Throws Failure.
using Builtin = Value (*)(Runtime& runtime, const Value& subject, Arguments& arguments);

class Object : public std::enable_shared_from_this<Object> {
 public:
  virtual ~Object() = default;

  virtual std::string type_name() const = 0;  // Python's type(x).__name__
  // As in messages: "'jinja2.utils.Namespace object' has no attribute ...".
  virtual std::string described_type() const { return type_name() + " object"; }
  virtual std::string repr(Budget& budget) const = 0;
  virtual std::string text(Budget& budget) const { return repr(budget); }
  virtual bool truthy() const { return true; }
  // Python's getattr: nothing where there is no such attribute.
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  virtual bool callable() const { return false; }
  // May use up the arguments.
  virtual Value call(Runtime& runtime, Arguments& arguments);
  // The items in order, or nothing for what cannot be iterated. A generator is used up by it.
  virtual std::optional<List> iterate() { return std::nullopt; }
  virtual bool iterable() const { return false; }
  // Python's len(); nothing for what has none.
  virtual std::optional<size_t> length() const { return std::nullopt; }
  // Python's ==; being the same object unless there is more to compare.
  virtual bool equal_to(Budget&, const Object& other) const { return this == &other; }
  virtual bool subscriptable() const { return false; }
  virtual bool reversible() const { return false; }

  int depth() const { return depth_; }

 protected:
  explicit Object(int depth) : depth_(depth) {}

 private:
  int depth_;  // of the values it holds, see Value::depth()
};

}  // namespace lagoon::text::jinja
