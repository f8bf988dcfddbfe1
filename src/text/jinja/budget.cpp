#include "text/jinja/budget.h"

#include <fmt/core.h>

#include <ctime>
#include <limits>

#include "text/jinja/error.h"

namespace lagoon::text::jinja {
namespace {

constexpr int64_t kStepsPerCheck = 10'000;

double thread_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits),
      steps_left_(limits.steps),
      next_check_(limits.steps - kStepsPerCheck),
      end_(thread_seconds() + limits.seconds),
      max_depth_(kMaxCallDepth) {}

Budget Budget::unlimited() {
  Budget budget(Limits{std::numeric_limits<int64_t>::max(), std::numeric_limits<size_t>::max(),
                       std::numeric_limits<double>::infinity()});
  budget.max_depth_ = std::numeric_limits<int>::max();
  return budget;
}

void Budget::charge(size_t steps) {
  if (steps > static_cast<size_t>(steps_left_)) {
    throw Failure(fmt::format("the template takes more than {} steps", limits_.steps));
  }
  steps_left_ -= static_cast<int64_t>(steps);
  if (steps_left_ < next_check_) check_time();
}

void Budget::check_time() {
  next_check_ = steps_left_ - kStepsPerCheck;
  if (thread_seconds() > end_) {
    throw Failure(fmt::format("the template takes more than {} s", limits_.seconds));
  }
}

void Budget::charge_text(size_t bytes) {
  constexpr size_t kBytesPerStep = 64;
  if (bytes > limits_.text_bytes) {
    throw Failure(
        fmt::format("the template makes a text of more than {} bytes", limits_.text_bytes));
  }
  charge(bytes / kBytesPerStep);
}

Value Budget::checked(Value container) {
  if (container.is_list()) charge(container.list().size());
  if (container.is_tuple()) charge(container.tuple().size());
  if (container.is_dict()) charge(container.dict().size());
  if (container.depth() > kMaxValueDepth) {
    throw Failure(fmt::format("a value is nested more than {} levels deep", kMaxValueDepth));
  }
  return container;
}

void Budget::enter() {
  // Counted first: the destructor of Nested does not run where its constructor throws.
  if (depth_ >= max_depth_) {
    throw Failure(fmt::format("calls and blocks nest more than {} levels deep", kMaxCallDepth));
  }
  ++depth_;
}

}  // namespace lagoon::text::jinja
