// What follows an operand: .attribute [item] (call) | filter, is test. Part of ExpressionParser.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/ast_children.h"
#include "text/jinja/builtins.h"
#include "text/jinja/expression_parser.h"

namespace lagoon::text::jinja {

ExpressionParser::Deeper::Deeper(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxTreeDepth) {
    throw Failure(fmt::format("expressions nest more than {} levels deep", kMaxTreeDepth),
                  parser_.tokens_.current().line);
  }
  ++parser_.nesting_;
}

ExpressionPtr ExpressionParser::checked(ExpressionPtr expression) {
  int deepest = 0;
  visit_children(*expression,
                 [&](const Expression& child) { deepest = std::max(deepest, child.depth); });
  expression->depth = deepest + 1;
  // Chains like a + b + c ... nest to the left without any recursion of the parser.
  if (expression->depth > kMaxTreeDepth) {
    throw Failure(fmt::format("an expression nests more than {} levels deep", kMaxTreeDepth),
                  expression->line);
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  for (;;) {
    if (tokens_.current().is_operator(".")) {
      operand = parse_attribute(std::move(operand));
    } else if (tokens_.current().is_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (tokens_.current().is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand) {
  for (;;) {
    if (tokens_.current().is_operator("|")) {
      tokens_.next();
      operand = parse_filter(std::move(operand));
    } else if (tokens_.current().is_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (tokens_.current().is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const int line = tokens_.next().line;
  const Token& token = tokens_.current();
  if (token.kind == TokenKind::kName) {
    return make(line, AttributeAccess{std::move(object), tokens_.next().text});
  }
  if (token.kind != TokenKind::kInteger) tokens_.fail_expected("a name or a number after '.'");
  ExpressionPtr index = make(token.line, Literal{Value(tokens_.next().integer)});
  return make(line, ItemAccess{std::move(object), std::move(index)});
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.next().line;
  const auto at_end = [&] {
    return tokens_.current().is_operator("]") || tokens_.current().is_operator(":");
  };
  ExpressionPtr start = at_end() ? nullptr : parse();
  if (tokens_.current().is_operator(",")) {
    throw Failure("several indices in one pair of brackets are not supported", line);
  }
  if (!tokens_.skip_operator(":")) {
    if (!start) tokens_.fail_expected("an index");
    tokens_.expect_operator("]");
    return make(line, ItemAccess{std::move(object), std::move(start)});
  }
  ExpressionPtr stop = at_end() ? nullptr : parse();
  ExpressionPtr step = tokens_.skip_operator(":") && !at_end() ? parse() : nullptr;
  tokens_.expect_operator("]");
  return make(line,
              SliceAccess{std::move(object), std::move(start), std::move(stop), std::move(step)});
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  const int line = tokens_.current().line;
  CallArguments arguments = parse_arguments();
  return make(line, Call{std::move(callee), std::move(arguments)});
}

CallArguments ExpressionParser::parse_arguments() {
  const int line = tokens_.current().line;
  CallArguments arguments;
  const auto ensure = [line](bool in_order) {
    if (!in_order) throw Failure("the arguments of a call are in the wrong order", line);
  };
  tokens_.expect_operator("(");
  while (!tokens_.current().is_operator(")")) {
    if (tokens_.skip_operator("*")) {
      ensure(!arguments.more_positional && !arguments.more_named);
      arguments.more_positional = parse();
    } else if (tokens_.skip_operator("**")) {
      ensure(!arguments.more_named);
      arguments.more_named = parse();
    } else if (tokens_.current().kind == TokenKind::kName && tokens_.ahead().is_operator("=")) {
      ensure(!arguments.more_named);
      std::string name = tokens_.next().text;
      tokens_.next();
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      ensure(!arguments.more_positional && !arguments.more_named && arguments.named.empty());
      arguments.positional.push_back(parse());
    }
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

std::string ExpressionParser::parse_dotted_name(const char* what) {
  std::string name = tokens_.expect(TokenKind::kName, what).text;
  while (tokens_.skip_operator(".")) name += "." + tokens_.expect(TokenKind::kName, what).text;
  return name;
}

// After the "|"; `input` is null in the head of a filter or set block.
ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.current().line;
  std::string name = parse_dotted_name("the name of a filter");
  const Builtin filter = find_filter(name);
  if (filter == nullptr) {
    if (is_filter_of_jinja(name)) {
      throw Failure(fmt::format("the filter '{}' is not supported by this version of Lagoon", name),
                    line);
    }
    throw Failure(fmt::format("there is no filter named '{}'", name), line);
  }
  CallArguments arguments;
  if (tokens_.current().is_operator("(")) arguments = parse_arguments();
  return make(line, FilterCall{std::move(input), std::move(name), filter, std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_filter_chain() {
  ExpressionPtr chain = parse_filter(nullptr);
  while (tokens_.skip_operator("|")) chain = parse_filter(std::move(chain));
  return chain;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  std::string name = parse_dotted_name("the name of a test");
  const Builtin test = find_test(name);
  if (test == nullptr) throw Failure(fmt::format("there is no test named '{}'", name), line);
  CallArguments arguments = parse_test_arguments();
  ExpressionPtr call =
      make(line, TestCall{std::move(input), std::move(name), test, std::move(arguments)});
  if (!negated) return call;
  return make(line, Unary{UnaryOperator::kNot, std::move(call)});
}

// In parentheses, or one operand without them.
CallArguments ExpressionParser::parse_test_arguments() {
  const Token& token = tokens_.current();
  if (token.is_operator("(")) return parse_arguments();
  CallArguments arguments;
  const bool starts_operand = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                              token.kind == TokenKind::kInteger ||
                              token.kind == TokenKind::kFloat || token.is_operator("[") ||
                              token.is_operator("{");
  if (!starts_operand || token.is_name("else") || token.is_name("or") || token.is_name("and")) {
    return arguments;
  }
  if (token.is_name("is")) throw Failure("tests with 'is' cannot be chained", token.line);
  arguments.positional.push_back(parse_postfix(parse_primary()));
  return arguments;
}

}  // namespace lagoon::text::jinja
