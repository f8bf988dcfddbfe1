// How far the program is, for /health: the phases of the start, then serving, draining, failed. Any
// thread.
#pragma once

#include <atomic>

#include "api/service.h"
#include "checkpoint/load_progress.h"

namespace lagoon::app {

enum class Stage { kStarting, kServing, kDraining, kFailed };

class Status {
 public:
  // Written by whoever loads.
  checkpoint::LoadProgress& progress() { return progress_; }
  void enter(Stage stage) { stage_ = stage; }
  Stage stage() const { return stage_; }
  api::Health health() const;

 private:
  checkpoint::LoadProgress progress_;
  std::atomic<Stage> stage_{Stage::kStarting};
};

}  // namespace lagoon::app
