// Holds the interpreter to what Jinja2 gave for tests/cases/jinja (tools/compare_jinja.py) and
// tests/cases/templates (tools/compare_templates.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/jinja/json.h"
#include "text/jinja/template.h"

namespace lagoon::text::jinja {
namespace {

const std::filesystem::path kTests = std::filesystem::path(LAGOON_SOURCE_DIR) / "tests";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string text_at(const Dict& dict, std::string_view key) {
  const Value* value = dict.find(key);
  return value != nullptr && value->is_string() ? value->string() : std::string();
}

// What the template gives, or "error: " and the message.
Result<std::string> outcome(const std::string& source, const Dict& context) {
  LAGOON_ASSIGN(const Template parsed, Template::parse(source, "case"));
  return parsed.render(context);
}

// What follows "chat template line N: ", without Lagoon's own note of what is null.
std::string without_note(std::string message) {
  const std::string place = "chat template line ";
  const size_t colon = message.find(": ");
  if (message.starts_with(place) && colon != std::string::npos) message.erase(0, colon + 2);
  if (message.ends_with(" is null)") || message.ends_with(" is undefined)")) {
    message.resize(message.rfind(" ("));
  }
  return message;
}

void check_error(const Dict& expected, const Result<std::string>& got) {
  const std::string type = text_at(expected, "type");
  const std::string message = text_at(expected, "message");
  ASSERT_FALSE(got.ok()) << "Jinja2 raises " << type << ": " << message << "\nLagoon gives "
                         << *got;
  if (type == "TemplateError") {
    EXPECT_EQ(got.error().message, message);  // raise_exception: the message and nothing else
  } else if (type == "UndefinedError" || type == "SecurityError") {
    EXPECT_EQ(without_note(got.error().message), message);
  }
}

class Cases : public testing::TestWithParam<std::string> {};

TEST_P(Cases, AsJinja2) {
  const Result<Value> file = parse_json(read_file(kTests / "cases" / GetParam()));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Dict& data = file->dict();
  std::string shared;
  if (data.find("template_file") != nullptr) {
    shared = read_file(kTests / "fixtures/templates" / text_at(data, "template_file"));
  }
  const List& cases = data.find("cases")->list();
  EXPECT_FALSE(cases.empty());
  for (const Value& item : cases) {
    const Dict& one = item.dict();
    SCOPED_TRACE(text_at(one, "name") + ": " + text_at(one, "template"));
    Dict context = data.find("context") != nullptr ? data.find("context")->dict() : Dict();
    if (const Value* more = one.find("context")) {
      for (const auto& [key, value] : more->dict().items()) context.set(key, value);
    }
    const Value* source = one.find("template");
    const auto got = outcome(source != nullptr ? source->string() : shared, context);
    if (const Value* error = one.find("error")) {
      check_error(error->dict(), got);
    } else {
      ASSERT_NE(one.find("output"), nullptr) << "no stored output: run tools/compare_jinja.py";
      EXPECT_TRUE(got.ok()) << got.error().message;
      if (got.ok()) {
        EXPECT_EQ(*got, text_at(one, "output"));
      }
    }
  }
}

std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const std::string folder : {"jinja", "templates"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kTests / "cases" / folder)) {
      if (entry.path().extension() != ".json") continue;
      names.push_back(folder + "/" + entry.path().filename().string());
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Jinja, Cases, testing::ValuesIn(case_files()), [](const auto& file) {
  std::string name = std::filesystem::path(file.param).replace_extension().string();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace lagoon::text::jinja
