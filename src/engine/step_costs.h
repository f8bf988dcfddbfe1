// What a step costs, as measured: seconds of the target's and of the draft's pass by their rows.
// Not thread-safe: the engine's thread.
#pragma once

#include <cstdint>
#include <map>

namespace lagoon::engine {

// Passes of as many rows take as long, but for what the context and the rest of the machine add. So
// a time is kept as a ratio to a level that all share: whatever makes steps slower or faster
// altogether moves the level, and the ratios of passes that have not run for long stay right. Where
// one of these turns out to be wrong nonetheless it is corrected at once: the level was right
// meanwhile.
class StepCosts {
 public:
  // A pass took so long; `rows` at least 1. One outlier moves nothing far, and of the first three
  // passes of as many rows, one of which takes memory, the one in the middle counts.
  void measure_target(int rows, double seconds);
  void measure_draft(int rows, double seconds);

  // Whether enough passes of one number of rows have been measured.
  bool knows_target() const { return knows(target_); }
  bool knows_draft() const { return knows(draft_); }

  // Seconds, at least one pass measured. Between and beyond the numbers of rows that were measured
  // they lie on straight lines.
  double target(int rows) const { return seconds(target_, rows); }
  double draft(int rows) const { return rows == 0 ? 0 : seconds(draft_, rows); }

 private:
  static constexpr int kFirstSamples = 3;
  struct Point {
    double ratio = 0;                  // to level_
    double first[kFirstSamples] = {};  // ratios, sorted
    int samples = 0;
    int64_t measured = 0;  // when: passes_ then
  };
  using Curve = std::map<int, Point>;  // by rows

  static bool knows(const Curve& curve);
  void measure(Curve& curve, int rows, double seconds);
  double seconds(const Curve& curve, int rows) const;

  double level_ = 0;    // seconds; 0: nothing measured
  int64_t passes_ = 0;  // measured so far
  Curve target_;
  Curve draft_;
};

}  // namespace lagoon::engine
