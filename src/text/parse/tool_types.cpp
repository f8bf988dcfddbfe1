#include "text/parse/tool_types.h"

#include <charconv>
#include <optional>
#include <utility>

namespace lagoon::text::parse {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

// Far more than real tools need: what is looked at for one request (schemas, the values of their
// lists, the parts of their references), how deep schemas lie in each other, bytes of a reference.
constexpr size_t kMostSteps = 200000;
constexpr int kMaxDepth = 32;
constexpr size_t kMaxReference = 512;

TypeSet type_named(std::string_view name) {
  if (name == "string") return TypeSet::kString;
  if (name == "null") return TypeSet::kNull;
  if (name == "boolean") return TypeSet::kBoolean;
  if (name == "integer") return TypeSet::kInteger;
  if (name == "number") return TypeSet::kNumber;
  if (name == "array") return TypeSet::kArray;
  if (name == "object") return TypeSet::kObject;
  return TypeSet::any();
}

TypeSet type_of_value(const Value& value) {
  if (value.is_null()) return TypeSet::kNull;
  if (value.is_bool()) return TypeSet::kBoolean;
  if (value.is_int()) return TypeSet::kInteger;
  if (value.is_float()) return TypeSet::kNumber;
  if (value.is_string()) return TypeSet::kString;
  if (value.is_list()) return TypeSet::kArray;
  if (value.is_dict()) return TypeSet::kObject;
  return TypeSet::any();
}

const Dict* dict_at(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value != nullptr && value->is_dict() ? &value->dict() : nullptr;
}

const List* list_at(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value != nullptr && value->is_list() ? &value->list() : nullptr;
}

const std::string* string_at(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value != nullptr && value->is_string() ? &value->string() : nullptr;
}

// "~1" is "/" and "~0" is "~" in a JSON pointer (RFC 6901).
std::string pointer_key(std::string_view token) {
  std::string key;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      key += token[++i] == '0' ? '~' : '/';
    } else {
      key += token[i];
    }
  }
  return key;
}

const Value* item_at(const List& list, std::string_view token) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), index);
  const bool number = error == std::errc() && end == token.data() + token.size();
  return number && index < list.size() ? &list[index] : nullptr;
}

}  // namespace

// Reads the parameters of one tool.
class ToolTypes::Reader {
 public:
  // What is looked at is taken from `steps_left`.
  Reader(const Value& root, Tool& tool, size_t& steps_left)
      : root_(root), tool_(tool), steps_left_(steps_left) {}

  void run() { read_object(root_, 0); }

 private:
  // False where there are not so many left.
  bool spend(size_t steps) {
    const bool enough = steps <= steps_left_;
    steps_left_ = enough ? steps_left_ - steps : 0;
    return enough;
  }

  // What "#/a/b" points to in the parameters' schema.
  const Value* target(std::string_view reference) {
    if (!reference.starts_with('#') || reference.size() > kMaxReference) return nullptr;
    reference.remove_prefix(1);
    const Value* at = &root_;
    while (!reference.empty()) {
      if (reference.front() != '/' || !spend(1)) return nullptr;
      reference.remove_prefix(1);
      const std::string_view token = reference.substr(0, reference.find('/'));
      reference.remove_prefix(token.size());
      if (at->is_dict()) {
        at = at->dict().find(pointer_key(token));
      } else if (at->is_list()) {
        at = item_at(at->list(), token);
      } else {
        return nullptr;
      }
      if (at == nullptr) return nullptr;
    }
    return at;
  }

  // Parameters of an object's schema, of what it refers to and of its allOf. Those found first
  // stay.
  void read_object(const Value& schema, int depth) {
    if (!schema.is_dict() || depth >= kMaxDepth || !spend(1)) return;
    const Dict& dict = schema.dict();
    if (const Dict* properties = dict_at(dict, "properties")) {
      for (const auto& [name, property] : properties->items()) {
        tool_.parameters.emplace(name, types(property, 0));
      }
    }
    const Value* others = dict.find("additionalProperties");
    if (others != nullptr && others->is_dict()) tool_.others = types(*others, 0);
    if (const std::string* reference = string_at(dict, "$ref")) {
      if (const Value* found = target(*reference)) read_object(*found, depth + 1);
    }
    if (const List* parts = list_at(dict, "allOf")) {
      for (const Value& part : *parts) read_object(part, depth + 1);
    }
  }

  TypeSet types(const Value& schema, int depth) {
    if (!schema.is_dict() || depth >= kMaxDepth || !spend(1)) return TypeSet::any();
    const Dict& dict = schema.dict();
    TypeSet found = stated(dict, depth);
    const Value* nullable = dict.find("nullable");
    if (nullable != nullptr && nullable->is_bool() && nullable->boolean()) {
      found = found | TypeSet::kNull;
    }
    return found;
  }

  TypeSet stated(const Dict& dict, int depth) {
    if (const std::string* name = string_at(dict, "type")) return type_named(*name);
    if (const List* names = list_at(dict, "type")) return union_of_names(*names);
    if (const List* values = list_at(dict, "enum")) return union_of_values(*values);
    if (const Value* value = dict.find("const")) return type_of_value(*value);
    for (const char* key : {"anyOf", "oneOf"}) {
      if (const List* choices = list_at(dict, key)) return union_of_schemas(*choices, depth);
    }
    if (const std::string* reference = string_at(dict, "$ref")) {
      const Value* found = target(*reference);
      return found != nullptr ? types(*found, depth + 1) : TypeSet::any();
    }
    if (const List* parts = list_at(dict, "allOf")) return first_stated(*parts, depth);
    if (dict.find("properties") != nullptr) return TypeSet::kObject;
    return TypeSet::any();
  }

  TypeSet union_of_names(const List& names) {
    if (!spend(names.size())) return TypeSet::any();
    TypeSet all;
    for (const Value& name : names) {
      all = all | (name.is_string() ? type_named(name.string()) : TypeSet::any());
    }
    return all.empty() ? TypeSet::any() : all;
  }

  TypeSet union_of_values(const List& values) {
    if (!spend(values.size())) return TypeSet::any();
    TypeSet all;
    for (const Value& value : values) all = all | type_of_value(value);
    return all.empty() ? TypeSet::any() : all;
  }

  TypeSet union_of_schemas(const List& choices, int depth) {
    TypeSet all;
    for (const Value& choice : choices) all = all | types(choice, depth + 1);
    return all.empty() ? TypeSet::any() : all;
  }

  // All parts of an allOf hold, so the first that says anything decides.
  TypeSet first_stated(const List& parts, int depth) {
    for (const Value& part : parts) {
      const TypeSet found = types(part, depth + 1);
      if (found != TypeSet::any()) return found;
    }
    return TypeSet::any();
  }

  const Value& root_;
  Tool& tool_;
  size_t& steps_left_;
};

ToolTypes ToolTypes::from(const Value& tools) {
  ToolTypes result;
  size_t steps_left = kMostSteps;
  if (!tools.is_list()) return result;
  for (const Value& item : tools.list()) {
    if (!item.is_dict()) continue;
    const Dict* function = dict_at(item.dict(), "function");
    if (function == nullptr) function = &item.dict();
    const std::string* name = string_at(*function, "name");
    if (name == nullptr) continue;
    const auto [at, is_new] = result.tools_.try_emplace(*name);
    if (!is_new) continue;  // of two with one name the first
    const Value* parameters = function->find("parameters");
    if (parameters == nullptr) parameters = function->find("input_schema");
    if (parameters != nullptr) Reader(*parameters, at->second, steps_left).run();
  }
  return result;
}

bool ToolTypes::knows(std::string_view tool) const {
  return tools_.find(tool) != tools_.end();
}

TypeSet ToolTypes::type_of(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return TypeSet::any();
  const auto type = found->second.parameters.find(parameter);
  return type != found->second.parameters.end() ? type->second : found->second.others;
}

}  // namespace lagoon::text::parse
