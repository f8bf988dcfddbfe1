#include "api/json.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

namespace lagoon::api {
namespace {

using ::testing::HasSubstr;

std::string error(const std::string& text) {
  const auto parsed = parse_json(text);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(ParseJson, HalvesOfASurrogatePairAreReplacementCharacters) {
  const auto parsed = [](const char* text) { return parse_json(text).value().get<std::string>(); };
  EXPECT_EQ(parsed(R"("cut \ud83d")"), "cut \uFFFD");
  EXPECT_EQ(parsed(R"("\ude00\ud83d\uDE00\ud83d\ud83d")"), "\uFFFD\U0001F600\uFFFD\uFFFD");
  EXPECT_EQ(parsed(R"("\\ud83d \ud83d\n")"), "\\ud83d \uFFFD\n");
  for (const char* text : {R"("\ud83)", R"("\ud83d)", R"("\u-123")", R"(["\ud83d",])", "\"\\"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
}

TEST(ParseJson, KeepsValuesAndTheOrderOfKeys) {
  const std::string text =
      R"({"z":1,"a":[true,null,-2,1.5,{"b":{}},[]],"m":"\u00e9\ud83d\ude00","big":18446744073709551615})";
  const auto parsed = parse_json(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(dump(*parsed),
            "{\"z\":1,\"a\":[true,null,-2,1.5,{\"b\":{}},[]],\"m\":\"\u00e9\U0001F600\",\"big\":"
            "18446744073709551615}");
}

TEST(ParseJson, TheLastOfARepeatedKeyStands) {
  EXPECT_EQ(dump(*parse_json(R"({"a":1,"b":2,"a":{"c":3}})")), R"({"a":{"c":3},"b":2})");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "{\"a\"}", "[1,]", "{\"a\":1,}", "nul", "1 2", "'a'",
                           "\"\n\"", "NaN", "1e999", "// c\n1", "\"\\x\"", "{\"a\":01}"}) {
    EXPECT_NE(error(text), "") << text;
  }
  EXPECT_NE(error("\"\xff\""), "");
  EXPECT_NE(error("\"\xc0\xaf\""), "");
  EXPECT_NE(error("\"\xed\xa0\x80\""), "");
}

TEST(ParseJson, LimitsDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(error(nested(kMaxJsonDepth)), "");
  EXPECT_THAT(error(nested(kMaxJsonDepth + 1)), HasSubstr("nested more than 64 deep"));
  EXPECT_NE(error(std::string(1'000'000, '[')), "");
}

TEST(ParseJson, LimitsKeysAndStaysLinear) {
  const auto object = [](size_t keys) {
    std::string text = "{";
    for (size_t i = 0; i < keys; ++i) text += fmt::format("{}\"k{}\":0", i > 0 ? "," : "", i);
    return text + "}";
  };
  EXPECT_EQ(error(object(kMaxJsonKeys)), "");
  EXPECT_THAT(error(object(kMaxJsonKeys + 1)), HasSubstr("more than 1024 keys"));

  // Looking each key up among those before it would take 32 times as long for as many keys in
  // objects of 32 times the size.
  const auto seconds = [&](size_t objects, size_t keys) {
    std::string text = "[" + object(keys);
    for (size_t i = 1; i < objects; ++i) text += "," + object(keys);
    text += "]";
    const std::clock_t start = std::clock();
    EXPECT_EQ(error(text), "");
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  EXPECT_LT(seconds(100, kMaxJsonKeys), 8 * seconds(3200, kMaxJsonKeys / 32));
}

TEST(ParseJson, LimitsValues) {
  std::string text = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_THAT(error(text + "]"), HasSubstr("more than"));
}

TEST(ToValue, KeepsKinds) {
  const auto value = to_value(*parse_json(R"({"a":[1,1.0,"x",true,null,{}],"b":9e99})"));
  const auto& list = value.dict().find("a")->list();
  EXPECT_TRUE(list[0].is_int());
  EXPECT_TRUE(list[1].is_float());
  EXPECT_EQ(list[2].string(), "x");
  EXPECT_TRUE(list[3].boolean());
  EXPECT_TRUE(list[4].is_null());
  EXPECT_TRUE(list[5].is_dict());
  EXPECT_TRUE(value.dict().find("b")->is_float());
}

TEST(ToValue, KeepsTheDigitsOfIntegers) {
  for (const char* digits : {"0", "9223372036854775807", "9223372036854775808",
                             "18446744073709551615", "-9223372036854775808"}) {
    EXPECT_EQ(text::jinja::to_json(to_value(*parse_json(digits))), digits);
  }
}

TEST(JsonString, Escapes) {
  EXPECT_EQ(json_string("a\"b\\c\n\r\t\x01\x7f"), "\"a\\\"b\\\\c\\n\\r\\t\\u0001\x7f\"");
  EXPECT_EQ(json_string("h\u00e9 \u4e2d \U0001F600"), "\"h\u00e9 \u4e2d \U0001F600\"");
  EXPECT_EQ(json_string("a\xff\xc3"), "\"a\uFFFD\uFFFD\"");
  EXPECT_EQ(json_string("\xed\xa0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");
  for (int c = 0; c < 256; ++c) {
    const std::string text(1, static_cast<char>(c));
    const auto back = parse_json(json_string(text));
    ASSERT_TRUE(back.ok()) << c;
    if (c < 128) {
      EXPECT_EQ(back->get<std::string>(), text);
    }
  }
}

}  // namespace
}  // namespace lagoon::api
