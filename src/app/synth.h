// lagoon synth: a checkpoint of random weights in the published format.
#pragma once

#include "app/options.h"
#include "base/result.h"

namespace lagoon::app {

// Progress goes to stderr, what was written to stdout. Refuses before it writes anything.
Result<void> synth(const SynthOptions& options);

}  // namespace lagoon::app
