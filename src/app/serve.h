// lagoon serve: a model over HTTP until SIGINT or SIGTERM.
#pragma once

#include "app/options.h"
#include "base/result.h"

namespace lagoon::app {

// Start-up lines go to stdout, the log of requests to stderr. Returns after a signal has stopped
// the server, or with what kept it from starting.
Result<void> serve(const ServeOptions& options);

}  // namespace lagoon::app
