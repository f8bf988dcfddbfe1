// lagoon inspect: what a model is, whether it is whole, whether its draft belongs to it, what both
// take of this machine, and how fast they will be.
#pragma once

#include "app/options.h"
#include "base/result.h"

namespace lagoon::app {

// Prints the report; what does not fit is part of it. Errors: no model there, or none of ours.
Result<void> inspect(const InspectOptions& options);

}  // namespace lagoon::app
