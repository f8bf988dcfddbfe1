#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {

Runtime::~Runtime() {
  // Every kept scope is emptied while all still exist: chains of macros end here without recursion.
  for (const auto& scope : kept_scopes_) scope->clear();
  for (const auto& one : namespaces_) one->clear();
}

Value Runtime::new_namespace(Dict attributes) {
  budget.charge(attributes.size() + 1);
  namespaces_.push_back(std::make_unique<Namespace>(std::move(attributes)));
  // Owned above: the value only points to it.
  return std::shared_ptr<Object>(std::shared_ptr<Object>(), namespaces_.back().get());
}

Value Runtime::make_generator(List items, std::string type) {
  const Value list = make_list(std::move(items));
  return std::shared_ptr<Object>(std::make_shared<Generator>(std::move(type), list));
}

Value Runtime::make_group(Value grouper, Value list) {
  const Value items = make_tuple({std::move(grouper), std::move(list)});
  return budget.checked(Value(std::shared_ptr<Object>(std::make_shared<Group>(items))));
}

Value Runtime::make_text(std::string text) {
  budget.charge_text(text.size());
  return Value(std::move(text));
}

Value Runtime::make_text_like(std::string text, const Value& like) {
  budget.charge_text(text.size());
  return like.is_safe() ? Value::safe_string(std::move(text)) : Value(std::move(text));
}

}  // namespace lagoon::text::jinja
