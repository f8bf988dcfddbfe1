#include "app/supervise.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/log.h"

namespace lagoon::app {
namespace {

constexpr std::chrono::seconds kTelling{2};  // for clients to be told

// The engine's thread cannot be joined any more.
[[noreturn]] void end_at_once(const Supervised& supervised, const std::string& sentence) {
  supervised.status.enter(Stage::kFailed);
  LOG(error, "{}", sentence);
  supervised.service.fail_all(sentence);
  supervised.server.drain(kTelling);
  fmt::print(stderr, "lagoon: {}\n", sentence);
  std::fflush(nullptr);
  std::_Exit(1);
}

// What is wrong with an engine that should get on, or "".
std::string hang(const Supervised& supervised) {
  const engine::Progress progress = supervised.engine.progress();
  const auto limit = static_cast<double>(supervised.stall.count());
  if (limit == 0 || progress.running == 0 || progress.seconds_since_progress <= limit) return "";
  return fmt::format(
      "no token for {:.0f} s with {} requests running (--stall-timeout {}): the engine hangs, and "
      "the server ends",
      progress.seconds_since_progress, progress.running, supervised.stall.count());
}

// Requests have so long to end. In slices, so that an engine that hangs or fails is noticed.
bool drain(const Supervised& supervised, StopSignal& stop) {
  const auto end = std::chrono::steady_clock::now() + supervised.drain;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    const bool last = left <= supervised.look;
    const auto slice = last ? std::max(left, std::chrono::milliseconds(0)) : supervised.look;
    if (supervised.server.drain(slice)) return true;
    if (last) return false;
    if (const std::string why = hang(supervised); !why.empty()) end_at_once(supervised, why);
    const auto event = stop.wait_for(std::chrono::milliseconds(0));
    if (event && !event->fatal.empty()) end_at_once(supervised, event->fatal);
  }
}

Result<void> failure_of(const engine::Engine& engine) {
  const engine::Progress progress = engine.progress();
  if (!progress.failed) return {};
  return Error{ErrorCode::kInternal,
               fmt::format("the model has failed, and the server ends: {}", progress.failure)};
}

Result<void> end_in_order(const Supervised& supervised, int signal, StopSignal& stop) {
  LOG(info, "stopping: signal {}", signal);
  supervised.status.enter(Stage::kDraining);
  if (drain(supervised, stop)) return failure_of(supervised.engine);
  LOG(warning, "requests that still run after {} s are ended (--shutdown-timeout)",
      supervised.drain.count());
  // They are told so; who does not read that in time is cut off.
  supervised.engine.shutdown();
  supervised.server.drain(std::chrono::seconds(1));
  return failure_of(supervised.engine);
}

}  // namespace

Result<void> supervise(const Supervised& supervised, StopSignal& stop) {
  while (true) {
    if (const auto event = stop.wait_for(supervised.look)) {
      if (event->fatal.empty()) return end_in_order(supervised, event->signal, stop);
      end_at_once(supervised, event->fatal);
    }
    if (auto failure = failure_of(supervised.engine); !failure.ok()) {
      supervised.status.enter(Stage::kFailed);
      // The engine has ended its requests with what is in the log; the rest is to write that.
      supervised.server.drain(kTelling);
      return failure;
    }
    if (const std::string why = hang(supervised); !why.empty()) end_at_once(supervised, why);
  }
}

}  // namespace lagoon::app
