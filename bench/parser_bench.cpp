// How fast outputs are taken apart: reasoning, content and calls, as text and as tokens.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/json.h"
#include "text/parse/token_parser.h"

namespace {

using namespace lagoon::text;
using namespace lagoon::text::parse;
using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 4 << 20;
constexpr int kRepetitions = 5;

std::shared_ptr<const ToolTypes> tools() {
  const auto list = jinja::parse_json(
      R"([{"name":"write_file","parameters":{"properties":{"path":{"type":"string"},)"
      R"("content":{"type":"string"}}}},{"name":"add","parameters":{"properties":{)"
      R"("a":{"type":"integer"},"b":{"type":"integer"}}}},)"
      R"({"name":"plot","parameters":{"properties":{"points":{"type":"array"}}}}])");
  return std::make_shared<const ToolTypes>(ToolTypes::from(list.value()));
}

std::string repeated(std::string_view unit) {
  std::string text;
  while (text.size() < kBytes) text += unit;
  return text;
}

double best_seconds(const auto& run) {
  double best = 1e9;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// Events are taken after every piece, as a stream sends them.
double text_seconds(const std::string& output, size_t piece) {
  return best_seconds([&] {
    OutputParser parser({.in_reasoning = false, .tools = tools(), .tokens = {}});
    std::vector<Event> events;
    for (size_t at = 0; at < output.size(); at += piece) {
      parser.text(std::string_view(output).substr(at, piece), events);
      events.clear();
    }
    parser.finish(events);
  });
}

double token_seconds(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  Detokenizer detokenizer(tokenizer);
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const int32_t token : tokens) texts.push_back(detokenizer.push(token));
  return best_seconds([&] {
    TokenParser parser(tokenizer, {}, tools(), true);
    std::vector<Event> events;
    for (size_t i = 0; i < tokens.size(); ++i) {
      parser.push(tokens[i], texts[i], events);
      events.clear();
    }
    parser.finish("", events);
  });
}

}  // namespace

int main() {
  const auto loaded = Tokenizer::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json");
  if (!loaded.ok()) {
    fmt::print(stderr, "{}\n", loaded.error().message);
    return 1;
  }
  const Tokenizer& tokenizer = **loaded;
  const std::string code = "  for (int i = 0; i < n; ++i) out[i] = \"\\t\" + names[i];  // é\n\n";
  const std::string call =
      "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>b</arg_key>\n"
      "<arg_value>30</arg_value>\n</tool_call>\n";
  struct Row {
    const char* name;
    std::string output;
  };
  const Row rows[] = {
      {"content", repeated("Some words of an answer, and a comparison: a < b.\n")},
      {"a file as a string", "<tool_call>write_file\n<arg_key>content</arg_key>\n<arg_value>" +
                                 repeated(code) + "</arg_value>\n</tool_call>"},
      {"a list of numbers", "<tool_call>plot\n<arg_key>points</arg_key>\n<arg_value>[" +
                                repeated("[1, 2.5], ") + "[]]</arg_value>\n</tool_call>"},
      {"many calls", repeated(call)},
      {"opening tags", repeated("<tool_call>")},
  };
  fmt::print("{:<20} {:>12} {:>14} {:>18}\n", "4 MiB of", "whole, MB/s", "4 bytes, MB/s",
             "tokens, million/s");
  for (const Row& row : rows) {
    const double megabytes = static_cast<double>(row.output.size()) / 1e6;
    const auto tokens = tokenizer.encode(row.output);
    fmt::print("{:<20} {:>12.0f} {:>14.0f} {:>18.1f}\n", row.name,
               megabytes / text_seconds(row.output, row.output.size()),
               megabytes / text_seconds(row.output, 4),
               static_cast<double>(tokens.size()) / 1e6 / token_seconds(tokenizer, tokens));
  }
}
