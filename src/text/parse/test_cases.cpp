#include "text/parse/test_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "text/jinja/json.h"
#include "text/parse/scanner.h"

namespace lagoon::text::parse {
namespace {

// An output line's text: ⟨FF⟩ stands for the byte FF.
std::string output_text(std::string_view line) {
  static constexpr std::string_view kOpen = "⟨";
  static constexpr std::string_view kClose = "⟩";
  std::string text;
  while (true) {
    const size_t open = line.find(kOpen);
    text += line.substr(0, open);
    if (open == std::string_view::npos) return text;
    line.remove_prefix(open + kOpen.size());
    Scanner digits(line);
    const int byte = digits.hex(2);
    EXPECT_TRUE(byte >= 0 && digits.take(kClose)) << line;
    text += static_cast<char>(byte);
    line.remove_prefix(digits.at());
  }
}

class Reader {
 public:
  Reader(std::string file, std::vector<Case>& cases) : file_(std::move(file)), cases_(cases) {}

  void line(std::string_view line) {
    if (line.starts_with("== ")) {
      Case& added = cases_.emplace_back();
      added.file = file_;
      added.name = line.substr(3);
      added.tools = tools_;
      has_output_ = false;
    } else if (line.starts_with("tools: ")) {
      read_tools(line.substr(7));
    } else if (line.starts_with('|')) {
      if (has_output_) cases_.back().output += '\n';
      has_output_ = true;
      cases_.back().output += output_text(line.substr(line.starts_with("| ") ? 2 : 1));
    } else if (line.starts_with("> ")) {
      cases_.back().expected += output_text(line.substr(2)) + "\n";
    } else if (line == "begins: reasoning") {
      cases_.back().in_reasoning = true;
    } else if (line == "mode: text") {
      cases_.back().token_mode = false;
    } else if (line == "mode: tokens") {
      cases_.back().text_mode = false;
    } else {
      EXPECT_TRUE(line.empty() || line.starts_with('#')) << file_ << ": " << line;
    }
  }

 private:
  // For the cases that follow.
  void read_tools(std::string_view json) {
    tools_ = nullptr;
    if (json == "none") return;
    const auto value = jinja::parse_json(json);
    ASSERT_TRUE(value.ok()) << file_ << ": " << json;
    tools_ = std::make_shared<const ToolTypes>(ToolTypes::from(*value));
  }

  const std::string file_;
  std::vector<Case>& cases_;
  std::shared_ptr<const ToolTypes> tools_;
  bool has_output_ = false;
};

}  // namespace

std::vector<Case> read_cases() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(LAGOON_SOURCE_DIR "/tests/cases/parse")) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Case> cases;
  for (const auto& path : files) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    Reader reader(path.stem().string(), cases);
    for (std::string line; std::getline(file, line);) reader.line(line);
  }
  return cases;
}

}  // namespace lagoon::text::parse
