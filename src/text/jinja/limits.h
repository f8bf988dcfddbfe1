// What one rendering of a template may take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lagoon::text::jinja {

struct Limits {
  // About the number of expressions evaluated and of items copied.
  int64_t steps = 4'000'000;
  // Of one string, and of the whole output.
  size_t text_bytes = size_t{32} << 20;
  // Of the thread's processor time, so that a busy machine fails no request: steps are cheap on the
  // whole, but those on long texts may add up. A long conversation takes hundredths of a second.
  double seconds = 2.0;
};

}  // namespace lagoon::text::jinja
