// Finds stop strings in text that arrives in pieces, holding back what may be the start of one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lagoon::text {

// The match is the one that a search of the whole text would find: of all occurrences the one that
// begins first, and of those that begin there the shortest. So what is returned in all does not
// depend on how the text was cut into pieces. Time is linear in text times number of stops.
class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text; returns what can be given out now. Once matched, the text before the earliest stop
  // string has been returned and all later text is dropped. A stop string that is complete is no
  // match yet while a longer one that began before it may still come.
  std::string push(std::string_view text);
  // The end of the text: what was held back, up to a stop string that was waiting (see push()).
  std::string finish();

  bool matched() const { return matched_ >= 0; }
  // The stop string that was found.
  const std::string& match() const { return stops_[static_cast<size_t>(matched_)]; }

 private:
  // A Knuth-Morris-Pratt automaton: how much of the stop string the text so far ends in.
  struct Automaton {
    std::vector<size_t> borders;  // of each prefix, the longest that is also its end
    size_t length = 0;
  };
  // An occurrence, as a position in held_.
  struct Candidate {
    size_t begin = std::string::npos;
    int stop = -1;
  };

  void advance(char c);
  size_t first_open_start() const;
  std::string take_match();

  std::vector<std::string> stops_;
  std::vector<Automaton> automata_;
  std::string held_;
  Candidate candidate_;
  int matched_ = -1;
};

}  // namespace lagoon::text
