// A model in this process: the engine as the server has it, without HTTP.
#pragma once

#include <memory>

#include "base/metrics.h"
#include "base/result.h"
#include "bench/subject.h"
#include "engine/engine.h"
#include "kernels/ops.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lagoon::bench {

// All arguments outlive the subject; `metrics` are the engine's, `backend` is what its model runs
// on.
std::unique_ptr<Subject> make_engine_subject(engine::Engine& engine,
                                             const text::Tokenizer& tokenizer,
                                             const text::ChatTemplate& chat_template,
                                             const MetricsRegistry& metrics,
                                             const kernels::Backend& backend);

}  // namespace lagoon::bench
