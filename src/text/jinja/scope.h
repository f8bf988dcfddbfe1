// The variables of one block: the template, a loop's body, a macro's call ...
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace lagoon::text::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

  void set(std::string_view name, Value value) { slot(name) = std::move(value); }
  // The name is this block's and has no value yet: outer ones of the name are not seen.
  void declare(std::string_view name) { slot(name) = std::nullopt; }
  void clear() { variables_.clear(); }

  enum class Found { kNo, kUnset, kYes };
  // Looks in this block and outwards; `value` is set for kYes.
  Found find(std::string_view name, Value& value) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [key, held] : scope->variables_) {
        if (key != name) continue;
        if (!held) return Found::kUnset;
        value = *held;
        return Found::kYes;
      }
    }
    return Found::kNo;
  }
  const std::shared_ptr<Scope>& parent() const { return parent_; }

 private:
  std::optional<Value>& slot(std::string_view name) {
    for (auto& [key, held] : variables_) {
      if (key == name) return held;
    }
    return variables_.emplace_back(std::string(name), std::nullopt).second;
  }

  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, std::optional<Value>>> variables_;
};

}  // namespace lagoon::text::jinja
