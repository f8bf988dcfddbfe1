#include "text/jinja/symbols.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "text/jinja/ast_children.h"

namespace lagoon::text::jinja {
namespace {

// How a block comes by the first value of a name it mentions.
enum class Origin {
  kParameter,  // given on entry
  kOutside,    // looked up among the variables given to the template
  kOuter,      // from the block around it
  kUnset,
};

// The names of one block. Blocks of `if` share those of the block they stand in.
class Names {
 public:
  explicit Names(const Names* outer) : outer_(outer) {}

  void parameter(const std::string& name) {
    assigned_.insert(name);
    origins_[name] = Origin::kParameter;
  }
  void read(const std::string& name) {
    if (!knows(name)) origins_[name] = Origin::kOutside;
  }
  void assign(const std::string& name) {
    assigned_.insert(name);
    if (!origins_.contains(name)) {
      origins_[name] = outer_knows(name) ? Origin::kOuter : Origin::kUnset;
    }
  }
  // Takes over what the branches of an `if`, copies of this, have added. A name that only some of
  // them assign may keep its outer value.
  void merge(const std::vector<Names>& branches) {
    std::map<std::string, size_t> assigned_in;
    for (const Names& branch : branches) {
      for (const std::string& name : branch.assigned_) {
        if (!assigned_.contains(name)) ++assigned_in[name];
      }
    }
    for (const Names& branch : branches) {
      for (const auto& [name, origin] : branch.origins_) origins_[name] = origin;
      assigned_.insert(branch.assigned_.begin(), branch.assigned_.end());
    }
    for (const auto& [name, count] : assigned_in) {
      if (count == branches.size()) continue;
      origins_[name] = outer_knows(name) ? Origin::kOuter : Origin::kOutside;
    }
  }
  UnsetNames unset() const {
    UnsetNames names;
    for (const auto& [name, origin] : origins_) {
      if (origin == Origin::kUnset) names.push_back(name);
    }
    return names;
  }

 private:
  bool knows(const std::string& name) const { return origins_.contains(name) || outer_knows(name); }
  bool outer_knows(const std::string& name) const {
    return outer_ != nullptr && outer_->knows(name);
  }

  const Names* outer_;
  std::map<std::string, Origin> origins_;
  std::set<std::string> assigned_;
};

void read_all(const Expression& expression, Names& names) {
  if (const auto* name = std::get_if<Name>(&expression.node)) names.read(name->name);
  visit_children(expression, [&](const Expression& child) { read_all(child, names); });
}

void read_all(const ExpressionPtr& expression, Names& names) {
  if (expression) read_all(*expression, names);
}

void assign(const Target& target, Names& names, bool as_parameter) {
  switch (target.kind) {
    case Target::Kind::kName:
      if (as_parameter) {
        names.parameter(target.name);
      } else {
        names.assign(target.name);
      }
      break;
    case Target::Kind::kAttribute:
      names.read(target.name);
      break;
    case Target::Kind::kTuple:
      for (const Target& part : target.parts) assign(part, names, as_parameter);
      break;
  }
}

// Records what a block's statements read and assign, without entering blocks of their own.
struct Recorder {
  Names& names;

  void record(const Block& block) const {
    for (const Statement& statement : block) std::visit(*this, statement.node);
  }

  void operator()(const Text&) const {}
  void operator()(const Output& output) const { read_all(output.value, names); }
  void operator()(const If& statement) const;
  void operator()(const For& loop) const { read_all(loop.iterable, names); }
  void operator()(const Assignment& assignment) const {
    read_all(assignment.value, names);
    assign(assignment.target, names, false);
  }
  void operator()(const BlockAssignment& assignment) const {
    assign(assignment.target, names, false);
  }
  void operator()(const MacroStatement& statement) const { names.assign(statement.macro->name); }
  void operator()(const CallBlock& block) const { read_all(block.call, names); }
  void operator()(const FilterBlock& block) const { read_all(block.filter, names); }
  void operator()(const With& with) const {
    for (const auto& [target, value] : with.variables) read_all(value, names);
  }
  void operator()(const Generation&) const {}
  void operator()(const Do& statement) const { read_all(statement.expression, names); }
  void operator()(const Break&) const {}
  void operator()(const Continue&) const {}
};

// Three branches, as Jinja2 counts them: the first, all elif ones together, and else.
void Recorder::operator()(const If& statement) const {
  read_all(statement.branches[0].first, names);
  std::vector<Names> branches(3, names);
  Recorder{branches[0]}.record(statement.branches[0].second);
  for (size_t i = 1; i < statement.branches.size(); ++i) {
    read_all(statement.branches[i].first, branches[1]);
    std::vector<Names> inner(3, branches[1]);
    Recorder{inner[0]}.record(statement.branches[i].second);
    branches[1].merge(inner);
  }
  Recorder{branches[2]}.record(statement.otherwise);
  names.merge(branches);
}

// Visits the blocks with names of their own and fills their `unset`.
struct Filler {
  const Names& outer;

  void fill(Block& block) const {
    for (Statement& statement : block) std::visit(*this, statement.node);
  }
  // A block that starts with the names `inner`.
  UnsetNames enter(Names inner, Block& block) const {
    Recorder{inner}.record(block);
    Filler{inner}.fill(block);
    return inner.unset();
  }

  template <typename Other>
  void operator()(Other&) const {}
  void operator()(If& statement) const {
    for (auto& [condition, block] : statement.branches) fill(block);
    fill(statement.otherwise);
  }
  void operator()(For& loop) const {
    Names inner(&outer);
    if (loop.uses_loop) inner.parameter("loop");
    assign(loop.target, inner, true);
    loop.unset_in_body = enter(std::move(inner), loop.body);
    loop.unset_in_otherwise = enter(Names(&outer), loop.otherwise);
  }
  void operator()(BlockAssignment& assignment) const {
    assignment.unset = enter(Names(&outer), assignment.body);
  }
  void operator()(MacroStatement& statement) const { enter_macro(*statement.macro); }
  void operator()(CallBlock& block) const { enter_macro(*block.body); }
  void operator()(FilterBlock& block) const { block.unset = enter(Names(&outer), block.body); }
  void operator()(With& with) const {
    Names inner(&outer);
    for (const auto& [target, value] : with.variables) assign(target, inner, true);
    with.unset = enter(std::move(inner), with.body);
  }
  void operator()(Generation& generation) const {
    generation.unset = enter(Names(&outer), generation.body);
  }

  void enter_macro(MacroDefinition& macro) const {
    Names inner(&outer);
    for (const Parameter& parameter : macro.parameters) inner.parameter(parameter.name);
    if (macro.uses_caller) inner.parameter("caller");
    if (macro.uses_named) inner.parameter("kwargs");
    if (macro.uses_positional) inner.parameter("varargs");
    for (const Parameter& parameter : macro.parameters) read_all(parameter.otherwise, inner);
    macro.unset = enter(std::move(inner), macro.body);
  }
};

bool reads(const Expression& expression, std::string_view name) {
  const auto* found = std::get_if<Name>(&expression.node);
  bool read = found != nullptr && found->name == name;
  visit_children(expression, [&](const Expression& child) { read = read || reads(child, name); });
  return read;
}

bool reads(const ExpressionPtr& expression, std::string_view name) {
  return expression && reads(*expression, name);
}

// Whether a statement reads the name, inner blocks included.
struct Reads {
  std::string_view name;

  bool in(const Block& block) const { return reads_name(block, name); }
  bool in(const MacroDefinition& macro) const {
    return in(macro.body) ||
           std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](const Parameter& p) { return reads(p.otherwise, name); });
  }

  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
  bool operator()(const Output& output) const { return reads(output.value, name); }
  bool operator()(const Do& statement) const { return reads(statement.expression, name); }
  bool operator()(const If& statement) const {
    return in(statement.otherwise) ||
           std::any_of(statement.branches.begin(), statement.branches.end(),
                       [&](const auto& b) { return reads(b.first, name) || in(b.second); });
  }
  bool operator()(const For& loop) const {
    return reads(loop.iterable, name) || reads(loop.condition, name) || in(loop.body) ||
           in(loop.otherwise);
  }
  bool operator()(const Assignment& assignment) const { return reads(assignment.value, name); }
  bool operator()(const BlockAssignment& assignment) const {
    return reads(assignment.filter, name) || in(assignment.body);
  }
  bool operator()(const MacroStatement& statement) const { return in(*statement.macro); }
  bool operator()(const CallBlock& block) const {
    return reads(block.call, name) || in(*block.body);
  }
  bool operator()(const FilterBlock& block) const {
    return reads(block.filter, name) || in(block.body);
  }
  bool operator()(const With& with) const {
    return in(with.body) || std::any_of(with.variables.begin(), with.variables.end(),
                                        [&](const auto& v) { return reads(v.second, name); });
  }
  bool operator()(const Generation& generation) const { return in(generation.body); }
};

// Whether a statement assigns to the name, inner blocks included.
struct Assigns {
  std::string_view name;

  bool in(const Block& block) const { return assigns_name(block, name); }

  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
  bool operator()(const If& statement) const {
    return in(statement.otherwise) ||
           std::any_of(statement.branches.begin(), statement.branches.end(),
                       [&](const auto& branch) { return in(branch.second); });
  }
  bool operator()(const For& loop) const {
    return assigns_name(loop.target, name) || in(loop.body) || in(loop.otherwise);
  }
  bool operator()(const Assignment& assignment) const {
    return assigns_name(assignment.target, name);
  }
  bool operator()(const BlockAssignment& assignment) const {
    return assigns_name(assignment.target, name) || in(assignment.body);
  }
  bool operator()(const MacroStatement& statement) const { return in(statement.macro->body); }
  bool operator()(const CallBlock& block) const { return in(block.body->body); }
  bool operator()(const FilterBlock& block) const { return in(block.body); }
  bool operator()(const With& with) const { return in(with.body); }
  bool operator()(const Generation& generation) const { return in(generation.body); }
};

}  // namespace

void find_unset_names(TemplateTree& tree) {
  Names names(nullptr);
  Recorder{names}.record(tree.body);
  Filler{names}.fill(tree.body);
  tree.unset = names.unset();
}

bool reads_name(const Block& block, std::string_view name) {
  const Reads reader{name};
  return std::any_of(block.begin(), block.end(),
                     [&](const Statement& s) { return std::visit(reader, s.node); });
}

bool assigns_name(const Target& target, std::string_view name) {
  if (target.kind == Target::Kind::kName) return target.name == name;
  return std::any_of(target.parts.begin(), target.parts.end(),
                     [&](const Target& part) { return assigns_name(part, name); });
}

bool assigns_name(const Block& block, std::string_view name) {
  const Assigns assigner{name};
  return std::any_of(block.begin(), block.end(),
                     [&](const Statement& s) { return std::visit(assigner, s.node); });
}

}  // namespace lagoon::text::jinja
