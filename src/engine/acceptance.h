// How many proposals stand, as observed, of one request or of all.
#pragma once

#include <vector>

namespace lagoon::engine {

class Acceptance {
 public:
  // What was observed counts `keep` times as much with every further step.
  explicit Acceptance(double keep) : keep_(keep) {}

  // A step verified `proposed` proposals, and the first `accepted` stood.
  void observe(int proposed, int accepted);

  // What was observed counts so much of what it did.
  void fade(double factor);

  // The probability that proposal `position` (from 0) stands where all before it do. Where little
  // was observed it is near `guess`.
  double rate(int position, double guess) const;

 private:
  struct Position {
    double trials = 0;
    double hits = 0;
  };
  double keep_;
  std::vector<Position> positions_;
};

}  // namespace lagoon::engine
