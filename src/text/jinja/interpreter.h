// Walks the syntax tree and writes the output. One interpreter renders once.
#pragma once

#include <memory>
#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {

class Interpreter {
 public:
  // Both must outlive it.
  Interpreter(Runtime& runtime, const Dict& variables) : runtime_(runtime), variables_(variables) {}

  // Throws Failure; runtime.line is then the line being worked on.
  std::string render(const TemplateTree& tree);

  // The text that a macro's body gives; uses up the arguments. `closure`: the block the macro
  // stands in.
  std::string call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                         Arguments& arguments);

 private:
  friend struct Evaluator;
  friend struct Executor;
  using ScopePointer = std::shared_ptr<Scope>;
  // What a statement asks of the loop around it.
  enum class Flow { kNext, kBreak, kContinue };

  // interpreter.cpp
  Flow execute(const Block& block, const ScopePointer& scope);
  // `depth`: how many calls of a recursive loop are around.
  Flow run_loop(const For& loop, const Value& iterable, int depth, const ScopePointer& scope);
  List loop_items(const For& loop, const Value& iterable, const ScopePointer& scope);
  std::shared_ptr<Loop> make_loop(const For& loop, const List& items, int depth,
                                  const ScopePointer& scope);
  Flow run_inner(const Block& block, const UnsetNames& unset, const ScopePointer& scope);
  // The output of a block, and its flow where asked for.
  std::string capture(const Block& block, const ScopePointer& scope, Flow* flow = nullptr);
  void assign(const Target& target, const Value& value, const ScopePointer& scope);
  void unpack(const Target& target, const Value& value, const ScopePointer& scope);
  void write(const Value& value);
  Value make_macro(const std::shared_ptr<MacroDefinition>& macro, const ScopePointer& scope);

  // evaluator.cpp
  Value evaluate(const Expression& expression, const ScopePointer& scope);
  Value evaluate_or_null(const ExpressionPtr& expression, const ScopePointer& scope);
  Value apply_filters(const Expression& chain, Value input, const ScopePointer& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, const ScopePointer& scope);
  Value look_up(const std::string& name, const ScopePointer& scope);

  Runtime& runtime_;
  const Dict& variables_;
  std::string* out_ = nullptr;
};

}  // namespace lagoon::text::jinja
