#include "net/listener.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

namespace lagoon::net {
namespace {

using ::testing::HasSubstr;

std::string own_name() {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  return fmt::format("{} (process {})", name, ::getpid());
}

std::string error_of(const Result<Listener>& listener) {
  if (listener.ok()) ::close(listener->socket);
  return listener.ok() ? "" : listener.error().message;
}

TEST(Listener, SaysWhoHasThePort) {
  const auto first = listen_on_port("127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_GT(first->port, 0);
  EXPECT_EQ(listening_program(first->port, ""), own_name());
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    EXPECT_THAT(error_of(listen_on_port(host, first->port)),
                HasSubstr("the port is in use by " + own_name() + "; stop it or choose another"))
        << host;
  }
  ::close(first->socket);
  EXPECT_EQ(listening_program(first->port, ""), "");
  EXPECT_EQ(error_of(listen_on_port("127.0.0.1", first->port)), "");  // and it is free again
}

TEST(Listener, AddressesAreToldApart) {
  const auto here = listen_on_port("127.0.0.2", 0);
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(listening_program(here->port, "0200007F"), own_name());
  EXPECT_EQ(listening_program(here->port, "0100007F"), "");
  EXPECT_EQ(error_of(listen_on_port("127.0.0.1", here->port)), "");
  ::close(here->socket);
}

TEST(Listener, WhatIsWrongWithAnAddressIsSaid) {
  EXPECT_THAT(error_of(listen_on_port("no.such.host.invalid", 1)),
              HasSubstr("no.such.host.invalid:1: the host was not found"));
  EXPECT_THAT(error_of(listen_on_port("203.0.113.1", 0)),
              HasSubstr("this machine does not have that address"));
}

class UnixListener : public ::testing::Test {
 protected:
  UnixListener() : path_(fmt::format("{}/listener_test_{}", testing::TempDir(), ::getpid())) {
    ::unlink(path_.c_str());
  }
  ~UnixListener() override { ::unlink(path_.c_str()); }
  const std::string path_;
};

TEST_F(UnixListener, ASocketThatNobodyHasIsReplaced) {
  const auto first = listen_on_path(path_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_THAT(error_of(listen_on_path(path_)),
              HasSubstr("the socket is in use by " + own_name() + "; stop it"));
  ::close(first->socket);  // as after kill -9: the file stays
  struct stat status{};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(error_of(listen_on_path(path_)), "");
}

TEST_F(UnixListener, OtherFilesAreLeftAlone) {
  std::ofstream(path_) << "text";
  EXPECT_THAT(error_of(listen_on_path(path_)), HasSubstr("is no socket"));
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "text");
  EXPECT_THAT(error_of(listen_on_path("/no/such/directory/s")), HasSubstr("--uds"));
  EXPECT_THAT(error_of(listen_on_path(std::string(200, 'x'))), HasSubstr("at most 107 bytes"));
}

}  // namespace
}  // namespace lagoon::net
