#include "text/jinja/expression_parser.h"

#include <fmt/core.h>

namespace lagoon::text::jinja {
namespace {

// From loose to tight. All operators associate to the left, ** too, as Jinja2 has it.
constexpr int kOr = 1;
constexpr int kAnd = 2;
constexpr int kNot = 3;
constexpr int kCompare = 4;
constexpr int kSum = 5;
constexpr int kConcatenate = 6;
constexpr int kProduct = 7;
constexpr int kPower = 8;

bool is_constant_name(const std::string& name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

struct ExpressionParser::InfixOperator {
  enum class Kind { kBinary, kComparison, kConcatenation };
  int precedence;
  Kind kind;
  BinaryOperator op = BinaryOperator::kOr;
};

std::optional<ExpressionParser::InfixOperator> ExpressionParser::operator_at(
    const TokenStream& tokens) {
  using Kind = InfixOperator::Kind;
  struct Symbol {
    const char* symbol;
    int precedence;
    BinaryOperator op;
  };
  static constexpr Symbol kBinaries[] = {
      {"+", kSum, BinaryOperator::kAdd},
      {"-", kSum, BinaryOperator::kSubtract},
      {"*", kProduct, BinaryOperator::kMultiply},
      {"/", kProduct, BinaryOperator::kDivide},
      {"//", kProduct, BinaryOperator::kFloorDivide},
      {"%", kProduct, BinaryOperator::kModulo},
      {"**", kPower, BinaryOperator::kPower},
  };
  const Token& token = tokens.current();
  if (token.is_name("or")) return InfixOperator{kOr, Kind::kBinary, BinaryOperator::kOr};
  if (token.is_name("and")) return InfixOperator{kAnd, Kind::kBinary, BinaryOperator::kAnd};
  if (token.is_name("in") || (token.is_name("not") && tokens.ahead().is_name("in"))) {
    return InfixOperator{kCompare, Kind::kComparison};
  }
  if (token.kind != TokenKind::kOperator) return std::nullopt;
  if (token.text == "~") return InfixOperator{kConcatenate, Kind::kConcatenation};
  for (const char* symbol : {"==", "!=", "<", "<=", ">", ">="}) {
    if (token.text == symbol) return InfixOperator{kCompare, Kind::kComparison};
  }
  for (const Symbol& binary : kBinaries) {
    if (token.text == binary.symbol) {
      return InfixOperator{binary.precedence, Kind::kBinary, binary.op};
    }
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::parse(bool with_conditional) {
  const Deeper deeper(*this);
  int line = tokens_.current().line;
  ExpressionPtr expression = parse_infix(kOr);
  while (with_conditional && tokens_.skip_name("if")) {
    ExpressionPtr condition = parse_infix(kOr);
    ExpressionPtr otherwise = tokens_.skip_name("else") ? parse() : nullptr;
    expression =
        make(line, Conditional{std::move(condition), std::move(expression), std::move(otherwise)});
    line = tokens_.current().line;
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_infix(int least_precedence) {
  ExpressionPtr left = parse_not_or_operand(least_precedence);
  for (;;) {
    const std::optional<InfixOperator> infix = operator_at(tokens_);
    if (!infix || infix->precedence < least_precedence) return left;
    left = parse_infix_rest(std::move(left), *infix);
  }
}

// "not" binds looser than comparisons, so it can only stand where those may follow it.
ExpressionPtr ExpressionParser::parse_not_or_operand(int least_precedence) {
  if (least_precedence > kNot || !tokens_.current().is_name("not")) return parse_unary(true);
  const Deeper deeper(*this);
  const int line = tokens_.next().line;
  return make(line, Unary{UnaryOperator::kNot, parse_infix(kNot)});
}

ExpressionPtr ExpressionParser::parse_infix_rest(ExpressionPtr left, const InfixOperator& infix) {
  const int line = tokens_.current().line;
  if (infix.kind == InfixOperator::Kind::kComparison) return parse_comparisons(std::move(left));
  if (infix.kind == InfixOperator::Kind::kConcatenation) {
    Concatenation concatenation;
    concatenation.parts.push_back(std::move(left));
    while (tokens_.skip_operator("~")) {
      concatenation.parts.push_back(parse_infix(kConcatenate + 1));
    }
    return make(line, std::move(concatenation));
  }
  tokens_.next();
  ExpressionPtr right = parse_infix(infix.precedence + 1);
  return make(line, Binary{infix.op, std::move(left), std::move(right)});
}

std::optional<Comparison> ExpressionParser::take_comparison() {
  static constexpr std::pair<const char*, Comparison> kSymbols[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
  };
  for (const auto& [symbol, comparison] : kSymbols) {
    if (tokens_.skip_operator(symbol)) return comparison;
  }
  if (tokens_.skip_name("in")) return Comparison::kIn;
  if (tokens_.current().is_name("not") && tokens_.ahead().is_name("in")) {
    tokens_.next();
    tokens_.next();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::parse_comparisons(ExpressionPtr first) {
  const int line = tokens_.current().line;
  Comparisons comparisons{std::move(first), {}};
  while (const std::optional<Comparison> comparison = take_comparison()) {
    comparisons.rest.emplace_back(*comparison, parse_infix(kCompare + 1));
  }
  return make(line, std::move(comparisons));
}

ExpressionPtr ExpressionParser::parse_signed(UnaryOperator sign) {
  const Deeper deeper(*this);
  const int line = tokens_.next().line;
  return make(line, Unary{sign, parse_unary(false)});
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr operand;
  if (tokens_.current().is_operator("-")) {
    operand = parse_signed(UnaryOperator::kNegate);
  } else if (tokens_.current().is_operator("+")) {
    operand = parse_signed(UnaryOperator::kPlus);
  } else {
    operand = parse_primary();
  }
  operand = parse_postfix(std::move(operand));
  return with_filters ? parse_filters(std::move(operand)) : std::move(operand);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name_or_constant();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
      return make(line, Literal{Value(tokens_.next().integer)});
    case TokenKind::kFloat:
      return make(line, Literal{Value(tokens_.next().floating)});
    default:
      break;
  }
  if (tokens_.skip_operator("(")) {
    ExpressionPtr inside = parse_tuple(true, nullptr, true);
    tokens_.expect_operator(")");
    return inside;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  throw Failure("unexpected " + describe(token), line);
}

ExpressionPtr ExpressionParser::parse_name_or_constant() {
  const Token& token = tokens_.next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(token.line, Literal{Value(true)});
  if (name == "false" || name == "False") return make(token.line, Literal{Value(false)});
  if (name == "none" || name == "None") return make(token.line, Literal{Value()});
  return make(token.line, Name{name});
}

// Strings that stand side by side are one.
ExpressionPtr ExpressionParser::parse_string() {
  const int line = tokens_.current().line;
  std::string text;
  while (tokens_.current().kind == TokenKind::kString) text += tokens_.next().text;
  return make(line, Literal{Value(std::move(text))});
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = tokens_.next().line;
  ListLiteral list;
  while (!tokens_.current().is_operator("]")) {
    if (!list.items.empty()) tokens_.expect_operator(",");
    if (tokens_.current().is_operator("]")) break;
    list.items.push_back(parse());
  }
  tokens_.expect_operator("]");
  return make(line, std::move(list));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = tokens_.next().line;
  DictLiteral dict;
  while (!tokens_.current().is_operator("}")) {
    if (!dict.items.empty()) tokens_.expect_operator(",");
    if (tokens_.current().is_operator("}")) break;
    ExpressionPtr key = parse();
    tokens_.expect_operator(":");
    dict.items.emplace_back(std::move(key), parse());
  }
  tokens_.expect_operator("}");
  return make(line, std::move(dict));
}

bool ExpressionParser::at_tuple_end(const char* end_name) const {
  const Token& token = tokens_.current();
  return token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd ||
         token.kind == TokenKind::kEnd || token.is_operator(")") ||
         (end_name != nullptr && token.is_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, const char* end_name,
                                            bool in_parentheses) {
  const int line = tokens_.current().line;
  TupleLiteral tuple;
  bool has_comma = false;
  while (!at_tuple_end(end_name)) {
    tuple.items.push_back(parse(with_conditional));
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (has_comma) return make(line, std::move(tuple));
  if (!tuple.items.empty()) return std::move(tuple.items[0]);
  if (!in_parentheses) tokens_.fail_expected("an expression");
  return make(line, std::move(tuple));
}

std::string ExpressionParser::parse_assignable_name() {
  const Token& token = tokens_.expect(TokenKind::kName, "a name");
  if (is_constant_name(token.text)) {
    throw Failure(fmt::format("can't assign to '{}'", token.text), token.line);
  }
  return token.text;
}

Target ExpressionParser::parse_simple_target() {
  const Deeper deeper(*this);
  if (!tokens_.skip_operator("(")) {
    return {Target::Kind::kName, parse_assignable_name(), {}, {}};
  }
  Target inside = parse_target();
  tokens_.expect_operator(")");
  return inside;
}

Target ExpressionParser::parse_target(const char* end_name) {
  Target tuple{Target::Kind::kTuple, {}, {}, {}};
  bool has_comma = false;
  while (tuple.parts.empty() || !at_tuple_end(end_name)) {
    tuple.parts.push_back(parse_simple_target());
    if (!tokens_.skip_operator(",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple;
  Target single = std::move(tuple.parts[0]);
  return single;
}

}  // namespace lagoon::text::jinja
