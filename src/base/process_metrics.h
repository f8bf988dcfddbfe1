// What Prometheus' client libraries tell of the process itself: process_cpu_seconds_total,
// process_start_time_seconds, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds.
#pragma once

#include "base/metrics.h"

namespace lagoon {

// Registers them; their values are read from /proc when the registry is rendered.
void add_process_metrics(MetricsRegistry& registry);

}  // namespace lagoon
