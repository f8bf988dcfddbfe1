// A macro as a value, bound to the block it was defined in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace lagoon::text::jinja {

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, std::shared_ptr<const MacroDefinition> definition,
        std::shared_ptr<Scope> closure)
      : Object(0),
        interpreter_(interpreter),
        definition_(std::move(definition)),
        closure_(std::move(closure)) {}
  std::string type_name() const override { return "Macro"; }
  std::string described_type() const override { return "jinja2.runtime.Macro object"; }
  std::string repr(Budget& budget) const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Runtime& runtime, Arguments& arguments) override;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<const MacroDefinition> definition_;
  std::shared_ptr<Scope> closure_;
};

}  // namespace lagoon::text::jinja
