#include "app/status.h"

#include <string>

namespace lagoon::app {

api::Health Status::health() const {
  switch (stage()) {
    case Stage::kServing:
      return {};
    case Stage::kDraining:
      return {.ready = false, .phase = "draining", .percent = 0};
    case Stage::kFailed:
      return {.ready = false, .phase = "failed", .percent = 0};
    case Stage::kStarting:
      break;
  }
  const checkpoint::LoadProgress::State state = progress_.state();
  return {.ready = false,
          .phase = std::string(checkpoint::phase_name(state.phase)),
          .percent = state.percent(),
          .seconds_left = state.seconds_left()};
}

}  // namespace lagoon::app
