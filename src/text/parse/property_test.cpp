// Random outputs: in pieces as a whole, arguments always JSON, tags in text as tags that are
// tokens.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "text/jinja/json.h"
#include "text/parse/outcome.h"

namespace lagoon::text::parse {
namespace {

std::shared_ptr<const ToolTypes> tools() {
  const auto list = jinja::parse_json(
      R"([{"name":"f","parameters":{"properties":{"s":{"type":"string"},"i":{"type":"integer"},)"
      R"("n":{"type":["string","null"]},"m":{"type":["string","object"]},"a":{}}}},{"name":"g"}])");
  return std::make_shared<const ToolTypes>(ToolTypes::from(*list));
}

constexpr std::array<std::string_view, 64> kFragments = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<tool_call>f\n",
    "<tool_call>g",
    "<tool_call>f<arg_key>s</arg_key><arg_value>",
    "<arg_key>i</arg_key>\n<arg_value>",
    "<arg_key>n</arg_key><arg_value>",
    "<arg_key>m</arg_key><arg_value>",
    "</arg_value>\n</tool_call>",
    "<tool_",
    "call>",
    "</arg_",
    "value>",
    "</think",
    "<",
    "</",
    ">",
    "f",
    "g\n",
    "s",
    "i",
    "n",
    "\n",
    " ",
    "\t\r\n",
    "null",
    "nul",
    "true",
    "True",
    "None",
    "12",
    "-1.5e3",
    "{\"a\": [1, \"x\"]}",
    "{\"a\":",
    "[1, ",
    "]",
    "}",
    "'it''s'",
    "(1, 'a',)",
    "{'k': None}",
    "\"q\"",
    "\\",
    "\\u00e9",
    "\\ud83d",
    "\"",
    "'",
    "\xC3\xA9",
    "\xE6\xBC\xA2",
    "\xF0\x9F\x98\x80",
    "\xF0\x9F",
    "\x98\x80",
    "\xFF",
    "\xC3",
    "word ",
    "a b c",
    "</arg_valu",
    std::string_view("\0", 1),
    "\x1B"};

std::string random_output(std::mt19937& random) {
  std::string text;
  const size_t count = random() % 40;
  for (size_t i = 0; i < count; ++i) text += kFragments[random() % kFragments.size()];
  return text;
}

// nlohmann reads the arguments too.
void expect_objects(const Outcome& outcome, std::string_view text) {
  for (const Event& event : outcome.events) {
    if (event.kind != Event::Kind::kArguments) continue;
    const auto parsed = nlohmann::json::parse(event.text, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << event.text << "\n" << text;
  }
}

TEST(OutputProperty, PiecesAreTheWhole) {
  const auto known = tools();
  const TagSet four = TagSet::of(Tag::kThink, Tag::kEndThink, Tag::kToolCall, Tag::kEndToolCall);
  std::mt19937 random(20261130);
  int calls = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_output(random);
    Output output{.in_reasoning = random() % 2 == 0,
                  .tools = random() % 8 == 0 ? nullptr : known,
                  .tokens = {},
                  .text = text};
    const Outcome expected = outcome_of(output, "");
    expect_objects(expected, text);
    calls += expected.ending.calls;
    for (const TagSet tokens : {TagSet(), four, TagSet::all()}) {
      output.tokens = tokens;
      ASSERT_EQ(describe(outcome_of(output, "")), describe(expected)) << text;
      std::string sizes(1 + random() % 4, '\0');
      for (char& size : sizes) size = static_cast<char>(1 + random() % 9);
      ASSERT_EQ(find_problem(output, sizes), "") << text;
    }
  }
  EXPECT_GT(calls, 10000);
}

// Quadratic time would take minutes here.
TEST(OutputProperty, HostileOutputsTakeLinearTime) {
  const auto known = tools();
  const std::string open = "<tool_call>f<arg_key>s</arg_key><arg_value>";
  const auto many = [](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  bool in_reasoning = false;
  for (const std::string& text : {
           open + many("x", 1 << 20),
           open + many("</tool_call>", 1 << 20),
           open + many("</tool_call>\n", 1 << 20) + many(" ", 1 << 20),
           open + many("</arg_valu", 1 << 20),
           open + many("<", 1 << 20),
           many("<tool_call>", 1 << 21),
           many("<tool_call>f", 1 << 20),
           many("<tool_call>g\n</tool_call>", 1 << 20),
           many(" ", 1 << 20) + "<tool_call>" + many(" ", 1 << 20),
           many("<tool_call> ", 1 << 20),
           "<tool_call>" + many("n", 1 << 20),
           "<tool_call>f<arg_key>" + many("k", 1 << 20),
           "<tool_call>f" + many("<arg_key>k</arg_key><arg_value>1</arg_value>", 1 << 20),
           "<tool_call>f<arg_key>i</arg_key><arg_value>" + many("[", 1 << 20),
           "<tool_call>f<arg_key>i</arg_key><arg_value>[" + many("[],", 1 << 20) + "[]]",
           "<tool_call>f<arg_key>i</arg_key><arg_value>" + many("'a' ", 1 << 20),
           "<tool_call>f<arg_key>i</arg_key><arg_value>" + many("9", 1 << 20),
           "<tool_call>f<arg_key>i</arg_key><arg_value>" + many("(", 99) + many("1,", 1 << 20),
           "<tool_call>f<arg_key>n</arg_key><arg_value>" + many(" ", 1 << 20),
           many("\xF0\x9F", 1 << 20),
       }) {
    in_reasoning = !in_reasoning;
    const Output output{.in_reasoning = in_reasoning, .tools = known, .tokens = {}, .text = text};
    EXPECT_EQ(find_problem(output, "\1"), "");
  }
}

}  // namespace
}  // namespace lagoon::text::parse
