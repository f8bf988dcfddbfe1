#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace lagoon::text {
namespace {

std::vector<size_t> prefix_borders(std::string_view s) {
  std::vector<size_t> borders(s.size(), 0);
  size_t border = 0;
  for (size_t i = 1; i < s.size(); ++i) {
    while (border > 0 && s[i] != s[border]) border = borders[border - 1];
    if (s[i] == s[border]) ++border;
    borders[i] = border;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    automata_.push_back({.borders = prefix_borders(stop), .length = 0});
    stops_.push_back(std::move(stop));
  }
}

// One more character at the end of held_.
void StopMatcher::advance(char c) {
  held_.push_back(c);
  for (size_t i = 0; i < stops_.size(); ++i) {
    const std::string& stop = stops_[i];
    Automaton& automaton = automata_[i];
    size_t& length = automaton.length;
    while (length > 0 && stop[length] != c) length = automaton.borders[length - 1];
    if (stop[length] == c) ++length;
    if (length < stop.size()) continue;
    const size_t begin = held_.size() - length;
    // Of those that begin at one place the shortest is complete first.
    if (begin < candidate_.begin) candidate_ = {.begin = begin, .stop = static_cast<int>(i)};
    length = automaton.borders[length - 1];
  }
}

// Where in held_ the first stop string that is not yet complete may have begun.
size_t StopMatcher::first_open_start() const {
  size_t longest = 0;
  for (const Automaton& automaton : automata_) longest = std::max(longest, automaton.length);
  return held_.size() - longest;
}

std::string StopMatcher::take_match() {
  matched_ = candidate_.stop;
  held_.resize(candidate_.begin);
  return std::exchange(held_, {});
}

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  for (const char c : text) {
    advance(c);
    if (candidate_.stop >= 0 && first_open_start() >= candidate_.begin) return take_match();
  }
  // A candidate begins after an open start, so it stays in what is held.
  const size_t given_out = first_open_start();
  std::string piece = held_.substr(0, given_out);
  held_.erase(0, given_out);
  if (candidate_.stop >= 0) candidate_.begin -= given_out;
  return piece;
}

std::string StopMatcher::finish() {
  if (matched()) return {};
  if (candidate_.stop >= 0) return take_match();
  return std::exchange(held_, {});
}

}  // namespace lagoon::text
