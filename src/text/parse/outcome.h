// For tests and fuzzers: what an output comes to, in pieces and as a whole.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/parse/output_parser.h"

namespace lagoon::text::parse {

// Events in order, those that go on with the one before joined to it.
struct Outcome {
  std::vector<Event> events;
  Ending ending;

  bool operator==(const Outcome&) const = default;
};

// Adds the events of one push.
void add_events(Outcome& outcome, const std::vector<Event>& events);

// One line for each call, its arguments and other text; as the files of tests/cases/parse.
std::string describe(const Outcome& outcome);

struct Output {
  bool in_reasoning = false;
  std::shared_ptr<const ToolTypes> tools;
  TagSet tokens;  // of these each occurrence in the text comes as a token
  std::string_view text;
};

// The text between tokens comes in pieces of `sizes` bytes, one size after the other and from the
// first again (0 counts as 1); without sizes as a whole. A piece never goes past a token.
Outcome outcome_of(const Output& output, std::string_view sizes);

// What is wrong with an outcome, or "": an event that is not UTF-8, calls that do not begin and end
// in turn, arguments that are not a JSON object, another outcome in pieces than as a whole.
std::string find_problem(const Output& output, std::string_view sizes);

}  // namespace lagoon::text::parse
