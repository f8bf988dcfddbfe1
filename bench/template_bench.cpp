// How long a chat template takes over a long conversation: 401 messages, 27 tools, 0.9 MB of
// prompt, as an agent sends after hours of work (about 200,000 tokens).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "text/jinja/template.h"

namespace {

using namespace lagoon::text::jinja;

constexpr int kTurns =
    100;  // of four messages each: user, assistant with a call, result, assistant
constexpr int kTools = 27;
constexpr int kRounds = 15;

std::string code(size_t bytes) {
  std::string text;
  for (int line = 0; text.size() < bytes; ++line) {
    text += fmt::format("  if (value_{} < limit) {{ return \"größer\\t{}\"; }}\n", line, line * 7);
  }
  return text;
}

Dict message(const char* role, std::string content) {
  Dict made;
  made.set("role", role);
  made.set("content", std::move(content));
  return made;
}

List conversation() {
  List messages = {Value(message("system", code(4000)))};
  for (int turn = 0; turn < kTurns; ++turn) {
    messages.emplace_back(message("user", code(400)));
    Dict arguments;
    arguments.set("path", fmt::format("src/file_{}.cpp", turn));
    arguments.set("text", code(1500));
    arguments.set("lines", List{Value(turn), Value(turn + 40), Value(0.5)});
    Dict function;
    function.set("name", "edit_file");
    function.set("arguments", arguments);
    Dict call;
    call.set("type", "function");
    call.set("function", function);
    Dict assistant = message("assistant", "I change the file.");
    assistant.set("reasoning", code(1200));
    assistant.set("tool_calls", List{Value(call)});
    messages.emplace_back(assistant);
    messages.emplace_back(message("tool", code(4200)));
    messages.emplace_back(message("assistant", code(600)));
  }
  return messages;
}

List tools() {
  List all;
  for (int i = 0; i < kTools; ++i) {
    Dict properties;
    for (const char* name : {"path", "text", "lines", "recursive"}) {
      Dict property;
      property.set("type", "string");
      property.set("description", code(150));
      properties.set(name, property);
    }
    Dict parameters;
    parameters.set("type", "object");
    parameters.set("properties", properties);
    Dict function;
    function.set("name", fmt::format("tool_{}", i));
    function.set("description", code(800));
    function.set("parameters", parameters);
    Dict tool;
    tool.set("type", "function");
    tool.set("function", function);
    all.emplace_back(tool);
  }
  return all;
}

int measure(const std::filesystem::path& path, const Dict& variables) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream source;
  source << file.rdbuf();
  const auto parsed = Template::parse(source.str(), path.filename().string());
  if (!parsed.ok()) {
    fmt::print(stderr, "{}\n", parsed.error().message);
    return 1;
  }
  std::vector<double> milliseconds;
  size_t bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const auto text = parsed->render(variables);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    if (!text.ok()) {
      fmt::print(stderr, "{}\n", text.error().message);
      return 1;
    }
    bytes = text->size();
    milliseconds.push_back(taken.count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = milliseconds[kRounds / 2];
  fmt::print("{:28} {:9} {:12.2f} {:10.0f}\n", path.filename().string(), bytes, median,
             static_cast<double>(bytes) / 1e3 / median);
  return 0;
}

}  // namespace

int main() {
  const std::filesystem::path root = LAGOON_SOURCE_DIR;
  Dict variables;
  variables.set("messages", conversation());
  variables.set("tools", tools());
  variables.set("add_generation_prompt", true);
  variables.set("enable_thinking", true);
  fmt::print("{:28} {:>9} {:>12} {:>10}\n", "template", "bytes", "median ms", "MB/s");
  int failed = 0;
  for (const char* name : {"laguna_xs2.jinja", "laguna_xs21.jinja", "laguna_s21.jinja"}) {
    failed += measure(root / "tests/fixtures/templates" / name, variables);
  }
  failed += measure(root / "models/laguna-nano-nvfp4/chat_template.jinja", variables);
  return failed == 0 ? 0 : 1;
}
