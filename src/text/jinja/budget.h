// What one rendering may cost. Everything that takes time or memory in proportion to its input
// charges it, so a template that loops or doubles its data ends with an error, not with the server.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace lagoon::text::jinja {

constexpr int kMaxValueDepth = 400;  // lists in lists
constexpr int kMaxCallDepth = 1000;  // expressions and blocks being evaluated

class Budget {
 public:
  // Time counts from here, on the calling thread.
  explicit Budget(const Limits& limits = Limits());
  // For work on behalf of the program itself.
  static Budget unlimited();

  // One step is about the evaluation of one node, or the copy of one item.
  void charge(size_t steps);
  size_t max_text_bytes() const { return limits_.text_bytes; }
  // For making a string of `bytes`; also refuses one that is too long.
  void charge_text(size_t bytes);
  // Charges for a container's items and refuses one nested too deeply.
  Value checked(Value container);

  // Nesting of the interpreter; see Nested.
  void enter();
  void leave() { --depth_; }

 private:
  void check_time();

  Limits limits_;
  int64_t steps_left_;
  int64_t next_check_;  // of the time: when so many steps are left
  double end_;          // of the thread's time, in seconds
  int max_depth_;
  int depth_ = 0;
};

// Counts one level of the interpreter's recursion for its lifetime.
class Nested {
 public:
  explicit Nested(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~Nested() { budget_.leave(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Budget& budget_;
};

}  // namespace lagoon::text::jinja
