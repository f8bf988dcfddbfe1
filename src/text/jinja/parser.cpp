#include "text/jinja/parser.h"

#include <fmt/core.h>

#include <initializer_list>
#include <unordered_map>

#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/jinja/symbols.h"
#include "text/jinja/token_stream.h"

namespace lagoon::text::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  TemplateTree run() {
    TemplateTree tree;
    tree.body = parse_block({});
    return tree;
  }

 private:
  using EndNames = std::initializer_list<const char*>;

  // Up to a tag of one of the names, which stays the current token; or to the template's end.
  Block parse_block(EndNames ends);
  // The rest of an opening tag and the block after it, up to and with the tag `end`.
  Block parse_body(const char* end);
  // As parse_body, but the ending tag's name stays current.
  Block parse_body_until(EndNames ends);
  void parse_statement(Block& block);
  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "'%}'"); }

  Statement parse_if(int line);
  Statement parse_for(int line);
  Statement parse_set(int line);
  Statement parse_macro(int line);
  Statement parse_call_block(int line);
  Statement parse_filter_block(int line);
  Statement parse_with(int line);
  Statement parse_generation(int line);
  Statement parse_loop_control(int line, bool is_break);
  void parse_print(int line, Block& block);
  std::vector<Parameter> parse_parameters();
  static bool has_parameter(const MacroDefinition& macro, const char* name);
  static std::shared_ptr<MacroDefinition> finish_macro(MacroDefinition macro, int line);
  [[noreturn]] static void refuse(const Token& tag);

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  // for blocks around, within the same macro
};

bool is_one_of(const Token& token, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (token.is_name(name)) return true;
  }
  return false;
}

Block Parser::parse_block(EndNames ends) {
  if (nesting_ >= kMaxTreeDepth) {
    throw Failure(fmt::format("blocks nest more than {} levels deep", kMaxTreeDepth),
                  tokens_.current().line);
  }
  ++nesting_;
  Block block;
  for (;;) {
    const Token& token = tokens_.current();
    if (token.kind == TokenKind::kEnd) break;
    tokens_.next();
    if (token.kind == TokenKind::kText) {
      block.push_back({token.line, Text{token.text}});
    } else if (token.kind == TokenKind::kOutputBegin) {
      block.push_back({token.line, Output{expressions_.parse_tuple()}});
      tokens_.expect(TokenKind::kOutputEnd, "'}}'");
    } else {  // a block begins: within a tag the tokens are the statements' to take
      if (is_one_of(tokens_.current(), ends)) break;
      parse_statement(block);
      end_tag();
    }
  }
  --nesting_;
  return block;
}

Block Parser::parse_body_until(EndNames ends) {
  const int line = tokens_.current().line;
  end_tag();
  Block block = parse_block(ends);
  if (tokens_.current().kind == TokenKind::kEnd) {
    throw Failure(fmt::format("the block that starts here lacks its '{}'", *(ends.end() - 1)),
                  line);
  }
  return block;
}

Block Parser::parse_body(const char* end) {
  Block block = parse_body_until({end});
  tokens_.next();
  return block;
}

void Parser::refuse(const Token& tag) {
  const std::string& name = tag.text;
  if (name == "include" || name == "import" || name == "from" || name == "extends" ||
      name == "block") {
    throw Failure(fmt::format("the tag '{}' is not supported, since it takes other files to make "
                              "sense of: use the resolved template, with what they hold put in its "
                              "place",
                              name),
                  tag.line);
  }
  if (name == "autoescape" || name == "debug" || name == "trans") {
    throw Failure(
        fmt::format("the tag '{}' is not supported by this version of Lagoon: take it out "
                    "of the template",
                    name),
        tag.line);
  }
  const bool belongs = name.starts_with("end") || name == "else" || name == "elif";
  throw Failure(fmt::format("{} tag '{}'", belongs ? "misplaced" : "unknown", name), tag.line);
}

void Parser::parse_statement(Block& block) {
  using Parse = Statement (Parser::*)(int);
  static const std::unordered_map<std::string_view, Parse> kStatements = {
      {"if", &Parser::parse_if},           {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},         {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block},
      {"with", &Parser::parse_with},       {"generation", &Parser::parse_generation},
  };
  const Token& tag = tokens_.expect(TokenKind::kName, "the name of a tag");
  const auto found = kStatements.find(tag.text);
  if (found != kStatements.end()) {
    block.push_back((this->*found->second)(tag.line));
  } else if (tag.text == "break" || tag.text == "continue") {
    block.push_back(parse_loop_control(tag.line, tag.text == "break"));
  } else if (tag.text == "do") {
    block.push_back({tag.line, Do{expressions_.parse_tuple()}});
  } else if (tag.text == "print") {
    parse_print(tag.line, block);
  } else {
    refuse(tag);
  }
}

Statement Parser::parse_if(int line) {
  If statement;
  for (;;) {
    ExpressionPtr condition = expressions_.parse_tuple(false);
    Block body = parse_body_until({"elif", "else", "endif"});
    statement.branches.emplace_back(std::move(condition), std::move(body));
    if (tokens_.skip_name("elif")) continue;
    if (tokens_.skip_name("else")) {
      statement.otherwise = parse_body("endif");
    } else {
      tokens_.next();
    }
    return {line, std::move(statement)};
  }
}

Statement Parser::parse_for(int line) {
  For statement;
  statement.line = line;
  statement.target = expressions_.parse_target("in");
  tokens_.expect_name("in");
  statement.iterable = expressions_.parse_tuple(false, "recursive");
  if (tokens_.skip_name("if")) statement.condition = expressions_.parse();
  statement.is_recursive = tokens_.skip_name("recursive");
  ++loops_;
  statement.body = parse_body_until({"else", "endfor"});
  --loops_;
  if (tokens_.skip_name("else")) {
    statement.otherwise = parse_body("endfor");
  } else {
    tokens_.next();
  }
  statement.uses_loop = reads_name(statement.body, "loop");
  if (assigns_name(statement.target, "loop") || assigns_name(statement.body, "loop")) {
    throw Failure("the variable 'loop' of a for block cannot be assigned to", line);
  }
  return {line, std::move(statement)};
}

Statement Parser::parse_set(int line) {
  Target target;
  if (tokens_.current().kind == TokenKind::kName && tokens_.ahead().is_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.name = tokens_.next().text;
    tokens_.next();
    target.attribute = tokens_.expect(TokenKind::kName, "the name of an attribute").text;
  } else {
    target = expressions_.parse_target();
  }
  if (tokens_.skip_operator("=")) {
    return {line, Assignment{std::move(target), expressions_.parse_tuple()}};
  }
  BlockAssignment statement{std::move(target), nullptr, {}};
  if (tokens_.skip_operator("|")) statement.filter = expressions_.parse_filter_chain();
  statement.body = parse_body("endset");
  return {line, std::move(statement)};
}

std::vector<Parameter> Parser::parse_parameters() {
  std::vector<Parameter> parameters;
  tokens_.expect_operator("(");
  while (!tokens_.current().is_operator(")")) {
    if (!parameters.empty()) tokens_.expect_operator(",");
    const int line = tokens_.current().line;
    Parameter parameter{expressions_.parse_assignable_name(), nullptr};
    if (tokens_.skip_operator("=")) {
      parameter.otherwise = expressions_.parse();
    } else if (!parameters.empty() && parameters.back().otherwise) {
      throw Failure("a parameter without a default follows one with a default", line);
    }
    for (const Parameter& other : parameters) {
      if (other.name == parameter.name) {
        throw Failure(fmt::format("two parameters are named '{}'", other.name), line);
      }
    }
    parameters.push_back(std::move(parameter));
  }
  tokens_.expect_operator(")");
  return parameters;
}

bool Parser::has_parameter(const MacroDefinition& macro, const char* name) {
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.name == name) return true;
  }
  return false;
}

// Finds out which of the special names caller, kwargs and varargs the body uses.
std::shared_ptr<MacroDefinition> Parser::finish_macro(MacroDefinition macro, int line) {
  macro.uses_caller = reads_name(macro.body, "caller");
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.name == "caller" && macro.uses_caller && !parameter.otherwise) {
      throw Failure("the parameter 'caller' must be left out or have a default", line);
    }
  }
  macro.uses_named = reads_name(macro.body, "kwargs") && !has_parameter(macro, "kwargs");
  macro.uses_positional = reads_name(macro.body, "varargs") && !has_parameter(macro, "varargs");
  return std::make_shared<MacroDefinition>(std::move(macro));
}

Statement Parser::parse_macro(int line) {
  MacroDefinition macro;
  macro.name = expressions_.parse_assignable_name();
  macro.parameters = parse_parameters();
  const int outer_loops = std::exchange(loops_, 0);
  macro.body = parse_body("endmacro");
  loops_ = outer_loops;
  return {line, MacroStatement{finish_macro(std::move(macro), line)}};
}

Statement Parser::parse_call_block(int line) {
  MacroDefinition body;
  body.name = "caller";
  if (tokens_.current().is_operator("(")) body.parameters = parse_parameters();
  ExpressionPtr call = expressions_.parse();
  if (!std::holds_alternative<Call>(call->node)) {
    throw Failure("a call block needs the call of a macro", line);
  }
  const int outer_loops = std::exchange(loops_, 0);
  body.body = parse_body("endcall");
  loops_ = outer_loops;
  return {line, CallBlock{std::move(call), finish_macro(std::move(body), line)}};
}

Statement Parser::parse_filter_block(int line) {
  FilterBlock statement{expressions_.parse_filter_chain(), {}};
  statement.body = parse_body("endfilter");
  return {line, std::move(statement)};
}

Statement Parser::parse_with(int line) {
  With statement;
  while (tokens_.current().kind != TokenKind::kBlockEnd) {
    if (!statement.variables.empty()) tokens_.expect_operator(",");
    Target target = expressions_.parse_target();
    tokens_.expect_operator("=");
    statement.variables.emplace_back(std::move(target), expressions_.parse());
  }
  statement.body = parse_body("endwith");
  return {line, std::move(statement)};
}

Statement Parser::parse_generation(int line) {
  Generation statement;
  const int outer_loops = std::exchange(loops_, 0);
  statement.body = parse_body("endgeneration");
  loops_ = outer_loops;
  return {line, std::move(statement)};
}

Statement Parser::parse_loop_control(int line, bool is_break) {
  if (loops_ == 0) {
    throw Failure(fmt::format("'{}' outside of a loop", is_break ? "break" : "continue"), line);
  }
  if (is_break) return {line, Break{}};
  return {line, Continue{}};
}

void Parser::parse_print(int line, Block& block) {
  bool first = true;
  while (tokens_.current().kind != TokenKind::kBlockEnd) {
    if (!first) tokens_.expect_operator(",");
    first = false;
    block.push_back({line, Output{expressions_.parse()}});
  }
}

}  // namespace

TemplateTree parse_template(std::string_view source) {
  TemplateTree tree = Parser(source).run();
  find_unset_names(tree);
  return tree;
}

}  // namespace lagoon::text::jinja
