// Where requests arrive: they go to the service while it serves; before and after, they are told to
// come back. /health answers from the first moment on.
#pragma once

#include <atomic>
#include <memory>

#include "api/service.h"
#include "app/status.h"
#include "net/server.h"

namespace lagoon::app {

class Entrance {
 public:
  // `status` outlives the entrance.
  explicit Entrance(const Status& status) : status_(status) {}

  // The service takes requests as long as the status says that it serves, and then still tells
  // health and metrics. It outlives all calls of handle().
  void open(api::Service* service) { service_.store(service); }
  // For net::Server, on its I/O thread.
  void handle(net::HttpRequest request, const std::shared_ptr<net::Responder>& responder);

 private:
  const Status& status_;
  std::atomic<api::Service*> service_{nullptr};
};

}  // namespace lagoon::app
