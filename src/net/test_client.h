// A raw TCP client for tests of HTTP servers: it sends what it is told and reads what comes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace lagoon::net {

class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { close(); }
  TestClient(TestClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void close_sending_side() { ::shutdown(socket_, SHUT_WR); }

  // False where the connection does not take it all.
  bool send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t n = ::send(socket_, data.data(), data.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      data.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // All that comes until the text contains `end`, the server closes, or nothing comes for 10 s.
  std::string read_until(std::string_view end) {
    while (end.empty() || received_.find(end) == std::string::npos) {
      if (!receive()) break;
    }
    const size_t at = end.empty() ? std::string::npos : received_.find(end);
    const size_t length = at == std::string::npos ? received_.size() : at + end.size();
    std::string text = received_.substr(0, length);
    received_.erase(0, length);
    return text;
  }
  std::string read_all() { return read_until(""); }
  // Head and body of one response with a Content-Length.
  std::string read_response() {
    std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    const size_t length = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
    while (received_.size() < length && receive()) {
    }
    head += received_.substr(0, length);
    received_.erase(0, std::min(length, received_.size()));
    return head;
  }
  // Whether the server has closed the connection (after what was sent has been read).
  bool at_end() {
    while (receive()) {
    }
    return ended_;
  }

 private:
  bool receive() {
    pollfd poll_socket{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&poll_socket, 1, 10'000) <= 0) return false;
    char bytes[16384];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    received_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  int socket_ = -1;
  bool connected_ = false;
  bool ended_ = false;
  std::string received_;
};

}  // namespace lagoon::net
