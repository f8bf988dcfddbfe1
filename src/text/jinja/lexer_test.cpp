#include "text/jinja/lexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/error.h"
#include "text/jinja/tag_lexer.h"

namespace lagoon::text::jinja {
namespace {

using testing::ElementsAre;

// Each token as "line:text", tags as their delimiters.
std::vector<std::string> tokens_of(std::string_view source) {
  std::vector<std::string> found;
  for (const Token& token : tokenize(source)) {
    std::string text = token.text;
    if (token.kind == TokenKind::kOutputBegin) text = "{{";
    if (token.kind == TokenKind::kOutputEnd) text = "}}";
    if (token.kind == TokenKind::kBlockBegin) text = "{%";
    if (token.kind == TokenKind::kBlockEnd) text = "%}";
    if (token.kind == TokenKind::kEnd) text = "end";
    found.push_back(std::to_string(token.line) + ":" + text);
  }
  return found;
}

TEST(Lexer, CutsTextAndTags) {
  EXPECT_THAT(tokens_of("a{{ b.c }}d"),
              ElementsAre("1:a", "1:{{", "1:b", "1:.", "1:c", "1:}}", "1:d", "1:end"));
  EXPECT_THAT(tokens_of("{{ x**y//z>=1 }}"), ElementsAre("1:{{", "1:x", "1:**", "1:y", "1://",
                                                         "1:z", "1:>=", "1:1", "1:}}", "1:end"));
}

TEST(Lexer, CountsLines) {
  EXPECT_THAT(
      tokens_of("a\n{% if\n x %}\nb\n{#\n#}{{ y }}"),
      ElementsAre("1:a\n", "2:{%", "2:if", "3:x", "3:%}", "4:b\n", "6:{{", "6:y", "6:}}", "6:end"));
  EXPECT_THAT(tokens_of("a\n \n{{- b -}}\n\nc"),
              ElementsAre("1:a", "3:{{", "3:b", "3:}}", "5:c", "5:end"));
}

TEST(Lexer, BracketsHideClosers) {
  EXPECT_THAT(tokens_of("{{ {'a':{}} }}"),
              ElementsAre("1:{{", "1:{", "1:a", "1::", "1:{", "1:}", "1:}", "1:}}", "1:end"));
}

TEST(Lexer, ReadsNumbers) {
  const auto tokens = tokenize("{{ 1_000 0x1f 1.5e3 1.a 2e5 }}");
  EXPECT_EQ(tokens[1].integer, 1000);
  EXPECT_EQ(tokens[2].integer, 31);
  EXPECT_EQ(tokens[3].floating, 1500.0);
  EXPECT_EQ(tokens[4].integer, 1);
  EXPECT_EQ(tokens[5].text, ".");
  EXPECT_EQ(tokens[7].floating, 200000.0);
}

TEST(Lexer, Unescapes) {
  EXPECT_EQ(unescape(R"(\n\t\\\'\"\a\0\x41é\101\q\
)",
                     1),
            std::string("\n\t\\'\"\a\0Aé"
                        "A\\q",
                        13));
  EXPECT_THROW(unescape("\\x4", 1), Failure);
  EXPECT_THROW(unescape("\\U00110000", 1), Failure);
}

TEST(Lexer, NormalizesNewlines) {
  EXPECT_THAT(tokens_of("a\r\nb\rc\r\n"), ElementsAre("1:a\nb\nc", "3:end"));
}

}  // namespace
}  // namespace lagoon::text::jinja
