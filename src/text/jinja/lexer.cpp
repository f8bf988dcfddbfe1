#include "text/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/tag_lexer.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

// \r\n and \r become \n, and one newline at the end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_text_and_tag();
    tokens_.push_back({TokenKind::kEnd, line_});
    return std::move(tokens_);
  }

 private:
  void lex_text_and_tag();
  void lex_tag(TokenKind end, std::string_view closer, bool trims);
  void lex_comment();
  bool lex_raw();
  void emit_text(std::string_view text, char sign, bool strips_line);
  bool close_tag(std::string_view closer, bool trims);
  void skip_space();
  void advance(size_t bytes);
  std::string_view rest() const { return source_.substr(position_); }

  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

void Lexer::advance(size_t bytes) {
  const std::string_view passed = source_.substr(position_, bytes);
  line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
  position_ += bytes;
}

void Lexer::skip_space() {
  advance(rest().size() - strip_left(rest()).size());
}

char sign_at(std::string_view text) {
  return !text.empty() && (text[0] == '-' || text[0] == '+') ? text[0] : ' ';
}

// Emits the text before a tag. `sign` is the tag's: "-" strips all whitespace before it; without a
// sign, whitespace between the start of the line and the tag goes where `strips_line`.
void Lexer::emit_text(std::string_view text, char sign, bool strips_line) {
  const bool line_starts = position_ == 0 || source_[position_ - 1] == '\n';
  std::string_view kept = text;
  if (sign == '-') {
    kept = strip_right(text);
  } else if (sign != '+' && strips_line) {
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if ((start > 0 || line_starts) && strip_left(text.substr(start)).empty()) {
      kept = text.substr(0, start);
    }
  }
  if (!kept.empty()) tokens_.push_back({TokenKind::kText, line_, std::string(kept)});
  advance(text.size());
}

void Lexer::lex_text_and_tag() {
  size_t at = position_;
  for (;; ++at) {
    at = source_.find('{', at);
    if (at == std::string_view::npos || at + 1 >= source_.size()) {
      emit_text(rest(), '+', false);
      return;
    }
    const char next = source_[at + 1];
    if (next == '{' || next == '%' || next == '#') break;
  }
  const char kind = source_[at + 1];
  const char sign = sign_at(source_.substr(at + 2));
  emit_text(source_.substr(position_, at - position_), sign, kind != '{');
  if (kind == '%' && lex_raw()) return;
  const int line = line_;
  advance(sign == ' ' ? 2 : 3);
  if (kind == '#') {
    lex_comment();
  } else if (kind == '%') {
    tokens_.push_back({TokenKind::kBlockBegin, line});
    lex_tag(TokenKind::kBlockEnd, "%}", true);
  } else {
    tokens_.push_back({TokenKind::kOutputBegin, line});
    lex_tag(TokenKind::kOutputEnd, "}}", false);
  }
}

// Passes "-%}" with the whitespace after it, "+%}", or "%}" with a newline after it where `trims`.
bool Lexer::close_tag(std::string_view closer, bool trims) {
  const char sign = sign_at(rest());
  if (sign != ' ' && rest().substr(1).starts_with(closer) && (sign == '-' || trims)) {
    advance(1 + closer.size());
    if (sign == '-') skip_space();
    return true;
  }
  if (!rest().starts_with(closer)) return false;
  advance(closer.size());
  if (trims && rest().starts_with('\n')) advance(1);
  return true;
}

void Lexer::lex_tag(TokenKind end, std::string_view closer, bool trims) {
  std::string open;  // the closing brackets still owed
  for (;;) {
    skip_space();
    const int line = line_;
    if (open.empty() && close_tag(closer, trims)) {
      tokens_.push_back({end, line});
      return;
    }
    if (position_ >= source_.size()) {
      // The parser says what was expected.
      return;
    }
    size_t bytes = 0;
    Token token = lex_in_tag(source_, position_, line, bytes);
    if (token.kind == TokenKind::kOperator) balance(token, open);
    tokens_.push_back(std::move(token));
    advance(bytes);
  }
}

void Lexer::lex_comment() {
  const size_t end = rest().find("#}");
  if (end == std::string_view::npos) throw Failure("Missing end of comment tag", line_);
  const char sign = end > 0 ? sign_at(rest().substr(end - 1)) : ' ';
  advance(sign == ' ' ? end : end - 1);
  close_tag("#}", true);
}

// {% raw %} ... {% endraw %}: what is between them is text. False where no raw block starts here.
bool Lexer::lex_raw() {
  const size_t start = position_;
  const int start_line = line_;
  const auto back = [&] {
    position_ = start;
    line_ = start_line;
    return false;
  };
  advance(sign_at(rest().substr(2)) == ' ' ? 2 : 3);
  skip_space();
  if (!rest().starts_with("raw")) return back();
  advance(3);
  skip_space();
  if (!rest().starts_with("%}") && !rest().starts_with("-%}")) return back();
  const bool strips = rest()[0] == '-';
  advance(strips ? 3 : 2);
  if (strips) skip_space();

  for (size_t at = rest().find("{%"); at != std::string_view::npos;
       at = rest().find("{%", at + 2)) {
    std::string_view tag = rest().substr(at + 2);
    const char sign = sign_at(tag);
    if (sign != ' ') tag.remove_prefix(1);
    tag = strip_left(tag);
    if (!tag.starts_with("endraw")) continue;
    tag = strip_left(tag.substr(6));
    if (!tag.starts_with("%}") && !tag.starts_with("-%}") && !tag.starts_with("+%}")) continue;
    const size_t closer = rest().size() - tag.size();
    const size_t from = position_;
    emit_text(rest().substr(0, at), sign, true);
    advance(closer - (position_ - from));
    close_tag("%}", true);
    return true;
  }
  throw Failure("Missing end of raw directive", start_line);
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "text";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text);
  }
}

std::vector<Token> tokenize(std::string_view source) {
  if (!is_valid_utf8(source)) throw Failure("the template is not valid UTF-8", 1);
  const std::string normalized = normalize_newlines(source);
  return Lexer(normalized).run();
}

}  // namespace lagoon::text::jinja
