// Tells whoever watches a start how far it is: a bar that is drawn over on a terminal, elsewhere a
// line every two seconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "checkpoint/load_progress.h"

namespace lagoon::app {

class ProgressLines {
 public:
  // Both outlive it. A thread of its own writes, after the first interval; nothing else may write
  // to `lines` meanwhile.
  ProgressLines(FILE* lines, const checkpoint::LoadProgress& progress,
                std::chrono::milliseconds interval = std::chrono::seconds(2));
  // Writes no more; a bar is wiped out.
  ~ProgressLines();
  ProgressLines(const ProgressLines&) = delete;
  ProgressLines& operator=(const ProgressLines&) = delete;

 private:
  void run();
  void draw(const checkpoint::LoadProgress::State& state);

  FILE* const lines_;
  const checkpoint::LoadProgress& progress_;
  const bool terminal_;
  const std::chrono::milliseconds interval_;
  bool drawn_ = false;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

// "[#####...............] reading the target: 4.20 of 71.92 GB (5 %), ...", as far as it fits
// `columns`.
std::string progress_bar(const checkpoint::LoadProgress::State& state, int columns);

}  // namespace lagoon::app
