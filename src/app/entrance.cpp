#include "app/entrance.h"

#include <fmt/core.h>

#include <utility>

namespace lagoon::app {

void Entrance::handle(net::HttpRequest request, const std::shared_ptr<net::Responder>& responder) {
  api::Service* const service = service_.load();
  const Stage stage = status_.stage();
  const bool told_always = request.path == "/metrics" || request.path == "/health";
  if (service != nullptr && (stage == Stage::kServing || told_always)) {
    service->handle(std::move(request), responder);
    return;
  }
  if (request.path == "/health") {
    api::respond_health(*responder, status_.health(), nullptr);
    return;
  }
  const char* const message = stage == Stage::kDraining ? "The server is shutting down."
                              : stage == Stage::kFailed ? "The server has failed and is ending."
                                                        : "The model is being loaded.";
  responder->respond(503, "application/json",
                     fmt::format(R"({{"error":{{"message":"{}","type":"ServiceUnavailableError",)"
                                 R"("param":null,"code":503}}}})",
                                 message),
                     {{"Retry-After", stage == Stage::kStarting ? "1" : "5"}});
}

}  // namespace lagoon::app
