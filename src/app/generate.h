// lagoon generate: one prompt, its answer on stdout.
#pragma once

#include "app/options.h"
#include "base/result.h"

namespace lagoon::app {

// The answer goes to stdout as it comes; a last line on stderr tells tokens, tokens per step,
// accepted drafts and speed.
Result<void> generate(const GenerateOptions& options);

}  // namespace lagoon::app
