// How long a draft takes by itself: in a step it hides behind nothing, but its time cannot be told
// from that of the verification.
#pragma once

#include "base/result.h"
#include "model/model.h"

namespace lagoon::bench {

// Seconds of a draft of k proposals for one sequence at `context` positions: many in a row, less
// the time of one with the step that waits for it; the median of a few rounds. The context counts
// as computed (Model::take_as_computed), and slot 0 is free again afterwards. The caller drives the
// model; its draft makes k proposals, and its pages hold context + k + 1 positions. Error: the
// model has failed.
Result<double> time_draft(model::Model& model, int k, int context);

}  // namespace lagoon::bench
