#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "net/tls.h"

namespace lagoon::net {
namespace {

// The newest of OpenSSL's errors of this thread, and forgets them all.
std::string openssl_reason() {
  const unsigned long code = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  const char* reason = ERR_reason_error_string(code);
  std::string text = reason != nullptr ? reason : "unknown reason";
  ERR_clear_error();
  return text;
}

Error bad_file(std::string_view option, const std::string& path, std::string_view what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} {} cannot be used: {} ({})", option, path, what, openssl_reason())};
}

// No passphrase is asked for on a terminal that a server may not have.
int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) {
  return 0;
}

// ALPN: HTTP/1.1 is all there is, and a client that wants something else gets no TLS.
int choose_protocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* size,
                    const unsigned char* offered, unsigned offered_size, void* /*data*/) {
  static constexpr unsigned char kProtocols[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, size, kProtocols, sizeof kProtocols - 1, offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

class OpenSslSession : public TlsSession {
 public:
  explicit OpenSslSession(SSL_CTX* context)
      : ssl_(SSL_new(context), &SSL_free), in_(BIO_new(BIO_s_mem())), out_(BIO_new(BIO_s_mem())) {
    CHECK(ssl_ && in_ != nullptr && out_ != nullptr);
    SSL_set_bio(ssl_.get(), in_, out_);  // which now owns both
    SSL_set_accept_state(ssl_.get());
  }

  bool receive(std::string_view data, std::string& plain, std::string& wire) override {
    ERR_clear_error();
    BIO_write(in_, data.data(), static_cast<int>(data.size()));
    bool fine = true;
    for (int n = 1; n > 0;) {
      n = SSL_read(ssl_.get(), buffer_.data(), static_cast<int>(buffer_.size()));
      if (n > 0) {
        plain.append(buffer_.data(), static_cast<size_t>(n));
        continue;
      }
      const int error = SSL_get_error(ssl_.get(), n);
      fine = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN;
    }
    ERR_clear_error();
    take(wire);
    return fine;
  }

  bool peer_has_ended() const override {
    return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

  void send(std::string_view plain, std::string& wire) override {
    ERR_clear_error();
    while (!plain.empty()) {
      const int size = static_cast<int>(std::min(plain.size(), size_t{1} << 20));
      // A memory BIO grows, so that nothing is ever written in part; after a fatal alert nothing is
      // written at all, and the connection is about to be closed.
      if (SSL_write(ssl_.get(), plain.data(), size) != size) break;
      plain.remove_prefix(static_cast<size_t>(size));
    }
    take(wire);
  }

  void end(std::string& wire) override {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    take(wire);
  }

 private:
  void take(std::string& wire) {
    for (int n = 0; (n = BIO_read(out_, buffer_.data(), static_cast<int>(buffer_.size()))) > 0;) {
      wire.append(buffer_.data(), static_cast<size_t>(n));
    }
  }

  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  BIO* in_;
  BIO* out_;
  std::array<char, 16 << 10> buffer_;
};

class OpenSslContext : public TlsContext {
 public:
  OpenSslContext() : context_(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free) {
    CHECK(context_);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_2_VERSION);
    SSL_CTX_set_options(context_.get(), SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context_.get(), SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(context_.get(), no_passphrase);
    SSL_CTX_set_alpn_select_cb(context_.get(), choose_protocol, nullptr);
  }

  Result<void> read(const TlsOptions& options) {
    ERR_clear_error();
    SSL_CTX* const context = context_.get();
    for (const auto& [option, path] :
         {std::pair("--ssl-certfile", options.certificate), std::pair("--ssl-keyfile", options.key),
          std::pair("--ssl-ca-certs", options.client_ca)}) {
      if (path.empty() || ::access(path.c_str(), R_OK) == 0) continue;
      return Error{ErrorCode::kNotFound, fmt::format("{} {} cannot be read", option, path)};
    }
    if (SSL_CTX_use_certificate_chain_file(context, options.certificate.c_str()) != 1) {
      return bad_file("--ssl-certfile", options.certificate, "it is no certificate in PEM form");
    }
    // The second also finds a key of another type than the certificate's.
    if (SSL_CTX_use_PrivateKey_file(context, options.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
      return bad_file("--ssl-keyfile", options.key,
                      "it is no private key in PEM form without a passphrase that belongs to the "
                      "certificate");
    }
    if (!options.client_ca.empty() &&
        SSL_CTX_load_verify_locations(context, options.client_ca.c_str(), nullptr) != 1) {
      return bad_file("--ssl-ca-certs", options.client_ca, "it holds no certificates in PEM form");
    }
    int verify = SSL_VERIFY_NONE;
    if (options.clients != ClientCertificates::kNone) verify = SSL_VERIFY_PEER;
    if (options.clients == ClientCertificates::kRequired) verify |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(context, verify, nullptr);
    // Sessions of clients whose certificates are looked at need a name to be resumed under.
    static constexpr unsigned char kName[] = "lagoon";
    SSL_CTX_set_session_id_context(context, kName, sizeof kName - 1);
    return {};
  }

  std::unique_ptr<TlsSession> accept() override {
    return std::make_unique<OpenSslSession>(context_.get());
  }

 private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::load(const TlsOptions& options) {
  auto context = std::make_shared<OpenSslContext>();
  LAGOON_RETURN_IF_ERROR(context->read(options));
  return std::shared_ptr<TlsContext>(std::move(context));
}

}  // namespace lagoon::net
