// The state of one rendering, shared by the interpreter and the built-ins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/objects.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : budget(limits) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Namespaces and the scopes that macros keep may refer to themselves, so the runtime owns them
  // and empties them at the end.
  Value new_namespace(Dict attributes);
  void keep(std::shared_ptr<Scope> scope) { kept_scopes_.push_back(std::move(scope)); }

  // A list, tuple or string that a built-in made, charged and checked for depth.
  Value make_list(List items) { return budget.checked(Value(std::move(items))); }
  Value make_tuple(List items) { return budget.checked(Value::tuple(std::move(items))); }
  Value make_dict(Dict items) { return budget.checked(Value(std::move(items))); }
  Value make_generator(List items, std::string type = "generator");
  // What the filter groupby gives for one group.
  Value make_group(Value grouper, Value list);
  Value make_text(std::string text);
  // As make_text, and safe where `like` is a safe string.
  Value make_text_like(std::string text, const Value& like);

  Budget budget;
  int line = 0;  // of the node being evaluated, for errors

 private:
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
};

}  // namespace lagoon::text::jinja
