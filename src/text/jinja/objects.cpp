#include "text/jinja/objects.h"

#include <fmt/core.h>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

Loop& loop_of(const Value& subject) {
  return static_cast<Loop&>(*subject.object());
}
Cycler& cycler_of(const Value& subject) {
  return static_cast<Cycler&>(*subject.object());
}

void no_named(const Arguments& arguments, const char* function) {
  if (!arguments.named.empty()) {
    throw Failure(fmt::format("{}() takes no keyword arguments", function));
  }
}

Value loop_cycle(Runtime&, const Value& subject, Arguments& arguments) {
  no_named(arguments, "cycle");
  return loop_of(subject).cycle(arguments.positional);
}

Value loop_changed(Runtime& runtime, const Value& subject, Arguments& arguments) {
  no_named(arguments, "changed");
  return loop_of(subject).changed(runtime.budget,
                                  runtime.make_tuple(std::move(arguments.positional)));
}

Value cycler_next(Runtime&, const Value& subject, Arguments& arguments) {
  no_named(arguments, "next");
  return cycler_of(subject).next();
}

Value cycler_reset(Runtime&, const Value& subject, Arguments& arguments) {
  no_named(arguments, "reset");
  cycler_of(subject).reset();
  return Null{};
}

Value method_of(std::shared_ptr<Object> object, const char* name, Builtin builtin) {
  return bound_method(name, builtin, Value(std::move(object)));
}

Value from_size(size_t number) {
  return static_cast<int64_t>(number);
}

List view_items(DictView::Kind kind, const Dict& dict) {
  List items;
  items.reserve(dict.size());
  for (const auto& [key, value] : dict.items()) {
    if (kind == DictView::Kind::kKeys) items.emplace_back(key);
    if (kind == DictView::Kind::kValues) items.push_back(value);
    if (kind == DictView::Kind::kItems) items.push_back(Value::tuple({Value(key), value}));
  }
  return items;
}

}  // namespace

Value Object::call(Runtime&, Arguments&) {
  throw Failure(fmt::format("'{}' object is not callable", type_name()));
}

Value bound_method(std::string name, Builtin builtin, Value subject) {
  return std::shared_ptr<Object>(
      std::make_shared<Function>(std::move(name), builtin, std::move(subject)));
}

std::string Namespace::repr(Budget& budget) const {
  return fmt::format("<Namespace {}>", jinja::repr(budget, Value(attributes_)));
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  const Value* value = attributes_.find(name);
  return value != nullptr ? std::optional<Value>(*value) : std::nullopt;
}

std::string Function::repr(Budget&) const {
  if (subject_.is_null()) return fmt::format("<function {}>", name_);
  return fmt::format("<built-in method {} of {} object>", name_, jinja::type_name(subject_));
}

Value Function::call(Runtime& runtime, Arguments& arguments) {
  runtime.budget.charge(1);
  return builtin_(runtime, subject_, arguments);
}

std::string Generator::repr(Budget&) const {
  return fmt::format("<{} object>", type_);
}

std::optional<Value> Generator::next() {
  if (items_.empty()) return std::nullopt;
  Value first = items_.front();
  items_.erase(items_.begin());
  return first;
}

std::string Group::repr(Budget& budget) const {
  return jinja::repr(budget, items_);
}

std::optional<Value> Group::attribute(std::string_view name) {
  if (name == "grouper") return items_.tuple()[0];
  if (name == "list") return items_.tuple()[1];
  return std::nullopt;
}

bool Group::equal_to(Budget& budget, const Object& other) const {
  const auto* group = dynamic_cast<const Group*>(&other);
  return group != nullptr && equals(budget, items_, group->items_);
}

std::string Range::repr(Budget&) const {
  return step_ == 1 ? fmt::format("range({}, {})", start_, stop_)
                    : fmt::format("range({}, {}, {})", start_, stop_, step_);
}

std::optional<Value> Range::attribute(std::string_view name) {
  if (name == "start") return Value(start_);
  if (name == "stop") return Value(stop_);
  if (name == "step") return Value(step_);
  if (name == "index" || name == "count") {
    throw Failure(
        fmt::format("'{}' of a 'range' is not supported by this version of Lagoon", name));
  }
  return std::nullopt;
}

bool Range::equal_to(Budget&, const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (range == nullptr || count_ != range->count_) return false;
  return count_ == 0 || (start_ == range->start_ && (count_ == 1 || step_ == range->step_));
}

Value Range::slice(int64_t first, int64_t stop, int64_t stride, size_t count) const {
  const auto item = [this](int64_t index) {
    int64_t distance = 0;
    int64_t number = 0;
    if (__builtin_mul_overflow(index, step_, &distance) ||
        __builtin_add_overflow(start_, distance, &number)) {
      throw Failure("the number is beyond the 64 bits that integers have here");
    }
    return number;
  };
  int64_t step = 0;
  if (__builtin_mul_overflow(step_, stride, &step)) {
    throw Failure("the number is beyond the 64 bits that integers have here");
  }
  return std::shared_ptr<Object>(std::make_shared<Range>(item(first), item(stop), step, count));
}

std::optional<List> Range::iterate() {
  List items;
  items.reserve(count_);
  for (size_t i = 0; i < count_; ++i) {
    items.emplace_back(start_ + static_cast<int64_t>(i) * step_);
  }
  return items;
}

std::string DictView::type_name() const {
  switch (kind_) {
    case Kind::kKeys:
      return "dict_keys";
    case Kind::kValues:
      return "dict_values";
    case Kind::kItems:
      break;
  }
  return "dict_items";
}

std::string DictView::repr(Budget& budget) const {
  List items = view_items(kind_, dict_.dict());
  return fmt::format("{}({})", type_name(),
                     jinja::repr(budget, budget.checked(Value(std::move(items)))));
}

bool DictView::equal_to(Budget& budget, const Object& other) const {
  const auto* view = dynamic_cast<const DictView*>(&other);
  if (view == nullptr || kind_ != view->kind_ || kind_ == Kind::kValues) return this == &other;
  const Dict& right = view->dict_.dict();
  if (dict_.dict().size() != right.size()) return false;
  for (const auto& [key, value] : dict_.dict().items()) {
    budget.charge(1);
    const Value* found = right.find(key);
    if (found == nullptr) return false;
    if (kind_ == Kind::kItems && !equals(budget, value, *found)) return false;
  }
  return true;
}

std::optional<List> DictView::iterate() {
  return view_items(kind_, dict_.dict());
}

bool Loop::changed(Budget& budget, Value values) {
  if (changed_ && equals(budget, *changed_, values)) return false;
  changed_ = std::move(values);
  return true;
}

Value Loop::call(Runtime& runtime, Arguments& arguments) {
  if (!repeat_) {
    throw Failure("The loop must have the 'recursive' marker to be called.");
  }
  const BoundArguments bound("loop", {"iterable"}, arguments, 1);
  const Nested nested(runtime.budget);
  return repeat_(bound.get(0), nesting_ + 1);
}

Value Loop::cycle(const List& values) const {
  if (values.empty()) throw Failure("no items for cycling given");
  return values[index_ % values.size()];
}

std::string Loop::repr(Budget&) const {
  return fmt::format("<LoopContext {}/{}>", index_ + 1, items_.list().size());
}

std::optional<Value> Loop::attribute(std::string_view name) {
  const List& items = items_.list();
  if (name == "index") return from_size(index_ + 1);
  if (name == "index0") return from_size(index_);
  if (name == "revindex") return from_size(items.size() - index_);
  if (name == "revindex0") return from_size(items.size() - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == items.size());
  if (name == "length") return from_size(items.size());
  if (name == "depth") return Value(nesting_ + 1);
  if (name == "depth0") return Value(nesting_);
  if (name == "previtem") {
    if (index_ == 0) return Value(Undefined{"previtem", "there is no previous item"});
    return items[index_ - 1];
  }
  if (name == "nextitem") {
    if (index_ + 1 == items.size()) return Value(Undefined{"nextitem", "there is no next item"});
    return items[index_ + 1];
  }
  if (name == "cycle") return method_of(shared_from_this(), "cycle", loop_cycle);
  if (name == "changed") return method_of(shared_from_this(), "changed", loop_changed);
  return std::nullopt;
}

std::string Cycler::repr(Budget&) const {
  return "<Cycler object>";
}

std::optional<Value> Cycler::attribute(std::string_view name) {
  if (name == "current") return items_.list()[position_];
  if (name == "pos") return from_size(position_);
  if (name == "items") return Value::tuple(items_.list());
  if (name == "next") return method_of(shared_from_this(), "next", cycler_next);
  if (name == "reset") return method_of(shared_from_this(), "reset", cycler_reset);
  return std::nullopt;
}

Value Cycler::next() {
  const Value current = items_.list()[position_];
  position_ = (position_ + 1) % items_.list().size();
  return current;
}

std::string Joiner::repr(Budget&) const {
  return "<Joiner object>";
}

Value Joiner::call(Runtime&, Arguments& arguments) {
  no_named(arguments, "joiner");
  if (!arguments.positional.empty()) throw Failure("a joiner takes no arguments");
  if (!std::exchange(used_, true)) return "";
  return separator_;
}

}  // namespace lagoon::text::jinja
