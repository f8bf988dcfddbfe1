// How fast tokenizers encode texts of several kinds, in time of one thread's processor, so that
// other work on the machine matters little.
//
//   tokenizer_bench [TOKENIZER_JSON...]
// The bundled tokenizer, the same as the full-size models have it, and those named.
#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace {

using lagoon::text::Tokenizer;

constexpr size_t kTextBytes = 200'000;
constexpr int kRuns = 5;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

// Lagoon's own sources, in the order of their names.
std::string code() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(LAGOON_SOURCE_DIR "/src")) {
    const auto extension = entry.path().extension();
    if (extension == ".cpp" || extension == ".h") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) text += read_file(path);
  return text;
}

struct Text {
  std::string name;
  std::string text;
};

// What people send, then what an attacker might. None is a cut of another, so nothing is known of
// it.
std::vector<Text> texts() {
  const std::string all_code = code();
  std::string words;  // no two alike, no merges to speak of
  for (uint32_t i = 0; words.size() < kTextBytes; ++i) {
    words += fmt::format("{:x} ", i * 2654435761U);
  }
  return {
      {"code, 200 KB", all_code.substr(0, kTextBytes)},
      {"code, all of src", all_code},
      {"prose", repeated("The quick brown fox, however lazy, doesn't jump over 12 dogs twice. ",
                         kTextBytes)},
      {"Chinese", repeated("敏捷的棕色狐狸跳过了那只懒狗，然后回家睡觉。", kTextBytes)},
      {"hexadecimal", words},
      {"one letter", std::string(kTextBytes, 'a')},
      {"spaces", std::string(kTextBytes, ' ')},
      {"line ends", repeated("\r\n", kTextBytes)},
      {"one Chinese letter", repeated("中", kTextBytes)},
      {"rare letters", repeated("\U0001E5D0\U00016D40", kTextBytes)},
      {"marks", repeated("\u0301\u0323", kTextBytes)},
  };
}

// The bundled tokenizer with the pre-tokenizer of the full-size models.
std::string full_size_kind(std::string json) {
  const auto replace = [&json](std::string_view from, std::string_view to) {
    const size_t at = json.find(from);
    if (at == std::string::npos) fmt::print(stderr, "no {} in the bundled tokenizer\n", from);
    if (at != std::string::npos) json.replace(at, from.size(), to);
  };
  simdjson::dom::parser parser;
  json = simdjson::minify(parser.parse(json));
  replace(R"("behavior":"Isolated")", R"("behavior":"MergedWithNext")");
  replace(R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))",
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d))");
  return json;
}

void measure(const std::string& name, const std::string& json, const std::vector<Text>& all) {
  double start = processor_seconds();
  const auto tokenizer = Tokenizer::parse(json, name);
  if (!tokenizer.ok()) {
    fmt::print("{}\n", tokenizer.error().message);
    return;
  }
  fmt::print("{}: {:.1f} MB, loaded in {:.0f} ms\n", name, static_cast<double>(json.size()) / 1e6,
             1e3 * (processor_seconds() - start));
  for (const Text& text : all) {
    double best = 1e9;
    size_t tokens = 0;
    for (int run = 0; run < kRuns; ++run) {
      start = processor_seconds();
      tokens = (*tokenizer)->encode(text.text).size();
      best = std::min(best, processor_seconds() - start);
    }
    fmt::print("  {:<20} {:>8} bytes {:>7} tokens {:>8.2f} ms {:>7.1f} MB/s {:>6.2f} Mtok/s\n",
               text.name, text.text.size(), tokens, 1e3 * best,
               static_cast<double>(text.text.size()) / best / 1e6,
               static_cast<double>(tokens) / best / 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<Text> all = texts();
    const std::string bundled =
        read_file(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4/tokenizer.json");
    measure("bundled", bundled, all);
    measure("full-size Laguna kind", full_size_kind(bundled), all);
    for (int i = 1; i < argc; ++i) measure(argv[i], read_file(argv[i]), all);
    return 0;
  } catch (const std::exception& e) {  // a file that cannot be read
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
