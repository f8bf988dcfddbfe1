#include "text/jinja/interpreter.h"

#include <fmt/core.h>

#include "text/jinja/error.h"
#include "text/jinja/macro.h"
#include "text/jinja/null_notes.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"

namespace lagoon::text::jinja {

// Executes one statement.
struct Executor {
  using Flow = Interpreter::Flow;
  Interpreter& in;
  const std::shared_ptr<Scope>& scope;
  int line;

  Flow operator()(const Text& text) const {
    append_text(in.runtime_.budget, *in.out_, text.text);
    return Flow::kNext;
  }
  Flow operator()(const Output& output) const {
    in.write(in.evaluate(*output.value, scope));
    return Flow::kNext;
  }
  Flow operator()(const If& statement) const {
    for (const auto& [condition, block] : statement.branches) {
      if (in.evaluate(*condition, scope).truthy()) return in.execute(block, scope);
    }
    return in.execute(statement.otherwise, scope);
  }
  Flow operator()(const For& loop) const {
    return in.run_loop(loop, in.evaluate(*loop.iterable, scope), 0, scope);
  }
  Flow operator()(const Assignment& assignment) const {
    in.assign(assignment.target, in.evaluate(*assignment.value, scope), scope);
    return Flow::kNext;
  }
  Flow operator()(const BlockAssignment& assignment) const;
  Flow operator()(const MacroStatement& statement) const {
    scope->set(statement.macro->name, in.make_macro(statement.macro, scope));
    return Flow::kNext;
  }
  Flow operator()(const CallBlock& block) const;
  Flow operator()(const FilterBlock& block) const;
  Flow operator()(const With& with) const;
  Flow operator()(const Generation& generation) const {
    return in.run_inner(generation.body, generation.unset, scope);
  }
  Flow operator()(const Do& statement) const {
    in.evaluate(*statement.expression, scope);
    return Flow::kNext;
  }
  Flow operator()(const Break&) const { return Flow::kBreak; }
  Flow operator()(const Continue&) const { return Flow::kContinue; }

 private:
  std::shared_ptr<Scope> inner_scope(const UnsetNames& unset) const {
    auto inner = std::make_shared<Scope>(scope);
    for (const std::string& name : unset) inner->declare(name);
    return inner;
  }
};

List Interpreter::loop_items(const For& loop, const Value& iterable, const ScopePointer& scope) {
  List items = iterate(runtime_, iterable);
  if (!loop.condition) return items;
  List accepted;
  const auto inner = std::make_shared<Scope>(scope);
  for (Value& item : items) {
    inner->clear();
    assign(loop.target, item, inner);
    if (evaluate(*loop.condition, inner).truthy()) accepted.push_back(std::move(item));
  }
  return accepted;
}

std::shared_ptr<Loop> Interpreter::make_loop(const For& loop, const List& items, int depth,
                                             const ScopePointer& scope) {
  if (!loop.uses_loop) return nullptr;
  Loop::Repeat repeat;
  if (loop.is_recursive) {
    // The loop may be called when its block has ended: the scope lives as long as the rendering.
    runtime_.keep(scope);
    repeat = [this, &loop, scope](const Value& iterable, int deeper) {
      std::string text;
      std::string* const outer = std::exchange(out_, &text);
      run_loop(loop, iterable, deeper, scope);
      out_ = outer;
      return runtime_.make_text(std::move(text));
    };
  }
  return std::make_shared<Loop>(Value(items), depth, std::move(repeat));
}

Interpreter::Flow Interpreter::run_loop(const For& loop, const Value& iterable, int depth,
                                        const ScopePointer& scope) {
  const int line = loop.line;
  runtime_.line = line;
  const List items = naming_null({{loop.iterable.get(), &iterable}},
                                 [&] { return loop_items(loop, iterable, scope); });
  const std::shared_ptr<Loop> state = make_loop(loop, items, depth, scope);
  // One scope for all rounds: a macro that kept it sees the round that is running, as in Jinja2.
  const auto inner = std::make_shared<Scope>(scope);
  // As in Jinja2, "else" also runs where every round ended by break or continue.
  bool completed = false;
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < items.size() && flow != Flow::kBreak; ++i) {
    inner->clear();
    for (const std::string& name : loop.unset_in_body) inner->declare(name);
    if (state) {
      state->advance(i);
      inner->set("loop", Value(std::shared_ptr<Object>(state)));
    }
    runtime_.line = line;
    runtime_.budget.charge(1);
    assign(loop.target, items[i], inner);
    flow = execute(loop.body, inner);
    completed = completed || flow == Flow::kNext;
  }
  if (state) state->finish();
  if (completed || loop.otherwise.empty()) return Flow::kNext;
  return run_inner(loop.otherwise, loop.unset_in_otherwise, scope);
}

Executor::Flow Executor::operator()(const BlockAssignment& assignment) const {
  Flow flow = Flow::kNext;
  Value value =
      in.runtime_.make_text(in.capture(assignment.body, inner_scope(assignment.unset), &flow));
  if (flow != Flow::kNext) return flow;
  if (assignment.filter) value = in.apply_filters(*assignment.filter, std::move(value), scope);
  in.assign(assignment.target, value, scope);
  return Flow::kNext;
}

Executor::Flow Executor::operator()(const CallBlock& block) const {
  const auto& call_node = std::get<Call>(block.call->node);
  const Value callee = in.evaluate(*call_node.callee, scope);
  Arguments arguments = in.evaluate_arguments(call_node.arguments, scope);
  arguments.named.emplace_back("caller", in.make_macro(block.body, scope));
  in.runtime_.line = line;
  in.write(call(in.runtime_, callee, std::move(arguments)));
  return Flow::kNext;
}

Executor::Flow Executor::operator()(const FilterBlock& block) const {
  Flow flow = Flow::kNext;
  const auto inner = inner_scope(block.unset);
  Value value = in.runtime_.make_text(in.capture(block.body, inner, &flow));
  if (flow != Flow::kNext) return flow;
  in.write(in.apply_filters(*block.filter, std::move(value), inner));
  return Flow::kNext;
}

Executor::Flow Executor::operator()(const With& with) const {
  const auto inner = inner_scope(with.unset);
  for (const auto& [target, value] : with.variables) {
    in.assign(target, in.evaluate(*value, scope), inner);
  }
  return in.execute(with.body, inner);
}

std::string Interpreter::render(const TemplateTree& tree) {
  const auto scope = std::make_shared<Scope>(nullptr);
  for (const std::string& name : tree.unset) scope->declare(name);
  return capture(tree.body, scope);
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePointer& scope) {
  const Nested nested(runtime_.budget);
  for (const Statement& statement : block) {
    runtime_.budget.charge(1);
    runtime_.line = statement.line;
    const Flow flow = std::visit(Executor{*this, scope, statement.line}, statement.node);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_inner(const Block& block, const UnsetNames& unset,
                                         const ScopePointer& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const std::string& name : unset) inner->declare(name);
  return execute(block, inner);
}

std::string Interpreter::capture(const Block& block, const ScopePointer& scope, Flow* flow) {
  // Failures end the rendering, so nothing need be restored after one.
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Flow ended = execute(block, scope);
  out_ = outer;
  if (flow != nullptr) *flow = ended;
  return text;
}

void Interpreter::write(const Value& value) {
  append_text(runtime_.budget, *out_, to_text(runtime_.budget, value));
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePointer& scope) {
  if (target.kind == Target::Kind::kName) {
    scope->set(target.name, value);
  } else if (target.kind == Target::Kind::kTuple) {
    unpack(target, value, scope);
  } else {
    const Value held = look_up(target.name, scope);
    auto* space = held.is_object() ? dynamic_cast<Namespace*>(held.object().get()) : nullptr;
    if (space == nullptr) throw Failure("cannot assign attribute on non-namespace object");
    space->set(target.attribute, value);
  }
}

void Interpreter::unpack(const Target& target, const Value& value, const ScopePointer& scope) {
  if (!is_iterable(value)) {
    throw Failure(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
  }
  const List items = iterate(runtime_, value);
  const size_t wanted = target.parts.size();
  if (items.size() < wanted) {
    throw Failure(
        fmt::format("not enough values to unpack (expected {}, got {})", wanted, items.size()));
  }
  if (items.size() > wanted) {
    throw Failure(fmt::format("too many values to unpack (expected {})", wanted));
  }
  for (size_t i = 0; i < wanted; ++i) assign(target.parts[i], items[i], scope);
}

Value Interpreter::make_macro(const std::shared_ptr<MacroDefinition>& macro,
                              const ScopePointer& scope) {
  runtime_.budget.charge(1);
  runtime_.keep(scope);
  return std::shared_ptr<Object>(std::make_shared<Macro>(*this, macro, scope));
}

}  // namespace lagoon::text::jinja
