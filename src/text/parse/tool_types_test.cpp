#include "text/parse/tool_types.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "text/jinja/json.h"

namespace lagoon::text::parse {
namespace {

ToolTypes types_of(const std::string& tools) {
  return ToolTypes::from(jinja::parse_json(tools).value());
}

TEST(ToolTypes, WhatIsNotKnownIsOpen) {
  const ToolTypes none;
  EXPECT_FALSE(none.knows("f"));
  EXPECT_EQ(none.type_of("f", "x"), TypeSet::any());
  for (const char* odd :
       {"null", "5", "[]", "[5]", "[{}]", R"([{"name":5}])", R"([{"function":{}}])"}) {
    EXPECT_FALSE(types_of(odd).knows("f")) << odd;
  }
  for (const char* parameters :
       {"null", "5", "[]", "{}", R"({"properties":5})", R"({"properties":{"x":null}})",
        R"({"properties":{"x":{"type":5}}})", R"({"properties":{"x":{"type":"strange"}}})",
        R"({"properties":{"x":{"enum":[]}}})", R"({"properties":{"x":{"anyOf":[]}}})",
        R"({"properties":{"x":{"$ref":"#/nowhere"}}})",
        R"({"properties":{"x":{"$ref":"http://x"}}})",
        R"({"properties":{"x":{"$ref":"#/properties/x"}}})", R"({"$ref":"#"})"}) {
    const ToolTypes types =
        types_of(std::string(R"([{"name":"f","parameters":)") + parameters + "}]");
    EXPECT_TRUE(types.knows("f"));
    EXPECT_EQ(types.type_of("f", "x"), TypeSet::any()) << parameters;
  }
}

TEST(ToolTypes, OfTwoToolsWithOneNameTheFirst) {
  const ToolTypes types = types_of(
      R"([{"name":"f","parameters":{"properties":{"x":{"type":"string"}}}},{"name":"f"}])");
  EXPECT_EQ(types.type_of("f", "x"), TypeSet(TypeSet::kString));
}

TEST(ToolTypes, ReferencesIntoListsAndThroughObjects) {
  const ToolTypes types = types_of(
      R"([{"name":"f","parameters":{"$ref":"#/$defs/P","$defs":{"P":{"properties":{)"
      R"("x":{"$ref":"#/$defs/L/anyOf/1"}}},"L":{"anyOf":[{"type":"null"},{"type":"array"}]}}}}])");
  EXPECT_EQ(types.type_of("f", "x"), TypeSet(TypeSet::kArray));
}

// Each reference doubles what there is to look into; without a limit this would not end.
TEST(ToolTypes, ReferencesThatMultiplyAreBounded) {
  std::string defs = R"("d0":{"type":"string"})";
  for (int i = 1; i < 60; ++i) {
    const std::string before = fmt::format(R"({{"$ref":"#/$defs/d{}"}})", i - 1);
    defs += fmt::format(R"(,"d{}":{{"anyOf":[{},{}]}})", i, before, before);
  }
  std::string tools;
  for (int i = 0; i < 50; ++i) {
    tools += fmt::format(
        R"({}{{"name":"f{}","parameters":{{"properties":{{"x":{{"$ref":"#/$defs/d59"}}}},"$defs":{{{}}}}}}})",
        i > 0 ? "," : "", i, defs);
  }
  EXPECT_EQ(types_of("[" + tools + "]").type_of("f0", "x"), TypeSet::any());
}

// Many references to one long list: minutes, if each read it.
TEST(ToolTypes, ListsThatManyReferencesShareAreBounded) {
  const auto many = [](std::string_view item, int count) {
    std::string list(item);
    for (int i = 1; i < count; ++i) list.append(",").append(item);
    return "[" + list + "]";
  };
  const std::string references = many(R"({"$ref":"#/long"})", 100000);
  for (const std::string& list : {fmt::format(R"({{"enum":{}}})", many("0", 100000)),
                                  fmt::format(R"({{"type":{}}})", many("\"null\"", 100000))}) {
    const ToolTypes types = types_of(fmt::format(
        R"([{{"name":"f","parameters":{{"properties":{{"x":{{"anyOf":{}}}}},"long":{}}}}}])",
        references, list));
    EXPECT_EQ(types.type_of("f", "x"), TypeSet::any());
  }
}

}  // namespace
}  // namespace lagoon::text::parse
