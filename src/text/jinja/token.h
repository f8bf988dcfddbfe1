// The pieces that the lexer cuts a template into.
#pragma once

#include <cstdint>
#include <string>

namespace lagoon::text::jinja {

enum class TokenKind {
  kText,         // output as it is
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kName,
  kString,  // `text` holds the unescaped value
  kInteger,
  kFloat,
  kOperator,  // `text` holds the symbol
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text = {};
  int64_t integer = 0;
  double floating = 0;

  bool is_operator(const char* symbol) const {
    return kind == TokenKind::kOperator && text == symbol;
  }
  bool is_name(const char* name) const { return kind == TokenKind::kName && text == name; }
};

// As in "unexpected 'endif'".
std::string describe(const Token& token);

}  // namespace lagoon::text::jinja
