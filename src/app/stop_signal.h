// What ends the program from outside or within: SIGINT and SIGTERM, and a bug that a CHECK found.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>

namespace lagoon::app {

struct StopState;

// Signals are taken by a thread of their own: while the model is being loaded they end the program
// at once, later they wake wait_for(). They are blocked for all threads started afterwards. One for
// a process.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // From now on a signal is waited for, and so is a failed CHECK of another thread: that thread is
  // held for some seconds, so that clients can be told, before it aborts the program.
  void loaded();

  struct Event {
    int signal = 0;     // or 0, then:
    std::string fatal;  // what failed
  };
  // Sleeps until there is one, at most so long. After a signal, a second one ends the program at
  // once.
  std::optional<Event> wait_for(std::chrono::milliseconds time);

 private:
  sigset_t signals_;
  std::shared_ptr<StopState> state_;
};

}  // namespace lagoon::app
