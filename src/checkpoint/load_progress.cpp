#include "checkpoint/load_progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace lagoon::checkpoint {
namespace {

// A rate of less time than this means nothing.
constexpr double kLeastSeconds = 0.05;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_reading(LoadPhase phase) {
  return phase == LoadPhase::kReadingTarget || phase == LoadPhase::kReadingDraft;
}

}  // namespace

std::string_view phase_name(LoadPhase phase) {
  switch (phase) {
    case LoadPhase::kChecking:
      return "checking files";
    case LoadPhase::kReadingTarget:
      return "reading the target";
    case LoadPhase::kReadingDraft:
      return "reading the draft";
    case LoadPhase::kPreparing:
      return "preparing";
    case LoadPhase::kReady:
      return "ready";
  }
  return "";
}

void LoadProgress::enter(LoadPhase phase) {
  if (is_reading(phase)) {
    int64_t never = 0;
    started_.compare_exchange_strong(never, now());
  } else if (started_.load() != 0) {
    int64_t never = 0;
    ended_.compare_exchange_strong(never, now());
  }
  phase_.store(phase);
}

void LoadProgress::set_method(std::string method) {
  const std::lock_guard lock(mutex_);
  method_ = std::move(method);
}

LoadProgress::State LoadProgress::state() const {
  State state;
  {
    const std::lock_guard lock(mutex_);
    state.method = method_;
  }
  state.phase = phase_.load();
  state.bytes_total = bytes_total_.load();
  state.bytes_done = bytes_done_.load();
  const int64_t started = started_.load();
  const int64_t ended = ended_.load();
  if (started != 0)
    state.seconds = static_cast<double>((ended != 0 ? ended : now()) - started) / 1e9;
  return state;
}

int LoadProgress::State::percent() const {
  if (bytes_total == 0) return phase < LoadPhase::kPreparing ? 0 : 100;
  const double share = static_cast<double>(bytes_done) / static_cast<double>(bytes_total);
  return bytes_done >= bytes_total ? 100 : std::min(99, static_cast<int>(100 * share));
}

double LoadProgress::State::rate() const {
  return seconds < kLeastSeconds ? 0 : static_cast<double>(bytes_done) / seconds;
}

std::optional<double> LoadProgress::State::seconds_left() const {
  if (bytes_total == 0 || rate() == 0) return std::nullopt;
  if (bytes_done >= bytes_total) return 0;
  return static_cast<double>(bytes_total - bytes_done) / rate();
}

std::string describe(const LoadProgress::State& state) {
  std::string text = fmt::format("{:.2f} of {:.2f} GB ({} %)", state.bytes_done / 1e9,
                                 state.bytes_total / 1e9, state.percent());
  if (state.rate() > 0) text += fmt::format(", {:.2f} GB/s", state.rate() / 1e9);
  if (const auto left = state.seconds_left(); left && state.bytes_done < state.bytes_total)
    text += fmt::format(", {:.0f} s left", *left);
  return text;
}

std::string summary(const LoadProgress::State& state) {
  const double gigabytes = static_cast<double>(state.bytes_done) / 1e9;
  return fmt::format("read {:.{}f} GB in {:.2f} s: {:.2f} GB/s{}", gigabytes, gigabytes < 1 ? 4 : 2,
                     state.seconds, state.seconds > 0 ? gigabytes / state.seconds : 0.0,
                     state.method.empty() ? "" : " (" + state.method + ")");
}

}  // namespace lagoon::checkpoint
