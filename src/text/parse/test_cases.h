// Text cases of the output parser: tests/cases/parse/*.case.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/parse/tool_types.h"

namespace lagoon::text::parse {

struct Case {
  std::string file;
  std::string name;
  bool in_reasoning = false;
  bool text_mode = true;   // tags found in text
  bool token_mode = true;  // tags as tokens
  std::shared_ptr<const ToolTypes> tools;
  std::string output;
  std::string expected;  // as describe() writes it
};

// All cases, by file and in order. A file that is not understood fails the test.
std::vector<Case> read_cases();

}  // namespace lagoon::text::parse
