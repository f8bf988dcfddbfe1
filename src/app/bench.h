// lagoon bench: how fast a model in this process, or a server, answers.
#pragma once

#include "app/options.h"
#include "base/result.h"

namespace lagoon::app {

// The table goes to stdout, progress to stderr, all figures to the file of --json.
Result<void> bench(const BenchOptions& options);

}  // namespace lagoon::app
