#include "app/stop_signal.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <semaphore>
#include <thread>

#include "base/check.h"

namespace lagoon::app {

// Outlives a serve() that returns early.
struct StopState {
  std::atomic<bool> loading{true};
  std::atomic<int> number{0};
  std::counting_semaphore<> raised{0};
  std::thread::id waiter = std::this_thread::get_id();
  std::mutex mutex;
  std::string fatal;
};

namespace {

constexpr std::chrono::seconds kHeld{10};  // a thread that has failed

// Of the one StopSignal: the handler of fatal errors is a plain function.
std::mutex handled_mutex;
std::shared_ptr<StopState> handled;

void on_fatal(const char* sentence) {
  std::shared_ptr<StopState> state;
  {
    const std::lock_guard lock(handled_mutex);
    state = handled;
  }
  // Nobody would tell the clients where the thread that does it has failed itself.
  if (state == nullptr || std::this_thread::get_id() == state->waiter) return;
  {
    const std::lock_guard lock(state->mutex);
    if (state->fatal.empty()) state->fatal = sentence;
  }
  state->raised.release();
  std::this_thread::sleep_for(kHeld);
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

StopSignal::StopSignal() : signals_(stop_signals()), state_(std::make_shared<StopState>()) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  std::thread([signals = signals_, state = state_] {
    int number = 0;
    sigwait(&signals, &number);
    if (state->loading) std::_Exit(128 + number);
    state->number = number;
    state->raised.release();
  }).detach();
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(handled_mutex);
  handled.reset();
}

void StopSignal::loaded() {
  state_->loading = false;
  {
    const std::lock_guard lock(handled_mutex);
    handled = state_;
  }
  set_fatal_handler(on_fatal);
}

std::optional<StopSignal::Event> StopSignal::wait_for(std::chrono::milliseconds time) {
  if (!state_->raised.try_acquire_for(time)) return std::nullopt;
  Event event{.signal = state_->number, .fatal = {}};
  if (event.signal != 0) pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  const std::lock_guard lock(state_->mutex);
  event.fatal = state_->fatal;
  return event;
}

}  // namespace lagoon::app
