// The socket a server listens on: a TCP port or a Unix socket. Plain POSIX; errors are one sentence
// that says who is in the way.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lagoon::net {

// A socket that listens; whoever has it closes it.
struct Listener {
  int socket = -1;
  uint16_t port = 0;  // 0: a Unix socket
};

// `host` is an address or a name, IPv6 with or without brackets; `port` 0 is any free one.
Result<Listener> listen_on_port(const std::string& host, uint16_t port);

// A socket file that is there and that no program listens on any more is replaced; every other file
// is left alone.
Result<Listener> listen_on_path(const std::string& path);

// "lagoon (process 4711)" of the program that listens on a TCP port of this machine, or "" where
// /proc does not say, as for a program of another user. `address` as in /proc/net/tcp, "" for any.
std::string listening_program(uint16_t port, const std::string& address);

}  // namespace lagoon::net
