#include "net/tls.h"

namespace lagoon::net {

Result<std::shared_ptr<TlsContext>> TlsContext::load(const TlsOptions& /*options*/) {
  return Error{ErrorCode::kUnsupported,
               "this lagoon was built without TLS: install OpenSSL's development package "
               "(libssl-dev) and build again, or leave --ssl-certfile and --ssl-keyfile out"};
}

}  // namespace lagoon::net
