#include "base/log.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace lagoon {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Log : public testing::Test {
 protected:
  ~Log() override {
    set_log_level(LogLevel::info);
    set_log_format(LogFormat::kText);
  }
};

TEST_F(Log, LinesHaveTimeLevelAndMessage) {
  testing::internal::CaptureStderr();
  LOG(info, "{} of {}", 1, "two");
  LOG(error, "plain");
  const std::vector<std::string> lines = lines_of(testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 2u);
  const std::string stamp = "\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d{3} ";
  EXPECT_TRUE(std::regex_match(lines[0], std::regex(stamp + "INFO  1 of two"))) << lines[0];
  EXPECT_TRUE(std::regex_match(lines[1], std::regex(stamp + "ERROR plain"))) << lines[1];
}

TEST_F(Log, LevelsBelowTheLowestAreNotFormatted) {
  int formatted = 0;
  const auto argument = [&formatted] { return ++formatted; };
  testing::internal::CaptureStderr();
  LOG(debug, "{}", argument());
  set_log_level(LogLevel::error);
  LOG(warning, "{}", argument());
  set_log_level(LogLevel::debug);
  LOG(debug, "{}", argument());
  const std::vector<std::string> lines = lines_of(testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].ends_with("DEBUG 1")) << lines[0];
  EXPECT_EQ(formatted, 1);
}

TEST_F(Log, RequestsAreNamed) {
  testing::internal::CaptureStderr();
  LOG_FOR("chatcmpl-1", info, "{} tokens", 3);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(line.ends_with("INFO  chatcmpl-1 3 tokens\n")) << line;
}

TEST_F(Log, WhatIsLoggedBeginsNoLineOfItsOwn) {
  testing::internal::CaptureStderr();
  LOG_FOR("a\nb", info, "{}", "one\ntwo\r\x1b[31m");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(line.ends_with("INFO  a\\nb one\\ntwo\\x0d\\x1b[31m\n")) << line;
}

TEST_F(Log, JsonObjects) {
  set_log_format(LogFormat::kJson);
  testing::internal::CaptureStderr();
  LOG_FOR("id", warning, "say \"{}\"", "\xff\n");
  LOG(error, "plain");
  const std::vector<std::string> lines = lines_of(testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 2u);
  const std::string start = R"(\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","level":)";
  EXPECT_TRUE(std::regex_match(
      lines[0],
      std::regex(start + R"("warning","request_id":"id","message":"say \\"\xef\xbf\xbd\\n\\""\})")))
      << lines[0];
  EXPECT_TRUE(std::regex_match(lines[1], std::regex(start + R"("error","message":"plain"\})")))
      << lines[1];
}

TEST_F(Log, ThreadsDoNotMixTheirLines) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) LOG(info, "{}", std::string(200, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = lines_of(testing::internal::GetCapturedStderr());
  ASSERT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) {
    const std::string message = line.substr(line.size() - 200);
    EXPECT_EQ(message, std::string(200, message[0])) << line;
  }
}

}  // namespace
}  // namespace lagoon
