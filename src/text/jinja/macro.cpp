#include "text/jinja/macro.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

// Takes the named argument out of the call; nothing where it was not given.
std::optional<Value> take_named(Arguments& arguments, const std::string& name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  if (found == arguments.named.end()) return std::nullopt;
  std::optional<Value> value(std::move(found->second));
  arguments.named.erase(found);
  return value;
}

void bind_caller(const MacroDefinition& macro, Arguments& arguments, Scope& scope) {
  const bool is_parameter =
      std::any_of(macro.parameters.begin(), macro.parameters.end(),
                  [](const Parameter& parameter) { return parameter.name == "caller"; });
  if (!macro.uses_caller || is_parameter) return;
  std::optional<Value> caller = take_named(arguments, "caller");
  if (!caller || caller->is_null()) caller = Value(Undefined{"caller", "No caller defined"});
  scope.set("caller", *std::move(caller));
}

void bind_rest(Runtime& runtime, const MacroDefinition& macro, Arguments& arguments, Scope& scope) {
  if (macro.uses_named) {
    Dict named;
    for (auto& [name, value] : arguments.named) named.set(name, std::move(value));
    scope.set("kwargs", runtime.make_dict(std::move(named)));
  } else if (!arguments.named.empty()) {
    throw Failure(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name,
                              arguments.named.front().first));
  }
  const size_t count = macro.parameters.size();
  if (macro.uses_positional) {
    List rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    scope.set("varargs", runtime.make_tuple(std::move(rest)));
  } else if (arguments.positional.size() > count) {
    throw Failure(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  }
}

}  // namespace

std::string Macro::repr(Budget&) const {
  return fmt::format("<Macro '{}'>", definition_->name);
}

std::optional<Value> Macro::attribute(std::string_view name) {
  if (name == "name") return Value(definition_->name);
  if (name == "catch_kwargs") return Value(definition_->uses_named);
  if (name == "catch_varargs") return Value(definition_->uses_positional);
  if (name == "caller") return Value(definition_->uses_caller);
  if (name != "arguments") return std::nullopt;
  List names;
  for (const Parameter& parameter : definition_->parameters) names.emplace_back(parameter.name);
  return Value::tuple(std::move(names));
}

Value Macro::call(Runtime& runtime, Arguments& arguments) {
  const Nested nested(runtime.budget);
  return interpreter_.call_macro(*definition_, closure_, arguments);
}

std::string Interpreter::call_macro(const MacroDefinition& macro,
                                    const std::shared_ptr<Scope>& closure, Arguments& arguments) {
  runtime_.budget.charge(1 + macro.parameters.size());
  const auto scope = std::make_shared<Scope>(closure);
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(arguments, parameter.name);
    }
    if (value) {
      scope->set(parameter.name, *std::move(value));
    } else {
      scope->declare(parameter.name);
      missing.push_back(&parameter);
    }
  }
  bind_caller(macro, arguments, *scope);
  bind_rest(runtime_, macro, arguments, *scope);
  for (const std::string& name : macro.unset) scope->declare(name);
  // Defaults are worked out in the macro's own block and may use the parameters before them.
  for (const Parameter* parameter : missing) {
    if (parameter->otherwise) {
      scope->set(parameter->name, evaluate(*parameter->otherwise, scope));
    } else {
      scope->set(parameter->name, Undefined{parameter->name, "parameter '" + parameter->name +
                                                                 "' was not provided"});
    }
  }
  return capture(macro.body, scope);
}

}  // namespace lagoon::text::jinja
