#include "text/parse/token_parser.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/jinja/json.h"
#include "text/parse/outcome.h"
#include "text/stop_matcher.h"

namespace lagoon::text::parse {
namespace {

const Tokenizer& bundled() {
  static const auto kTokenizer =
      Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json").value();
  return *kTokenizer;
}

// The bundled tokenizer with some of its added tokens changed by `edit`.
std::unique_ptr<Tokenizer> edited(const char* name, const auto& edit) {
  std::ifstream stream(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json");
  nlohmann::json file = nlohmann::json::parse(stream);
  edit(file);
  const std::string path = testing::TempDir() + "/" + name + "_tokenizer.json";
  std::ofstream(path) << file.dump();
  return Tokenizer::load(path).value();
}

// Without <think> ... <arg_value> as tokens: they are text.
std::unique_ptr<Tokenizer> without_tags() {
  return edited("no_tags", [](nlohmann::json& file) {
    for (auto& token : file["added_tokens"]) {
      const int id = token["id"];
      if (id < 6 || id > 13) continue;
      const auto content = token["content"].get<std::string>();
      const auto other = "<unused" + std::to_string(id) + ">";
      token["content"] = other;
      file["model"]["vocab"].erase(content);
      file["model"]["vocab"][other] = id;
    }
  });
}

bool in_reasoning(const Tokenizer& tokenizer, std::string_view prompt) {
  return begins_in_reasoning(tokenizer, tokenizer.encode(prompt));
}

TEST(BeginsInReasoning, ThePromptSaysSo) {
  const auto no_tags = without_tags();
  for (const Tokenizer* tokenizer : {&bundled(), static_cast<const Tokenizer*>(no_tags.get())}) {
    EXPECT_TRUE(in_reasoning(*tokenizer, "<user>a</user>\n<assistant><think>"));
    EXPECT_TRUE(in_reasoning(*tokenizer, "<assistant></think>b</assistant><assistant><think>so"));
    EXPECT_FALSE(in_reasoning(*tokenizer, "<assistant></think>"));
    EXPECT_FALSE(in_reasoning(*tokenizer, "<assistant><think>a</think>b"));
    EXPECT_FALSE(in_reasoning(*tokenizer, "<user><think></user><assistant>"));
    EXPECT_TRUE(in_reasoning(*tokenizer, "no turn <think>"));
    EXPECT_FALSE(in_reasoning(*tokenizer, "no turn"));
    EXPECT_FALSE(in_reasoning(*tokenizer, ""));
  }
}

std::shared_ptr<const ToolTypes> tools() {
  const auto list =
      jinja::parse_json(R"([{"name":"f","parameters":{"properties":{"s":{"type":"string"}}}}])");
  return std::make_shared<const ToolTypes>(ToolTypes::from(*list));
}

struct Generated {
  std::string prompt = "<assistant>";
  std::string output = {};
  std::vector<std::string> stops = {};
  bool skip_special = true;
};

// As the engine does it: text behind a detokenizer and stop strings, `step` tokens at a time.
std::string run(const Tokenizer& tokenizer, const Generated& one, size_t step,
                int* reasoning = nullptr) {
  TokenParser parser(tokenizer, tokenizer.encode(one.prompt), tools(), one.skip_special);
  Detokenizer detokenizer(tokenizer, one.skip_special);
  StopMatcher stops(one.stops);
  Outcome outcome;
  std::vector<Event> events;
  size_t count = 0;
  for (const int32_t token : tokenizer.encode(one.output)) {
    parser.push(token, stops.push(detokenizer.push(token)), events);
    if (++count % step == 0) {
      add_events(outcome, events);
      events.clear();
    }
    if (stops.matched()) break;
  }
  std::string tail = stops.push(detokenizer.finish());
  tail += stops.finish();
  outcome.ending = parser.finish(tail, events);
  add_events(outcome, events);
  if (reasoning != nullptr) *reasoning = parser.reasoning_tokens();
  return describe(outcome);
}

std::string run(const Generated& one) {
  const std::string expected = run(bundled(), one, 1000);
  for (const size_t step : {1, 2, 3, 7}) EXPECT_EQ(run(bundled(), one, step), expected) << step;
  // The same where the tags are text, but for the tokens that a stop string may cut in two.
  const auto no_tags = without_tags();
  EXPECT_EQ(run(*no_tags, one, 1), expected);
  return expected;
}

constexpr const char* kCall =
    "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>One, two.</arg_value>\n</tool_call>";

TEST(TokenParser, StopStringsCutTheTextWithItsTags) {
  EXPECT_EQ(run({.output = kCall, .stops = {}}), "call f\n  {\"s\": \"One, two.\"}\n");
  EXPECT_EQ(run({.output = kCall, .stops = {", t"}}), "call f\n  {\"s\": \"One\"}\nopen call\n");
  EXPECT_EQ(run({.output = kCall, .stops = {"never"}}), "call f\n  {\"s\": \"One, two.\"}\n");
  // Across tags.
  EXPECT_EQ(run({.output = kCall, .stops = {"two.</arg"}}),
            "call f\n  {\"s\": \"One, \"}\nopen call\n");
  EXPECT_EQ(run({.output = kCall, .stops = {"key>\n<arg_v"}}), "call f\n  {}\nopen call\n");
  EXPECT_EQ(run({.output = kCall, .stops = {"\n</tool_call>"}}),
            "call f\n  {\"s\": \"One, two.\"}\nopen call\n");
  EXPECT_EQ(run({.output = kCall, .stops = {"f\n"}}), "content \"<tool_call>\"\n");
  EXPECT_EQ(run({.output = std::string("A") + kCall, .stops = {"<tool"}}), "content \"A\"\n");
  // In two: what is left of a tag is text.
  EXPECT_EQ(run({.output = std::string("A") + kCall, .stops = {"l_call>"}}), "content \"A<too\"\n");
}

TEST(TokenParser, StopStringsCutReasoning) {
  const Generated thinking{
      .prompt = "<assistant><think>", .output = "First, then.</think>After, that.", .stops = {}};
  Generated stopped = thinking;
  EXPECT_EQ(run(thinking), "reasoning \"First, then.\"\ncontent \"After, that.\"\n");
  stopped.stops = {", then"};
  EXPECT_EQ(run(stopped), "reasoning \"First\"\nopen reasoning\n");
  stopped.stops = {"n.</think>A"};
  EXPECT_EQ(run(stopped), "reasoning \"First, the\"\nopen reasoning\n");
  stopped.stops = {", that"};
  EXPECT_EQ(run(stopped), "reasoning \"First, then.\"\ncontent \"After\"\n");
}

TEST(TokenParser, ReasoningTokensAreCounted) {
  int count = 0;
  const std::string thoughts = "First, then.";
  for (const size_t step : {1, 4}) {
    run(bundled(), {.prompt = "<assistant><think>", .output = thoughts + "</think>After."}, step,
        &count);
    EXPECT_EQ(count, static_cast<int>(bundled().encode(thoughts).size()));
  }
  run(bundled(), {.prompt = "<assistant></think>", .output = thoughts}, 1, &count);
  EXPECT_EQ(count, 0);
}

// A vocabulary may mark its tags as special: their text is skipped, and they still count.
TEST(TokenParser, TagsWithoutText) {
  const auto special = edited("special_tags", [](nlohmann::json& file) {
    for (auto& token : file["added_tokens"]) token["special"] = true;
  });
  for (const size_t step : {1, 3, 1000}) {
    const std::string expected =
        "reasoning \"Hm\"\ncontent \"A \"\ncall f\n  {\"s\": \"One, two.\"}\n";
    Generated thinking{.prompt = "<assistant><think>",
                       .output = std::string("Hm</think>A ") + kCall,
                       .stops = {"never"}};
    EXPECT_EQ(run(*special, thinking, step), expected);
    thinking.skip_special = false;
    EXPECT_EQ(run(*special, thinking, step), expected);
  }
}

// Spelled by other tokens, a tag that the vocabulary has is text.
TEST(TokenParser, SpelledTagsAreText) {
  TokenParser parser(bundled(), bundled().encode("<assistant><think>"), tools(), true);
  Outcome outcome;
  std::vector<Event> events;
  for (const char* piece : {"a</", "think>", "b", "<tool_call", ">f\n"}) {
    for (const int32_t token : bundled().encode(piece)) {
      parser.push(token, bundled().token_bytes(token), events);
    }
  }
  outcome.ending = parser.finish("", events);
  add_events(outcome, events);
  EXPECT_EQ(describe(outcome), "reasoning \"a</think>b<tool_call>f\\n\"\nopen reasoning\n");
}

}  // namespace
}  // namespace lagoon::text::parse
