#include "app/supervise.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "app/entrance.h"
#include "base/check.h"
#include "engine/engine_harness.h"
#include "net/test_client.h"
#include "text/chat_template.h"

namespace lagoon::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What becomes of a server whose engine runs the fake model: a process of its own, since its end is
// what is tested.
class Child {
 public:
  // `set_up` is called in the process; seconds that it adds to `later` pass at once for the engine.
  explicit Child(const std::function<void(engine::Rig&, std::atomic<int>& later)>& set_up) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::close(ends[0]);
      serve(set_up, ends[1]);
    }
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(ends[0]);
  }
  ~Child() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // All that comes of a request for an answer.
  std::string answer(bool stream) const {
    net::TestClient client(port_);
    const std::string body = fmt::format(
        R"({{"model":"fake","prompt":[300,301,302],"max_tokens":400,"stream":{},"ignore_eos":true}})",
        stream);
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    body.size(), body));
    return client.read_all();
  }

  void signal(int number) const { ::kill(process_, number); }
  // The exit code; -1 after a signal.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(process_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] static void serve(const std::function<void(engine::Rig&, std::atomic<int>&)>& set_up,
                                 int told) {
    StopSignal stop;
    engine::Rig rig;
    std::atomic<int> later{0};
    rig.options.clock = [&later] {
      return std::chrono::steady_clock::now() + std::chrono::seconds(later);
    };
    set_up(rig, later);
    rig.start();
    Status status;
    Entrance entrance(status);
    const auto chat = text::ChatTemplate::load(LAGOON_SOURCE_DIR "/models/laguna-nano-nvfp4");
    api::ServiceOptions options;
    options.model_names = {"fake"};
    options.health = [&status] { return status.health(); };
    const auto service =
        api::Service::create(options, *rig.engine, engine::test_tokenizer(), *chat, rig.metrics);
    auto server = net::Server::start({.port = 0}, [&](auto request, auto responder) {
      entrance.handle(std::move(request), responder);
    });
    stop.loaded();
    status.enter(Stage::kServing);
    entrance.open(service->get());
    const uint16_t port = (*server)->port();
    CHECK(::write(told, &port, sizeof port) == static_cast<ssize_t>(sizeof port));
    ::close(told);
    const auto ended = supervise({.status = status,
                                  .engine = *rig.engine,
                                  .service = **service,
                                  .server = **server,
                                  .drain = std::chrono::seconds(1),
                                  .look = std::chrono::milliseconds(20)},
                                 stop);
    server->reset();
    rig.engine->shutdown();
    std::_Exit(ended.ok() ? 0 : 3);
  }

  pid_t process_ = -1;
  uint16_t port_ = 0;
};

void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(Supervise, ASignalEndsItInOrder) {
  Child child([](engine::Rig&, std::atomic<int>&) {});
  EXPECT_THAT(child.answer(true), HasSubstr("[DONE]"));
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait(), 0);
}

// The watchdog: a step that does not end.
TEST(Supervise, AnEngineThatHangs) {
  for (const bool stream : {true, false}) {
    Child child([](engine::Rig& rig, std::atomic<int>& later) {
      rig.fake.before_step = [&later](int step) {
        if (step < 4) return;
        later = 61;
        sleep_for_ever();
      };
    });
    EXPECT_THAT(
        child.answer(stream),
        AllOf(HasSubstr(R"({"error":{"message":"no token for 61 s with 1 requests running)"),
              HasSubstr(stream ? "HTTP/1.1 200" : "HTTP/1.1 500")));
    EXPECT_EQ(child.wait(), 1);
  }
}

TEST(Supervise, ALongStepIsNoHang) {
  Child child([](engine::Rig& rig, std::atomic<int>& later) {
    rig.fake.before_step = [&later](int step) {
      if (step != 4) return;
      later = 59;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    };
  });
  EXPECT_THAT(child.answer(true), HasSubstr("[DONE]"));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait(), 0);
}

TEST(Supervise, AModelThatFails) {
  Child child([](engine::Rig& rig, std::atomic<int>&) { rig.fake.fails_at_step = 4; });
  EXPECT_THAT(child.answer(true), HasSubstr(R"(data: {"error":{"message":)"));
  EXPECT_EQ(child.wait(), 3) << "the error of supervise(), which main() turns into exit code 1";
}

// A bug in the engine's thread: clients are told before the process ends.
TEST(Supervise, ACheckThatFails) {
  Child child([](engine::Rig& rig, std::atomic<int>&) {
    rig.fake.before_step = [](int step) { CHECK(step < 4); };
  });
  EXPECT_THAT(child.answer(true), HasSubstr("CHECK failed: step < 4"));
  EXPECT_EQ(child.wait(), 1);
}

TEST(Supervise, AnExceptionThatNobodyCatches) {
  Child child([](engine::Rig& rig, std::atomic<int>&) {
    rig.fake.before_step = [](int step) {
      if (step == 4) throw std::bad_alloc();
    };
  });
  EXPECT_THAT(child.answer(true), HasSubstr("bad_alloc"));
  EXPECT_EQ(child.wait(), 1);
}

// A hang while a signal's drain goes on is noticed as well.
TEST(Supervise, AHangWhileItEnds) {
  Child child([](engine::Rig& rig, std::atomic<int>& later) {
    rig.fake.before_step = [&later](int step) {
      if (step < 4) return;
      ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      later = 61;
      sleep_for_ever();
    };
  });
  EXPECT_THAT(child.answer(true), HasSubstr("no token for 61 s"));
  EXPECT_EQ(child.wait(), 1);
}

// An end that lost answers is not an end in order.
TEST(Supervise, AModelThatFailsWhileItEnds) {
  Child child([](engine::Rig& rig, std::atomic<int>&) {
    rig.fake.fails_at_step = 4;
    rig.fake.before_step = [](int step) {
      if (step < 4) return;
      ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
  });
  EXPECT_THAT(child.answer(true), HasSubstr(R"(data: {"error":{"message":)"));
  EXPECT_EQ(child.wait(), 3);
}

TEST(Supervise, ACheckThatFailsWhileItEnds) {
  Child child([](engine::Rig& rig, std::atomic<int>&) {
    rig.fake.before_step = [](int step) {
      if (step < 4) return;
      ::kill(::getpid(), SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      CHECK(step < 4);
    };
  });
  EXPECT_THAT(child.answer(true), HasSubstr("CHECK failed: step < 4"));
  EXPECT_EQ(child.wait(), 1);
}

}  // namespace
}  // namespace lagoon::app
