// Renders chat templates for tools/compare_templates.py. Lines of JSON on standard input:
// {"template": SOURCE} sets the template, {"context": {...}} renders it with these variables. Each
// context gives one line: {"output": TEXT}, or {"error": MESSAGE, "raised": whether the template
// itself raised it}.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace {

using lagoon::Result;
using lagoon::text::jinja::Dict;
using lagoon::text::jinja::parse_json;
using lagoon::text::jinja::Template;
using lagoon::text::jinja::to_json;
using lagoon::text::jinja::Value;

Dict rendered(const std::optional<Result<Template>>& parsed, const Value& context) {
  Dict answer;
  const auto fail = [&](const std::string& message, bool raised) {
    answer.set("error", message);
    answer.set("raised", raised);
    return answer;
  };
  if (!parsed) return fail("no template was given", false);
  if (!parsed->ok()) return fail(parsed->error().message, false);
  if (!context.is_dict()) return fail("the context is not an object", false);
  const auto text = (*parsed)->render(context.dict());
  if (!text.ok()) {
    const std::string& message = text.error().message;
    return fail(message, !message.starts_with("chat template line "));
  }
  answer.set("output", *text);
  return answer;
}

}  // namespace

int main() {
  std::optional<Result<Template>> parsed;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<Value> read = parse_json(line);
    if (!read.ok() || !read->is_dict()) {
      std::cerr << "not an object: " << line << '\n';
      return 1;
    }
    if (const Value* source = read->dict().find("template")) {
      parsed.emplace(Template::parse(source->string(), "template"));
    } else if (const Value* context = read->dict().find("context")) {
      std::cout << to_json(rendered(parsed, *context)) << '\n';
    }
  }
  return 0;
}
