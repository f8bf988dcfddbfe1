#include "text/jinja/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/error.h"

namespace lagoon::text::jinja {
namespace {

TEST(Json, RoundTrips) {
  for (const char* text :
       {"null", "true", "-5", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
        "1000000000000000019884624838656", "-1000000000000000019884624838656", "0.1", "1e+16",
        "-0.0", "\"a\\\"\\\\\\n\\t\\b\\f\\r\\u0001é😀/\"", "[]", "{}", "[1, [2, {\"a\": []}]]",
        "{\"z\": 1, \"a\": 2, \"\": null}"}) {
    const auto parsed = parse_json(text);
    ASSERT_TRUE(parsed.ok()) << text << parsed.error().message;
    EXPECT_EQ(to_json(*parsed), text);
  }
}

TEST(Json, ReadsNumbers) {
  EXPECT_TRUE(parse_json("1")->is_int());
  EXPECT_TRUE(parse_json("1.0")->is_float());
  EXPECT_TRUE(parse_json("-0")->is_int());
  EXPECT_TRUE(parse_json("9223372036854775808")->is_big_integer());
  EXPECT_EQ(to_json(*parse_json("[1e400, -1e400, 1e-400]")), "[Infinity, -Infinity, 0.0]");
}

TEST(Json, TheLastOfEqualKeysWins) {
  EXPECT_EQ(to_json(*parse_json(R"({"a": 1, "b": 2, "a": 3})")), R"({"a": 3, "b": 2})");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"",
                           "{",
                           "[1,]",
                           "nul",
                           "1 2",
                           "\"\xff\"",
                           "'a'",
                           "NaN",
                           "[1",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "+1",
                           "[1 2]",
                           "{\"a\" 1}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "\"a",
                           "\"\\x\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\u12\"",
                           "\"\n\"",
                           "true false",
                           "tru",
                           "\xef\xbb\xbf[]",
                           "]"}) {
    const auto parsed = parse_json(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.error().message, testing::StartsWith("not valid JSON: ")) << text;
  }
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_FALSE(parse_json(deep).ok());
}

TEST(Json, WritesAsPython) {
  Budget budget;
  Dict dict;
  dict.set("b", List{Value(1), Value("é😀")});
  dict.set("a", Dict());
  JsonFormat format;
  format.ensure_ascii = true;
  EXPECT_EQ(dump_json(budget, dict, format), R"({"b": [1, "\u00e9\ud83d\ude00"], "a": {}})");
  format.sort_keys = true;
  format.indent = "  ";
  format.item_separator = ',';
  EXPECT_EQ(dump_json(budget, dict, format),
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    \"\\u00e9\\ud83d\\ude00\"\n  ]\n}");
  EXPECT_THROW(dump_json(budget, Value(Undefined{"x"}), {}), Failure);
}

}  // namespace
}  // namespace lagoon::text::jinja
