// Holds the readers to what Python's json and ast make of tests/cases/parse/literals.json
// (tools/make_literal_cases.py).
#include "text/parse/literal.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace lagoon::text::parse {
namespace {

using Json = nlohmann::ordered_json;

// Of keys that are one in JSON, as 1 and "1", Python keeps both and readers the last.
std::string normal(const std::string& json) {
  return Json::parse(json).dump();
}

TEST(Literal, AsPythonReadsThem) {
  std::ifstream file(LAGOON_SOURCE_DIR "/tests/cases/parse/literals.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 500U);
  for (const Json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const auto json = read_json(text);
    const auto python = read_python(text);
    if (one["kind"].is_null()) {
      EXPECT_FALSE(json) << text << " gives " << json->json;
      EXPECT_FALSE(python) << text << " gives " << python->json;
      continue;
    }
    const auto expected = one["json"].get<std::string>();
    const bool is_json = one["kind"] == "json";
    EXPECT_EQ(json.has_value(), is_json) << text;
    const auto& got = is_json ? json : python;
    EXPECT_TRUE(got) << text;
    if (!got) continue;
    EXPECT_EQ(normal(got->json), normal(expected)) << text;
  }
}

TEST(Literal, Types) {
  const std::pair<const char*, TypeSet> cases[] = {
      {"1", TypeSet::kInteger},    {"-0", TypeSet::kInteger},   {"1.0", TypeSet::kNumber},
      {"1e2", TypeSet::kNumber},   {"true", TypeSet::kBoolean}, {"null", TypeSet::kNull},
      {"\"a\"", TypeSet::kString}, {"[]", TypeSet::kArray},     {" {} ", TypeSet::kObject},
  };
  for (const auto& [text, type] : cases) EXPECT_EQ(read_json(text)->type, type) << text;
  EXPECT_EQ(read_python("(1, 2)")->type, TypeSet(TypeSet::kArray));
  EXPECT_EQ(read_python("1, 2")->type, TypeSet(TypeSet::kArray));
  EXPECT_EQ(read_python("(1)")->type, TypeSet(TypeSet::kInteger));
  EXPECT_EQ(read_python("True")->type, TypeSet(TypeSet::kBoolean));
  EXPECT_EQ(read_python("0x10")->json, "16");
}

TEST(Literal, DepthIsLimited) {
  const auto nested = [](int depth, char open, char close) {
    const auto n = static_cast<size_t>(depth);
    return std::string(n, open) + (open == '(' ? "1," : "") + std::string(n, close);
  };
  EXPECT_TRUE(read_json(nested(kMaxLiteralDepth, '[', ']')));
  EXPECT_FALSE(read_json(nested(kMaxLiteralDepth + 1, '[', ']')));
  EXPECT_TRUE(read_python(nested(kMaxLiteralDepth, '(', ')')));
  EXPECT_FALSE(read_python(nested(kMaxLiteralDepth + 1, '(', ')')));
  EXPECT_FALSE(read_json(nested(1000000, '[', ']')));
  EXPECT_FALSE(read_python(nested(1000000, '(', ')')));
}

}  // namespace
}  // namespace lagoon::text::parse
