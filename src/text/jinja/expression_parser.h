// Parses expressions by precedence climbing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace lagoon::text::jinja {

// How deep expressions and blocks may nest in a template's text.
constexpr int kMaxTreeDepth = 150;

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // An expression; without `with_conditional`, "if" ends it.
  ExpressionPtr parse(bool with_conditional = true);
  // An expression, or a tuple where commas follow. `end_name`, where given, also ends it.
  ExpressionPtr parse_tuple(bool with_conditional = true, const char* end_name = nullptr,
                            bool in_parentheses = false);
  // filter(arguments) | filter ...: a chain whose innermost input is null.
  ExpressionPtr parse_filter_chain();
  // A name, or names with commas, to assign to; `end_name` ends it.
  Target parse_target(const char* end_name = nullptr);
  std::string parse_assignable_name();

 private:
  // How tightly operators bind; see operator_at().
  struct InfixOperator;
  static std::optional<InfixOperator> operator_at(const TokenStream& tokens);

  ExpressionPtr parse_infix(int least_precedence);
  ExpressionPtr parse_infix_rest(ExpressionPtr left, const InfixOperator& infix);
  ExpressionPtr parse_not_or_operand(int least_precedence);
  ExpressionPtr parse_comparisons(ExpressionPtr first);
  std::optional<Comparison> take_comparison();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_signed(UnaryOperator sign);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name_or_constant();
  ExpressionPtr parse_string();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters(ExpressionPtr operand);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  CallArguments parse_test_arguments();
  CallArguments parse_arguments();
  std::string parse_dotted_name(const char* what);
  Target parse_simple_target();
  bool at_tuple_end(const char* end_name) const;

  // Limits the parser's own recursion.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser);
    ~Deeper() { --parser_.nesting_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser& parser_;
  };

  template <typename Node>
  static ExpressionPtr make(int line, Node node) {
    return checked(std::make_unique<Expression>(Expression{line, 1, std::move(node)}));
  }
  // Sets the depth and refuses a tree that is too deep.
  static ExpressionPtr checked(ExpressionPtr expression);

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace lagoon::text::jinja
