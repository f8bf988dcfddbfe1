// The syntax tree of a template. It does not change after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/object.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<Statement>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *list, or null
  ExpressionPtr more_named;       // **dict, or null
};

// Expressions.
struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
enum class UnaryOperator { kNot, kNegate, kPlus };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
enum class BinaryOperator {
  kOr,
  kAnd,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
// left ~ right ~ ...
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
// first op operand op operand ...: each operand is evaluated once, and only while all hold.
struct Comparisons {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
// then if condition else otherwise; `otherwise` may be null.
struct Conditional {
  ExpressionPtr condition, then, otherwise;
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct ItemAccess {
  ExpressionPtr object, key;
};
// Bounds that are not given are null.
struct SliceAccess {
  ExpressionPtr object, start, stop, step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
// input | name(arguments); `input` is null in the head of a filter or set block.
struct FilterCall {
  ExpressionPtr input;
  std::string name;
  Builtin filter;
  CallArguments arguments;
};
// input is name(arguments)
struct TestCall {
  ExpressionPtr input;
  std::string name;
  Builtin test;
  CallArguments arguments;
};

struct Expression {
  int line;
  int depth;  // of the tree below, at least 1
  std::variant<Literal, Name, ListLiteral, TupleLiteral, DictLiteral, Unary, Binary, Concatenation,
               Comparisons, Conditional, AttributeAccess, ItemAccess, SliceAccess, Call, FilterCall,
               TestCall>
      node;
};

// What can stand left of "=" or between "for" and "in".
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind;
  std::string name;
  std::string attribute;      // kAttribute: of the namespace `name`
  std::vector<Target> parts;  // kTuple
};

// The names that a block assigns before it can have read them: unset when the block starts, even
// where an outer variable has the name. See symbols.h.
using UnsetNames = std::vector<std::string>;

// Statements.
struct Text {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;  // if and elif
  Block otherwise;
};
struct For {
  int line;
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // or null
  Block body, otherwise;
  bool uses_loop, is_recursive;
  UnsetNames unset_in_body = {}, unset_in_otherwise = {};
};
struct Assignment {
  Target target;
  ExpressionPtr value;
};
// {% set x | filter %}body{% endset %}
struct BlockAssignment {
  Target target;
  ExpressionPtr filter;  // a chain of FilterCall whose innermost input is null; or null
  Block body;
  UnsetNames unset = {};
};
struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // or null
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false, uses_named = false, uses_positional = false;
  UnsetNames unset = {};
};
struct MacroStatement {
  std::shared_ptr<MacroDefinition> macro;
};
// {% call(parameters) call %}body{% endcall %}: the body is the macro `caller` of the call.
struct CallBlock {
  ExpressionPtr call;  // its node is a Call
  std::shared_ptr<MacroDefinition> body;
};
struct FilterBlock {
  ExpressionPtr filter;  // as in BlockAssignment
  Block body;
  UnsetNames unset = {};
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
  UnsetNames unset = {};
};
// {% generation %}: marks what the assistant said, for training; rendered as it is.
struct Generation {
  Block body;
  UnsetNames unset = {};
};
// {% do expression %}: the value is not printed.
struct Do {
  ExpressionPtr expression;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Text, Output, If, For, Assignment, BlockAssignment, MacroStatement, CallBlock,
               FilterBlock, With, Generation, Do, Break, Continue>
      node;
};

struct TemplateTree {
  Block body;
  UnsetNames unset = {};
};

}  // namespace lagoon::text::jinja
