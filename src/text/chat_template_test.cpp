#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "text/jinja/json.h"

namespace lagoon::text {
namespace {

using jinja::Dict;
using jinja::Value;
using testing::HasSubstr;

const std::filesystem::path kRoot = LAGOON_SOURCE_DIR;

Value read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  Result<Value> parsed = jinja::parse_json(text.str());
  EXPECT_TRUE(parsed.ok()) << path;
  return parsed.ok() ? *parsed : Value();
}

ChatTemplate bundled() {
  Result<ChatTemplate> loaded = ChatTemplate::load((kRoot / "models/laguna-nano-nvfp4").string());
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return std::move(loaded).value();
}

// Renders one golden case and compares it with the case's text.
void expect_golden(const ChatTemplate& chat, const Dict& one, bool add_generation_prompt) {
  Dict kwargs;
  kwargs.set("enable_thinking", *one.find("enable_thinking"));
  const auto text =
      chat.render(*one.find("messages"), *one.find("tools"), kwargs, add_generation_prompt);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, one.find("text")->string());
}

TEST(ChatTemplate, RendersGoldenConversations) {
  const ChatTemplate chat = bundled();
  const Value cases = read_json(kRoot / "tests/golden/chat_render.json");
  ASSERT_GT(cases.list().size(), 0U);
  for (const Value& one : cases.list()) expect_golden(chat, one.dict(), false);
}

TEST(ChatTemplate, RendersGoldenPrompts) {
  const ChatTemplate chat = bundled();
  const Value cases = read_json(kRoot / "tests/golden/cases.json");
  int chats = 0;
  for (const Value& one : cases.list()) {
    if (one.dict().find("kind")->string() != "chat") continue;
    expect_golden(chat, one.dict(), true);
    ++chats;
  }
  EXPECT_GT(chats, 0);
}

// A model directory of its own for each test.
class ChatTemplateFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("lagoon_chat_template_" + std::to_string(getpid()) + "_" + info->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const char* name, std::string_view text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  std::string render(const Dict& kwargs = {}) {
    const auto chat = ChatTemplate::load(directory_.string());
    if (!chat.ok()) return "error: " + chat.error().message;
    const auto text = chat->render(jinja::List(), jinja::Null{}, kwargs, true);
    return text.ok() ? *text : "error: " + text.error().message;
  }

  std::filesystem::path directory_;
};

TEST_F(ChatTemplateFiles, TemplateFileWinsOverConfig) {
  write("chat_template.jinja", "file");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(render(), "file");
}

TEST_F(ChatTemplateFiles, TemplateFromConfig) {
  write("tokenizer_config.json", R"({"chat_template": "{{ bos_token }}config"})");
  EXPECT_EQ(render(), "config");
}

// Where a model has no limit of its own, its tokenizer_config.json says so with 31 digits.
TEST_F(ChatTemplateFiles, ConfigWithALargeInteger) {
  write("tokenizer_config.json",
        R"({"model_max_length": 1000000000000000019884624838656, "chat_template": "config"})");
  EXPECT_EQ(render(), "config");
}

TEST_F(ChatTemplateFiles, NamedTemplates) {
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "default"}]})");
  EXPECT_EQ(render(), "default");
}

TEST_F(ChatTemplateFiles, SpecialTokens) {
  write("tokenizer_config.json",
        R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}, "pad_token": null,
            "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"})");
  EXPECT_EQ(render(), "<b><e>False");
}

TEST_F(ChatTemplateFiles, KeywordsWinOverDefaultsButNotOverMessages) {
  write("tokenizer_config.json",
        R"({"bos_token": "<b>", "chat_template":
            "{{ bos_token }}{{ add_generation_prompt }}{{ messages }}{{ tools }}{{ extra }}"})");
  EXPECT_EQ(render(), "<b>True[]None");
  Dict kwargs;
  kwargs.set("bos_token", "own");
  kwargs.set("add_generation_prompt", false);
  kwargs.set("messages", "replaced");
  kwargs.set("extra", 1);
  EXPECT_EQ(render(kwargs), "ownFalse[]None1");
}

TEST_F(ChatTemplateFiles, ErrorsNameTheFile) {
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json does not exist"));
  write("tokenizer_config.json", "{");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json is not valid JSON"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json is not a JSON object"));
  write("tokenizer_config.json", "{}");
  EXPECT_THAT(render(), HasSubstr("has no chat template"));
  write("tokenizer_config.json", R"({"bos_token": 1})");
  EXPECT_THAT(render(), HasSubstr("\"bos_token\" in"));
  write("tokenizer_config.json", R"({"chat_template": "\n{% if %}"})");
  EXPECT_THAT(render(), HasSubstr("tokenizer_config.json (chat_template):2: "));
  write("chat_template.jinja", "\n\n{{ missing.x }}");
  EXPECT_THAT(render(), testing::StrEq("error: chat template line 3: 'missing' is undefined"));
}

TEST_F(ChatTemplateFiles, SwitchesAreTrueOrFalse) {
  write("tokenizer_config.json", R"({"chat_template": "{{ enable_thinking }}{{ other }}"})");
  const auto with = [this](const char* name, Value value) {
    Dict kwargs;
    kwargs.set(name, std::move(value));
    return render(kwargs);
  };
  EXPECT_EQ(with("enable_thinking", false), "False");
  EXPECT_EQ(with("other", "text"), "text");
  for (const char* name :
       {"enable_thinking", "preserve_thinking", "thinking", "add_generation_prompt"}) {
    EXPECT_EQ(with(name, "false"), std::string("error: the template variable `") + name +
                                       "` has to be true or false, not \"false\"");
  }
  EXPECT_EQ(with("enable_thinking", jinja::Null{}),
            "error: the template variable `enable_thinking` has to be true or false, not null");
  EXPECT_EQ(with("enable_thinking", 1),
            "error: the template variable `enable_thinking` has to be true or false, not 1");
}

TEST_F(ChatTemplateFiles, RaiseExceptionIsTheWholeMessage) {
  write("tokenizer_config.json",
        R"({"chat_template": "{{ raise_exception('No user message.') }}"})");
  EXPECT_EQ(render(), "error: No user message.");
}

}  // namespace
}  // namespace lagoon::text
