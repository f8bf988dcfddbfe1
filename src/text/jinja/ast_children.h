// The children of an expression.
#pragma once

#include <type_traits>

#include "text/jinja/ast.h"

namespace lagoon::text::jinja {
namespace children {

template <typename Visit>
void each(const ExpressionPtr& child, const Visit& visit) {
  if (child) visit(*child);
}

template <typename Visit>
void each(const std::vector<ExpressionPtr>& items, const Visit& visit) {
  for (const ExpressionPtr& item : items) each(item, visit);
}

template <typename Visit>
void each(const CallArguments& arguments, const Visit& visit) {
  each(arguments.positional, visit);
  for (const auto& [name, value] : arguments.named) each(value, visit);
  each(arguments.more_positional, visit);
  each(arguments.more_named, visit);
}

}  // namespace children

// Calls visit(const Expression&) for each child of a node, in order of evaluation or nearly so.
template <typename Visit>
void visit_children(const Expression& expression, const Visit& visit) {
  using children::each;
  std::visit(
      [&](const auto& node) {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, ListLiteral> || std::is_same_v<Node, TupleLiteral>) {
          each(node.items, visit);
        } else if constexpr (std::is_same_v<Node, DictLiteral>) {
          for (const auto& [key, value] : node.items) {
            each(key, visit);
            each(value, visit);
          }
        } else if constexpr (std::is_same_v<Node, Unary>) {
          each(node.operand, visit);
        } else if constexpr (std::is_same_v<Node, Binary>) {
          each(node.left, visit);
          each(node.right, visit);
        } else if constexpr (std::is_same_v<Node, Concatenation>) {
          each(node.parts, visit);
        } else if constexpr (std::is_same_v<Node, Comparisons>) {
          each(node.first, visit);
          for (const auto& [op, operand] : node.rest) each(operand, visit);
        } else if constexpr (std::is_same_v<Node, Conditional>) {
          each(node.condition, visit);
          each(node.then, visit);
          each(node.otherwise, visit);
        } else if constexpr (std::is_same_v<Node, AttributeAccess>) {
          each(node.object, visit);
        } else if constexpr (std::is_same_v<Node, ItemAccess>) {
          each(node.object, visit);
          each(node.key, visit);
        } else if constexpr (std::is_same_v<Node, SliceAccess>) {
          each(node.object, visit);
          each(node.start, visit);
          each(node.stop, visit);
          each(node.step, visit);
        } else if constexpr (std::is_same_v<Node, Call>) {
          each(node.callee, visit);
          each(node.arguments, visit);
        } else if constexpr (std::is_same_v<Node, FilterCall> || std::is_same_v<Node, TestCall>) {
          each(node.input, visit);
          each(node.arguments, visit);
        }
      },
      expression.node);
}

}  // namespace lagoon::text::jinja
