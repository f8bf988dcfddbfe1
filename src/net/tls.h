// TLS of a server's connections, without sockets: bytes of the wire in, plain text out, and back.
// OpenSSL is hidden in tls_openssl.cpp; a build without it has tls_absent.cpp in its place.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lagoon::net {

enum class ClientCertificates { kNone, kOptional, kRequired };

struct TlsOptions {
  std::string certificate;     // a PEM file, the server's own certificate first
  std::string key;             // a PEM file, not encrypted
  std::string client_ca = {};  // a PEM file of those who sign clients' certificates, or ""
  ClientCertificates clients = ClientCertificates::kNone;
};

// One connection's. Used by one thread at a time.
class TlsSession {
 public:
  virtual ~TlsSession() = default;
  // Takes what came from the client: appends what it says to `plain`, and what must be sent for the
  // handshake to `wire`. False: the connection must end, after `wire` where that is not empty.
  virtual bool receive(std::string_view data, std::string& plain, std::string& wire) = 0;
  // Whether the client has said that it sends no more.
  virtual bool peer_has_ended() const = 0;
  // Appends to `wire` what carries `plain`. After the handshake.
  virtual void send(std::string_view plain, std::string& wire) = 0;
  // Appends to `wire` that nothing more is sent.
  virtual void end(std::string& wire) = 0;
};

// Immutable, used from any thread.
class TlsContext {
 public:
  // Reads and checks the files. Errors name the file; kUnsupported: built without OpenSSL.
  static Result<std::shared_ptr<TlsContext>> load(const TlsOptions& options);
  virtual ~TlsContext() = default;
  virtual std::unique_ptr<TlsSession> accept() = 0;
};

}  // namespace lagoon::net
