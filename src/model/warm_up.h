// Steps of the shapes that a server meets, before it meets them: a backend that replays steps
// (kernels::Backend::replays_steps) then has them ready.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/result.h"
#include "model/model.h"

namespace lagoon::model {

struct WarmUp {
  int sequences = 1;       // at a time
  int proposals = 0;       // k of each
  bool drafts = false;     // they are the model's own
  int64_t max_length = 0;  // positions of a sequence
  int most_rows = 64;      // of a step
  int most_shapes = 384;   // a backend keeps 512 graphs, of draws too
  std::chrono::duration<double> limit = std::chrono::seconds(5);  // then no longer context is begun
};

// What was computed.
struct WarmedUp {
  int shapes = 0;          // a number of rows at a length of context, each computed twice
  int64_t max_length = 0;  // all shapes at contexts up to it
  double seconds = 0;
};

// Computes, for contexts of up to 1,024 positions, 2,048 and so on, a step of every number of rows
// that `sequences` of k proposals may have, its draft and its commit. Sequences begin anew
// afterwards; what caches hold means nothing. The caller drives the model, which computes nothing
// else meanwhile. Error: the model has failed.
Result<WarmedUp> warm_up(Model& model, const WarmUp& shapes);

}  // namespace lagoon::model
