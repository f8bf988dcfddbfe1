#include "net/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

namespace lagoon::net {
namespace {

constexpr const char* kListening = "0A";  // the state TCP_LISTEN in /proc/net/tcp

std::string system_text(int error) {
  return std::generic_category().message(error);
}

// Closes the socket unless it is released.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

std::string program_name(const std::string& process) {
  std::string name;
  std::getline(std::ifstream("/proc/" + process + "/comm"), name);
  return fmt::format("{} (process {})", name.empty() ? "a program" : name, process);
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

Directory open_directory(const std::string& path) {
  return {::opendir(path.c_str()), &::closedir};
}

bool has_socket(const std::string& process, const std::string& link) {
  const std::string path = "/proc/" + process + "/fd";
  const Directory directory = open_directory(path);
  if (!directory) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    char target[64];
    const std::string name = path + "/" + entry->d_name;
    const ssize_t n = ::readlink(name.c_str(), target, sizeof target);
    if (n > 0 && std::string_view(target, static_cast<size_t>(n)) == link) return true;
  }
  return false;
}

std::string owner_of_inode(const std::string& inode) {
  const std::string link = "socket:[" + inode + "]";
  const Directory processes = open_directory("/proc");
  if (!processes) return "";
  while (const dirent* entry = ::readdir(processes.get())) {
    if (is_number(entry->d_name) && has_socket(entry->d_name, link)) {
      return program_name(entry->d_name);
    }
  }
  return "";
}

bool all_zero(std::string_view address) {
  return address.find_first_not_of('0') == std::string_view::npos;
}

// An address as /proc/net/tcp and tcp6 have it: its words in hexadecimal.
std::string proc_address(const sockaddr* address) {
  uint32_t words[4];
  size_t count = 0;
  if (address->sa_family == AF_INET) {
    std::memcpy(words, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, 4);
    count = 1;
  } else {
    std::memcpy(words, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, 16);
    count = 4;
  }
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{:08X}", words[i]);
  return text;
}

Error cannot_listen(const std::string& place, const std::string& reason) {
  return {ErrorCode::kUnavailable, fmt::format("cannot listen on {}: {}", place, reason)};
}

Error port_error(const std::string& place, uint16_t port, const sockaddr* address, int error) {
  if (error == EADDRINUSE) {
    const std::string owner = listening_program(port, proc_address(address));
    return cannot_listen(
        place, fmt::format("the port is in use by {}; stop it or choose another port with --port",
                           owner.empty() ? "another program" : owner));
  }
  if (error == EACCES) {
    return cannot_listen(place,
                         "this user may not open the port; choose one from 1024 on with "
                         "--port");
  }
  if (error == EADDRNOTAVAIL) {
    return cannot_listen(place,
                         "this machine does not have that address; choose one of its own "
                         "with --host (0.0.0.0: all of them)");
  }
  return cannot_listen(place, fmt::format("{}; choose another address with --host or another port "
                                          "with --port",
                                          system_text(error)));
}

// A file is in the way of the socket: it is removed where it is a socket that nobody listens on.
Result<void> clear_path(const std::string& path, const sockaddr_un& address) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return {};  // nothing there; bind() says what else
  if (!S_ISSOCK(status.st_mode)) {
    return cannot_listen(path, "the file exists and is no socket; choose another path with --uds");
  }
  const Socket probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN) {
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known =
        ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
    return cannot_listen(
        path, fmt::format("the socket is in use by {}; stop it or choose another path with --uds",
                          known ? program_name(std::to_string(peer.pid)) : "another program"));
  }
  if (errno == ECONNREFUSED && ::unlink(path.c_str()) == 0) return {};
  return cannot_listen(
      path, fmt::format("the socket that is there cannot be replaced: {}", system_text(errno)));
}

}  // namespace

std::string listening_program(uint16_t port, const std::string& address) {
  const std::string wanted = fmt::format("{:04X}", port);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // names of the columns
    while (std::getline(file, line)) {
      std::istringstream columns(line);
      // Slot, local and remote address, state, queues, timer, retransmits, user, timeout, inode.
      std::string column[10];
      for (std::string& text : column) columns >> text;
      const size_t colon = column[1].find(':');
      if (colon == std::string::npos || column[3] != kListening) continue;
      const std::string_view local = std::string_view(column[1]).substr(0, colon);
      const bool same = all_zero(address) || all_zero(local) || local == address;
      if (!same || column[1].substr(colon + 1) != wanted) continue;
      if (std::string owner = owner_of_inode(column[9]); !owner.empty()) return owner;
    }
  }
  return "";
}

Result<Listener> listen_on_port(const std::string& host, uint16_t port) {
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    name = name.substr(1, name.size() - 2);
  }
  const bool ipv6 = name.find(':') != std::string::npos;
  const std::string place = fmt::format("{}{}{}:{}", ipv6 ? "[" : "", name, ipv6 ? "]" : "", port);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
      error != 0) {
    return cannot_listen(place, fmt::format("the host was not found ({}); choose an address of "
                                            "this machine with --host",
                                            ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, &::freeaddrinfo);
  Socket socket(
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, found->ai_protocol));
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (socket.get() < 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return port_error(place, port, found->ai_addr, errno);
  }
  const in_port_t number = bound.ss_family == AF_INET
                               ? reinterpret_cast<const sockaddr_in*>(&bound)->sin_port
                               : reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port;
  return Listener{.socket = socket.release(), .port = ntohs(number)};
}

Result<Listener> listen_on_path(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return cannot_listen(path, fmt::format("a socket's path has at most {} bytes; choose a shorter "
                                           "one with --uds",
                                           sizeof address.sun_path - 1));
  }
  path.copy(address.sun_path, path.size());
  LAGOON_RETURN_IF_ERROR(clear_path(path, address));
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return cannot_listen(path,
                         fmt::format("{}; choose another path with --uds", system_text(errno)));
  }
  return Listener{.socket = socket.release(), .port = 0};
}

}  // namespace lagoon::net
