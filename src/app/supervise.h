// The main thread while a model is served: it sleeps, looks once a second whether the engine gets
// on, and ends the server in order, or with what went wrong.
#pragma once

#include <chrono>

#include "api/service.h"
#include "app/status.h"
#include "app/stop_signal.h"
#include "base/result.h"
#include "engine/engine.h"
#include "net/server.h"

namespace lagoon::app {

struct Supervised {
  Status& status;
  engine::Engine& engine;
  api::Service& service;
  net::Server& server;
  std::chrono::seconds drain{30};  // for running requests to end after a signal
  // Requests run, and no step has ended for so long: the engine hangs. 0: never.
  std::chrono::seconds stall{60};
  std::chrono::milliseconds look{1000};  // how often it is looked
};

// Returns after a signal, once requests have ended or been ended; with an error after the model has
// failed, once every client has been told. Where the engine hangs, or a CHECK has failed on another
// thread, nobody can be waited for: clients are told, and the process ends with exit code 1.
Result<void> supervise(const Supervised& supervised, StopSignal& stop);

}  // namespace lagoon::app
