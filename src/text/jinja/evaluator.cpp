// Expressions of the interpreter.
#include <fmt/core.h>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/null_notes.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"

namespace lagoon::text::jinja {

// Evaluates one node.
struct Evaluator {
  Interpreter& in;
  const std::shared_ptr<Scope>& scope;
  int line;

  Value operator()(const Literal& literal) const { return literal.value; }
  Value operator()(const Name& name) const { return in.look_up(name.name, scope); }
  Value operator()(const ListLiteral& list) const { return runtime().make_list(all(list.items)); }
  Value operator()(const TupleLiteral& tuple) const {
    return runtime().make_tuple(all(tuple.items));
  }
  Value operator()(const DictLiteral& dict) const;
  Value operator()(const Unary& unary) const;
  Value operator()(const Binary& binary) const;
  Value operator()(const Concatenation& concatenation) const;
  Value operator()(const Comparisons& comparisons) const;
  Value operator()(const Conditional& conditional) const;
  Value operator()(const AttributeAccess& access) const {
    const Value object = value_of(access.object);
    at();
    return naming_null({{access.object.get(), &object}}, [&] {
      return noted(get_attribute(runtime(), object, access.name), {access.object.get(), &object});
    });
  }
  Value operator()(const ItemAccess& access) const {
    const Value object = value_of(access.object);
    const Value key = value_of(access.key);
    at();
    return naming_null({{access.object.get(), &object}}, [&] {
      return noted(get_item(runtime(), object, key), {access.object.get(), &object});
    });
  }
  Value operator()(const SliceAccess& access) const {
    const Value object = value_of(access.object);
    const Value start = in.evaluate_or_null(access.start, scope);
    const Value stop = in.evaluate_or_null(access.stop, scope);
    const Value step = in.evaluate_or_null(access.step, scope);
    at();
    return naming_null({{access.object.get(), &object}},
                       [&] { return get_slice(runtime(), object, start, stop, step); });
  }
  Value operator()(const Call& node) const {
    const Value callee = value_of(node.callee);
    Arguments arguments = in.evaluate_arguments(node.arguments, scope);
    at();
    if (callee.is_undefined()) {
      throw with_null_note(Failure(callee.undefined().message), {{node.callee.get(), &callee}});
    }
    return call(runtime(), callee, std::move(arguments));
  }
  Value operator()(const FilterCall& filter) const {
    const Value input = value_of(filter.input);
    return naming_null({{filter.input.get(), &input}},
                       [&] { return apply(filter.filter, input, filter.arguments); });
  }
  Value operator()(const TestCall& test) const {
    const Value input = value_of(test.input);
    return naming_null({{test.input.get(), &input}},
                       [&] { return apply(test.test, input, test.arguments); });
  }

  Value apply(Builtin builtin, const Value& input, const CallArguments& arguments) const {
    Arguments evaluated = in.evaluate_arguments(arguments, scope);
    at();
    return builtin(runtime(), input, evaluated);
  }

 private:
  // What a missing attribute of null gives, with a note of what was null.
  static Value noted(Value value, const Operand& object) {
    if (!value.is_undefined() || !object.value->is_null()) return value;
    const Undefined& missing = value.undefined();
    return Undefined{missing.name, missing.message + null_note({object})};
  }
  Runtime& runtime() const { return in.runtime_; }
  void at() const { in.runtime_.line = line; }
  Value value_of(const ExpressionPtr& expression) const { return in.evaluate(*expression, scope); }
  List all(const std::vector<ExpressionPtr>& expressions) const {
    List values;
    values.reserve(expressions.size());
    for (const ExpressionPtr& expression : expressions) values.push_back(value_of(expression));
    return values;
  }
  Value calculate(BinaryOperator op, const Value& left, const Value& right) const;
  bool holds(Comparison comparison, const Value& left, const Value& right) const;
};

Value Evaluator::operator()(const DictLiteral& dict) const {
  Dict items;
  for (const auto& [key_expression, value_expression] : dict.items) {
    const Value key = value_of(key_expression);
    if (!key.is_string()) {
      require_defined(key);
      throw Failure(
          fmt::format("the keys of a dict have to be strings here, not '{}'", type_name(key)));
    }
    items.set(key.string(), value_of(value_expression));
  }
  return runtime().make_dict(std::move(items));
}

Value Evaluator::operator()(const Unary& unary) const {
  const Value operand = value_of(unary.operand);
  at();
  switch (unary.op) {
    case UnaryOperator::kNot:
      return !operand.truthy();
    case UnaryOperator::kNegate:
      return negate(operand);
    case UnaryOperator::kPlus:
      break;
  }
  return plus(operand);
}

Value Evaluator::operator()(const Binary& binary) const {
  const Value left = value_of(binary.left);
  if (binary.op == BinaryOperator::kOr) return left.truthy() ? left : value_of(binary.right);
  if (binary.op == BinaryOperator::kAnd) return left.truthy() ? value_of(binary.right) : left;
  const Value right = value_of(binary.right);
  at();
  return naming_null({{binary.left.get(), &left}, {binary.right.get(), &right}},
                     [&] { return calculate(binary.op, left, right); });
}

Value Evaluator::calculate(BinaryOperator op, const Value& left, const Value& right) const {
  switch (op) {
    case BinaryOperator::kAdd:
      return add(runtime(), left, right);
    case BinaryOperator::kSubtract:
      return subtract(left, right);
    case BinaryOperator::kMultiply:
      return multiply(runtime(), left, right);
    case BinaryOperator::kDivide:
      return divide(left, right);
    case BinaryOperator::kFloorDivide:
      return floor_divide(left, right);
    case BinaryOperator::kModulo:
      return modulo(runtime(), left, right);
    default:
      return power(left, right);
  }
}

Value Evaluator::operator()(const Concatenation& concatenation) const {
  std::string text;
  for (const ExpressionPtr& part : concatenation.parts) {
    append_text(runtime().budget, text, to_text(runtime().budget, value_of(part)));
  }
  return text;
}

bool Evaluator::holds(Comparison comparison, const Value& left, const Value& right) const {
  Budget& budget = runtime().budget;
  switch (comparison) {
    case Comparison::kEqual:
      return equals(budget, left, right);
    case Comparison::kNotEqual:
      return !equals(budget, left, right);
    case Comparison::kLess:
      return less(budget, left, right, "<");
    case Comparison::kLessEqual:
      return less(budget, left, right, "<=") || equals(budget, left, right);
    case Comparison::kGreater:
      return less(budget, right, left, ">");
    case Comparison::kGreaterEqual:
      return less(budget, right, left, ">=") || equals(budget, left, right);
    case Comparison::kIn:
      return contains(runtime(), right, left);
    case Comparison::kNotIn:
      break;
  }
  return !contains(runtime(), right, left);
}

Value Evaluator::operator()(const Comparisons& comparisons) const {
  Value left = value_of(comparisons.first);
  const Expression* left_operand = comparisons.first.get();
  for (const auto& [comparison, operand] : comparisons.rest) {
    Value right = value_of(operand);
    at();
    const bool is_true = naming_null({{left_operand, &left}, {operand.get(), &right}},
                                     [&] { return holds(comparison, left, right); });
    if (!is_true) return false;
    left = std::move(right);
    left_operand = operand.get();
  }
  return true;
}

Value Evaluator::operator()(const Conditional& conditional) const {
  if (value_of(conditional.condition).truthy()) return value_of(conditional.then);
  if (conditional.otherwise) return value_of(conditional.otherwise);
  return Undefined{"", fmt::format("the inline if-expression on line {} evaluated to false and no "
                                   "else section was defined.",
                                   line)};
}

Value Interpreter::evaluate(const Expression& expression, const ScopePointer& scope) {
  const Nested nested(runtime_.budget);
  runtime_.budget.charge(1);
  runtime_.line = expression.line;
  return std::visit(Evaluator{*this, scope, expression.line}, expression.node);
}

Value Interpreter::evaluate_or_null(const ExpressionPtr& expression, const ScopePointer& scope) {
  return expression ? evaluate(*expression, scope) : Value();
}

Value Interpreter::apply_filters(const Expression& chain, Value input, const ScopePointer& scope) {
  const auto& filter = std::get<FilterCall>(chain.node);
  if (filter.input) input = apply_filters(*filter.input, std::move(input), scope);
  return Evaluator{*this, scope, chain.line}.apply(filter.filter, input, filter.arguments);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments,
                                          const ScopePointer& scope) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    values.positional.push_back(evaluate(*argument, scope));
  }
  if (arguments.more_positional) {
    for (Value& item : iterate(runtime_, evaluate(*arguments.more_positional, scope))) {
      values.positional.push_back(std::move(item));
    }
  }
  for (const auto& [name, argument] : arguments.named) {
    values.named.emplace_back(name, evaluate(*argument, scope));
  }
  if (arguments.more_named) {
    const Value more = evaluate(*arguments.more_named, scope);
    if (!more.is_dict()) throw Failure("argument after ** must be a mapping");
    runtime_.budget.charge(more.dict().size());
    for (const auto& [name, value] : more.dict().items()) values.named.emplace_back(name, value);
  }
  return values;
}

// Variables of the template, then those given to it, then the built-in functions.
Value Interpreter::look_up(const std::string& name, const ScopePointer& scope) {
  Value value;
  switch (scope->find(name, value)) {
    case Scope::Found::kYes:
      return value;
    case Scope::Found::kUnset:
      return Undefined{name};
    case Scope::Found::kNo:
      break;
  }
  if (const Value* given = variables_.find(name)) return *given;
  if (const Builtin function = find_function(name)) return bound_method(name, function, Value());
  if (is_function_of_jinja(name)) {
    throw Failure(
        fmt::format("the function '{}' is not supported by this version of Lagoon", name));
  }
  return Undefined{name};
}

}  // namespace lagoon::text::jinja
