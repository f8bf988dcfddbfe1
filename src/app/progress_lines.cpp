#include "app/progress_lines.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace lagoon::app {
namespace {

using checkpoint::LoadPhase;
using checkpoint::LoadProgress;

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr int kBarWidth = 24;
constexpr int kColumns = 80;                    // where the terminal does not say
constexpr std::string_view kWipe = "\r\x1b[K";  // to the beginning of the line, and clear it

int columns_of(FILE* terminal) {
  winsize size = {};
  const bool known = ::ioctl(::fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kColumns;
}

std::string text_of(const LoadProgress::State& state) {
  return fmt::format("{}: {}", phase_name(state.phase), describe(state));
}

bool is_reading(const LoadProgress::State& state) {
  return state.bytes_total > 0 &&
         (state.phase == LoadPhase::kReadingTarget || state.phase == LoadPhase::kReadingDraft);
}

}  // namespace

std::string progress_bar(const LoadProgress::State& state, int columns) {
  const auto filled = static_cast<size_t>(kBarWidth * state.percent() / 100);
  const std::string text = fmt::format("[{}{}] {}", std::string(filled, '#'),
                                       std::string(kBarWidth - filled, '.'), text_of(state));
  return text.substr(0, static_cast<size_t>(std::max(columns - 1, 0)));
}

ProgressLines::ProgressLines(FILE* lines, const LoadProgress& progress,
                             std::chrono::milliseconds interval)
    : lines_(lines),
      progress_(progress),
      terminal_(::isatty(::fileno(lines)) != 0),
      interval_(terminal_ ? std::min(interval, kRedraw) : interval),
      thread_([this] { run(); }) {}

ProgressLines::~ProgressLines() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
  if (!drawn_) return;
  fmt::print(lines_, "{}", kWipe);
  std::fflush(lines_);
}

void ProgressLines::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, interval_, [this] { return stop_; })) {
    const LoadProgress::State state = progress_.state();
    if (is_reading(state)) draw(state);
  }
}

void ProgressLines::draw(const LoadProgress::State& state) {
  if (terminal_) {
    fmt::print(lines_, "{}{}", kWipe, progress_bar(state, columns_of(lines_)));
    drawn_ = true;
  } else {
    fmt::print(lines_, "{}\n", text_of(state));
  }
  std::fflush(lines_);
}

}  // namespace lagoon::app
