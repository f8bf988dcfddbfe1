// A parser's place in the tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/token.h"

namespace lagoon::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  // The current token, passed; the end is never passed.
  const Token& next() {
    const Token& token = tokens_[position_];
    if (token.kind != TokenKind::kEnd) ++position_;
    return token;
  }
  bool skip_operator(const char* symbol) { return current().is_operator(symbol) && pass(); }
  bool skip_name(const char* name) { return current().is_name(name) && pass(); }
  void expect_operator(const char* symbol) {
    if (!skip_operator(symbol)) fail_expected(std::string("'") + symbol + "'");
  }
  void expect_name(const char* name) {
    if (!skip_name(name)) fail_expected(std::string("'") + name + "'");
  }
  const Token& expect(TokenKind kind, const char* what) {
    if (current().kind != kind) fail_expected(what);
    return next();
  }
  [[noreturn]] void fail_expected(const std::string& what) const {
    throw Failure("expected " + what + ", got " + describe(current()), current().line);
  }

 private:
  bool pass() {
    next();
    return true;
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace lagoon::text::jinja
