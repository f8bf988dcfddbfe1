#include "text/jinja/null_notes.h"

#include <fmt/core.h>

#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

// "message.content", "messages[0]"; "" for what has no such name.
std::string path_of(const Expression& expression) {
  if (const auto* name = std::get_if<Name>(&expression.node)) return name->name;
  if (const auto* access = std::get_if<AttributeAccess>(&expression.node)) {
    const std::string object = path_of(*access->object);
    return object.empty() ? object : object + "." + access->name;
  }
  const auto* access = std::get_if<ItemAccess>(&expression.node);
  const auto* key = access != nullptr ? std::get_if<Literal>(&access->key->node) : nullptr;
  if (key == nullptr) return "";
  const std::string object = path_of(*access->object);
  if (object.empty()) return {};
  if (key->value.is_int()) return fmt::format("{}[{}]", object, key->value.integer());
  if (key->value.is_string()) {
    return fmt::format("{}[{}]", object, repr_string(key->value.string()));
  }
  return "";
}

}  // namespace

std::string null_note(std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.expression == nullptr) continue;
    const bool is_undefined = operand.value->is_undefined();
    if (!operand.value->is_null() && !is_undefined) continue;
    if (is_undefined && std::holds_alternative<Name>(operand.expression->node)) continue;
    const std::string path = path_of(*operand.expression);
    if (!path.empty()) return fmt::format(" ({} is {})", path, is_undefined ? "undefined" : "null");
  }
  return "";
}

Failure with_null_note(const Failure& failure, std::initializer_list<Operand> operands) {
  const std::string& message = failure.message();
  if (message.ends_with(" is null)") || message.ends_with(" is undefined)")) return failure;
  return Failure(message + null_note(operands), failure.line());
}

}  // namespace lagoon::text::jinja
